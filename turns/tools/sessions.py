"""The tools that set other agents to work: one waits for the answer, one does not (C10).

A session is a sub-agent's turn; its id is the turn's. Both tools govern themselves: what they start has its own limits
(T3, T10).
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from uuid import UUID

from governance import (
    Cancellation,
    Cancelled,
    CancelReason,
    Deadline,
    ToolContext,
    ToolFailed,
    tool,
)
from governance.db import run_in_db_thread
from turns.core.clock import TurnClock
from turns.core.turns import TurnStatus
from turns.events import sinks
from turns.events.notifications import Notifications, notify
from turns.history import reports
from turns.history.reports import Report
from turns.models import Turn
from turns.processes.background import spawn
from turns.running import runtime
from turns.storage.retries import until_done
from turns.tools import children
from turns.tools.child_watcher import ChildTurnWatcher
from turns.tools.children import Child, ChildRefused, Origin

_TO_BE_DELIVERED = "The sub-agent was told to report what it has; if it has begun, that is delivered to this conversation."
_FAULTS = {
    TurnStatus.TIMED_OUT: "[TIMEOUT]",
    TurnStatus.FAILED: "[ERROR]",
    TurnStatus.INTERRUPTED: "[INTERRUPTED]",
}


@tool(title="Ask an agent", timeout=0, only_waits=True)
async def sessions_ask(context: ToolContext, agent: str, message: str) -> str:
    """Set another agent to work on a message and wait for its answer. Several calls in one step work side by side.

    The agent knows nothing of this conversation, so say all that it needs.
    """
    try:
        child = await _start(context, agent, message, is_detached=False)
        clocks = _clocks_of(context)
        follower = ChildTurnWatcher(
            child.turn_id,
            child.conversation_id,
            say=lambda sentence: context.progress(f"{child.agent}: {sentence}"),
            pause=lambda: [clock.pause() for clock in clocks],
            resume=lambda: [clock.resume() for clock in clocks],
        )
        await follower.until_ended()
        report = await until_done(partial(_report, child))
    except asyncio.CancelledError:
        _give_up(context)
        raise
    return _answer(context, report)


@tool(title="Set an agent to work", timeout=0)
async def sessions_spawn(context: ToolContext, agent: str, message: str) -> str:
    """Set another agent to work on a message and do not wait: its report reaches this conversation when it has ended.

    The agent knows nothing of this conversation, so say all that it needs.
    """
    try:
        child = await _start(context, agent, message, is_detached=True)
    except asyncio.CancelledError:
        _give_up(context)
        raise
    return (
        f'The sub-agent "{child.agent}" works as session {child.turn_id}. Its report is delivered to this conversation '
        "when it has ended. Do not wait for it and do not do its work yourself; end your answer if nothing else is to "
        "be done."
    )


@tool(title="End an agent’s work")
async def sessions_cancel(context: ToolContext, session: str) -> str:
    """End a sub-agent that works for this conversation, and all that it has set to work; no report is delivered."""
    try:
        wanted = UUID(session)
    except ValueError:
        raise ToolFailed(f"[ERROR] {session[:80]!r} is not the id of a session.") from None
    notifications = await _cancel_session(UUID(context.metadata["conversation_id"]), wanted)
    await notify(notifications, notify_owner=runtime.notify_owner)
    if not notifications.cancelled:
        return "There is no such session at work for this conversation: it has ended, or never was."
    return f"The session was told to end, {notifications.cancelled} sub-agents in all."


async def _start(context: ToolContext, agent: str, message: str, *, is_detached: bool) -> Child:
    try:
        origin = _origin(context)
        child = await until_done(
            lambda: _start_child(origin, agent=agent, message=message, is_detached=is_detached)
        )
    except ChildRefused as refused:
        raise ToolFailed(f"[ERROR] {refused.sentence}") from None
    for conversation_id, events in child.batches:
        await sinks.publish(conversation_id, events)
    return child


def _origin(context: ToolContext) -> Origin:
    facts = context.metadata
    if "turn_epoch" not in facts:
        raise ToolFailed("[ERROR] A sub-agent can only be set to work from within a turn.")
    live = runtime.find_turn(UUID(facts["turn_id"]))
    return Origin(
        turn_id=UUID(facts["turn_id"]),
        epoch=facts["turn_epoch"],
        tool_id=context.call_id,
        time_left=live.runner.clock.time_left if live and live.runner else None,
    )


def _clocks_of(context: ToolContext) -> "list[TurnClock | Deadline]":
    """What stands still while the sub-agent waits for a person, as its own clock does (T5)."""
    live = runtime.find_turn(UUID(context.metadata["turn_id"]))
    if live is None or live.runner is None:
        return []
    call = live.find_call(context.call_id)
    deadline = call.limits.deadline if call else None
    return [live.runner.clock, *([deadline] if deadline else [])]


def _give_up(context: ToolContext) -> None:
    """The call is over before its sub-agent is: that one ends, too, and whatever was just being started.

    If the call is out of time, the sub-agent may still report, and the report is delivered. All of it runs in the
    background: the call ends within its grace, however slow the database is.
    """
    turn_id, tool_id = UUID(context.metadata["turn_id"]), context.call_id
    cancellation = context.token.cancellation or Cancellation(reason=CancelReason.ERROR)
    live = runtime.find_turn(turn_id)
    if live is not None and live.token.is_cancelled:
        return  # the whole turn is being ended, and takes with it all that it has started
    goes_on = live is not None and live.runner is not None and not live.runner.is_ending
    if goes_on and cancellation.reason is CancelReason.TIMEOUT:
        context.progress(output=_TO_BE_DELIVERED)
        end = partial(_request_reports_of, turn_id, tool_id)
    else:
        end = partial(_cancel_started_by, turn_id, tool_id, cancellation)
    spawn(_notify_of(end), name=f"end of what {tool_id} has started")


async def _notify_of(end: Callable[[], Awaitable[Notifications]]) -> None:
    await notify(await until_done(end), notify_owner=runtime.notify_owner)


def _answer(context: ToolContext, report: Report | None) -> str:
    """Return what a sub-agent has answered.

    Raises:
        Cancelled: it was cancelled, and so is this call; the turn goes on.
        ToolFailed: it did not come to its end; its report is part of the sentence.
    """
    if report is None:
        raise ToolFailed("[ERROR] The sub-agent's conversation was deleted while it worked.")
    if report.status is TurnStatus.COMPLETED:
        return report.text or "The sub-agent has ended without a word."
    sentence = reports.sentence_of(report)
    if report.cancellation is not None:
        context.progress(output=sentence)
        context.token.cancel(report.cancellation)
        raise Cancelled(report.cancellation)
    raise ToolFailed(f"{_FAULTS.get(report.status, '[ERROR]')} {sentence}")


_start_child = run_in_db_thread(children.start)
_cancel_session = run_in_db_thread(children.cancel_session)
_request_reports_of = run_in_db_thread(children.request_reports_of)
_cancel_started_by = run_in_db_thread(children.cancel_started_by)


@run_in_db_thread
def _report(child: Child) -> Report | None:
    turn = Turn.objects.filter(pk=child.turn_id).first()
    return None if turn is None else reports.report_of(turn)
