"""The tools that start sub-agents, of which one waits for the answer and one does not, and the tool that ends them
(C10).

A session is a sub-agent's turn; its id is the turn's. The tools that start turns have no limit of their own, because
these turns have limits (T3, T10).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from django.db import Error as DatabaseError

from governance import (
    Cancellation,
    Cancelled,
    CancelReason,
    Deadline,
    ToolContext,
    ToolFailed,
    approval_store,
    tool,
)
from governance.db import run_in_db_thread
from turns.conf import app_settings
from turns.core import texts
from turns.core.events import (
    ToolAnswer,
    ToolApproval,
    ToolProgress,
    ToolQuestion,
    ToolResult,
    ToolStart,
    TurnAbort,
    TurnEnd,
    TurnQueued,
    TurnStart,
)
from turns.core.turn_limits import TurnClock
from turns.core.turns import LIVE_STATUSES, TurnStatus
from turns.events import log, sinks
from turns.events.notifications import Notifications, notify
from turns.history import reports
from turns.history.reports import Report
from turns.models import Message, Turn
from turns.processes.background import spawn
from turns.running import runtime
from turns.running.write_queue import until_done
from turns.tools import children
from turns.tools.children import Child, ChildRefused, Origin

logger = logging.getLogger(__name__)

_TO_BE_DELIVERED = "The sub-agent was asked to report what it has so far. If it has started, its report will be delivered here."
_FAULTS = {
    TurnStatus.TIMED_OUT: "[TIMEOUT]",
    TurnStatus.FAILED: "[ERROR]",
    TurnStatus.INTERRUPTED: "[INTERRUPTED]",
}
_PROGRESS_TEXTS = {
    TurnQueued.type: texts.QUEUED,
    TurnStart.type: texts.THINKING,
    TurnAbort.type: texts.ENDING,
}


@tool(title="Ask an agent", timeout=0, only_waits=True)
async def sessions_ask(context: ToolContext, agent: str, message: str) -> str:
    """Ask another agent to work on a message, and wait for its answer. Several calls in one step run in parallel.

    The agent does not see this conversation, so include everything it needs.
    """
    try:
        child = await _start(context, agent, message, is_detached=False)
        clocks = _clocks_of(context)
        watcher = ChildTurnWatcher(
            child.turn_id,
            child.conversation_id,
            say=lambda sentence: context.progress(f"{child.agent}: {sentence}"),
            pause=lambda: [clock.pause() for clock in clocks],
            resume=lambda: [clock.resume() for clock in clocks],
        )
        await watcher.until_ended()
        report = await until_done(partial(_report, child))
    except asyncio.CancelledError:
        _give_up(context)
        raise
    return _answer(context, report)


@tool(title="Start an agent", timeout=0)
async def sessions_spawn(context: ToolContext, agent: str, message: str) -> str:
    """Start another agent on a message without waiting. Its report is delivered to this conversation when it ends.

    The agent does not see this conversation, so include everything it needs.
    """
    try:
        child = await _start(context, agent, message, is_detached=True)
    except asyncio.CancelledError:
        _give_up(context)
        raise
    return (
        f'The sub-agent "{child.agent}" has started as session {child.turn_id}. Its report will be delivered to this '
        "conversation when it ends. Do not wait for it, and do not do its work yourself. If there is nothing else to do, "
        "end your answer."
    )


@tool(title="Stop an agent")
async def sessions_cancel(context: ToolContext, session: str) -> str:
    """Stop a sub-agent of this conversation, and all sub-agents that it started. No report is delivered."""
    try:
        turn_id = UUID(session)
    except ValueError:
        raise ToolFailed(f"[ERROR] {session[:80]!r} is not the id of a session.") from None
    notifications = await _cancel_session(UUID(context.metadata["conversation_id"]), turn_id)
    await notify(notifications, notify_owner=runtime.notify_owner)
    if not notifications.cancelled:
        return "This conversation has no running session with that id. It may already have ended."
    return f"The session is being stopped. Sub-agents affected: {notifications.cancelled}."


async def _start(context: ToolContext, agent: str, message: str, *, is_detached: bool) -> Child:
    try:
        origin = _origin(context)
        child = await until_done(
            lambda: _start_child(origin, agent=agent, message=message, is_detached=is_detached)
        )
    except ChildRefused as error:
        raise ToolFailed(f"[ERROR] {error.sentence}") from None
    for conversation_id, events in child.batches:
        await sinks.publish(conversation_id, events)
    return child


def _origin(context: ToolContext) -> Origin:
    facts = context.metadata
    if "turn_epoch" not in facts:
        raise ToolFailed("[ERROR] A sub-agent can only be started from within a turn.")
    live = runtime.find_turn(UUID(facts["turn_id"]))
    return Origin(
        turn_id=UUID(facts["turn_id"]),
        epoch=facts["turn_epoch"],
        tool_id=context.call_id,
        time_left=live.runner.clock.time_left if live and live.runner else None,
    )


def _clocks_of(context: ToolContext) -> "list[TurnClock | Deadline]":
    """Return the clocks that pause while the sub-agent waits for a person (T5)."""
    live = runtime.find_turn(UUID(context.metadata["turn_id"]))
    if live is None or live.runner is None:
        return []
    call = live.find_call(context.call_id)
    deadline = call.limits.deadline if call else None
    return [live.runner.clock, *([deadline] if deadline else [])]


def _give_up(context: ToolContext) -> None:
    """End the sub-agent when the call ends first, even if it is just being started.

    If the call timed out, the sub-agent may still report, and the report is delivered. This runs in the background, so
    that the call ends within its grace period even if the database is slow.
    """
    turn_id, tool_id = UUID(context.metadata["turn_id"]), context.call_id
    cancellation = context.token.cancellation or Cancellation(reason=CancelReason.ERROR)
    live = runtime.find_turn(turn_id)
    if live is not None and live.token.is_cancelled:
        return  # the whole turn is being cancelled, including everything that it started
    continues = live is not None and live.runner is not None and not live.runner.is_ending
    if continues and cancellation.reason is CancelReason.TIMEOUT:
        context.progress(output=_TO_BE_DELIVERED)
        end = partial(_request_reports_of, turn_id, tool_id)
    else:
        end = partial(_cancel_started_by, turn_id, tool_id, cancellation)
    spawn(_notify_of(end), name=f"end of what {tool_id} has started")


async def _notify_of(end: Callable[[], Awaitable[Notifications]]) -> None:
    await notify(await until_done(end), notify_owner=runtime.notify_owner)


def _answer(context: ToolContext, report: Report | None) -> str:
    """Return the answer of a sub-agent.

    Raises: Cancelled: it was cancelled, and so is this call; the turn continues. ToolFailed: it was not completed; the
    sentence includes its report.
    """
    if report is None:
        raise ToolFailed("[ERROR] The sub-agent's conversation was deleted while it worked.")
    if report.status is TurnStatus.COMPLETED:
        return report.text or "The sub-agent ended without an answer."
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


class ChildTurnWatcher:
    """Follows a sub-agent's turn to its end in any process. `say` is called with short progress texts.

    `pause` is called when the turn starts to wait for a person, `resume` afterwards. The log is authoritative and read
    every second; events of this process trigger a read immediately.
    """

    def __init__(
        self,
        turn_id: UUID,
        conversation_id: UUID,
        *,
        say: Callable[[str], object],
        pause: Callable[[], object],
        resume: Callable[[], object],
    ) -> None:
        self._turn_id = turn_id
        self._conversation_id = conversation_id
        self._say = say
        self._pause = pause
        self._resume = resume
        self._is_paused = False
        self._seen = 0
        self._written = 0
        self._wakeup = asyncio.Event()
        self._is_over = False

    async def until_ended(self) -> None:
        """Wait until the turn has ended or its conversation was deleted."""
        sinks.register(self)
        try:
            while not self._is_over:
                self._wakeup.clear()
                try:
                    await self._look()
                except DatabaseError:  # the sub-agent may still run, so try again
                    logger.warning("A sub-agent's turn could not be looked at", exc_info=True)
                if not self._is_over:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(app_settings.POLL_INTERVAL):
                            await self._wakeup.wait()
        finally:
            sinks.unregister(self)
            self._set_paused(is_asked=False)

    async def publish(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        """Trigger a read of the log, because an event was stored."""
        if conversation_id == self._conversation_id:
            self._wakeup.set()

    def push(self, conversation_id: UUID, delta: dict[str, Any]) -> None:
        """Report that the sub-agent is writing, because it has streamed a piece of text."""
        if conversation_id == self._conversation_id:
            self._say(texts.WRITING)

    async def _look(self) -> None:
        events, length, is_asked, exists = await _read(
            self._turn_id, self._conversation_id, self._seen
        )
        for event in events:
            self._seen = event["seq"]
            if text := _progress_text(event):
                self._say(text)
            self._is_over = self._is_over or event["type"] == TurnEnd.type
        if length > self._written:
            self._say(texts.WRITING)
        self._written = length
        self._is_over = self._is_over or not exists
        self._set_paused(is_asked=is_asked and not self._is_over)

    def _set_paused(self, *, is_asked: bool) -> None:
        if is_asked is not self._is_paused:
            self._is_paused = is_asked
            (self._pause if is_asked else self._resume)()


def _progress_text(event: dict[str, Any]) -> str:
    """Return the progress text of an event; empty if there is nothing new."""
    tool = event.get("tool_name", "")
    match event["type"]:
        case ToolStart.type | ToolAnswer.type:
            return texts.RUNNING % {"tool": tool}
        case ToolProgress.type:
            message = event.get("message")
            return f"{tool}: {message}" if message else texts.RUNNING % {"tool": tool}
        case ToolApproval.type:
            return texts.ASKING % {"tool": tool}
        case ToolQuestion.type:
            return texts.ASKING_FORM % {"tool": tool}
        case ToolResult.type:
            return f"{tool} {str(event.get('status', '')).replace('_', ' ')}"
        case event_type:
            return _PROGRESS_TEXTS.get(event_type, "")


@run_in_db_thread
def _read(
    turn_id: UUID, conversation_id: UUID, after: int
) -> tuple[list[log.WireEvent], int, bool, bool]:
    """Return a turn's new events, the length of its unfinished answer, whether it waits for a person, and whether the
    turn exists.
    """
    events = log.read(conversation_id, after=after)
    streaming = Message.objects.filter(turn=turn_id, is_streaming=True).first()
    length = sum(len(block.get("text", "")) for block in streaming.content) if streaming else 0
    exists = bool(events) or Turn.objects.filter(pk=turn_id).exists()
    return events, length, _asks_a_person(turn_id), exists


def _asks_a_person(turn_id: UUID) -> bool:
    """Return whether a call of the turn, or of a sub-agent that it waits for, waits for a person."""
    turns = [turn_id]
    while turns:
        if approval_store.asks_a_person(str(pk) for pk in turns):
            return True
        waited_for = Turn.objects.filter(
            parent__in=turns, is_detached=False, status__in=LIVE_STATUSES
        )
        turns = list(waited_for.values_list("pk", flat=True))
    return False
