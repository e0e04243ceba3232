"""The tool with which a model reads the state of its turn and conversation: calls, sub-agents and remaining time."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Q

from governance import CallStatus, ErrorType, Limit, ToolContext, db_clock, selectors, tool
from governance.db import run_in_db_thread
from governance.durations import format_duration
from governance.recorder import UNWATCHED
from governance.selectors import CallRow, ScopeHealth
from turns.calls.serializers import elapsed_ms
from turns.models import Turn

LISTED_CALLS = 30
_ENDS = {"": "it may still be running", UNWATCHED: "its end was not observed"}  # by `late_kind`
_HAS_ENDED = "it has since ended"


@tool(title="Check the session status", loop_exempt=True)
async def session_status(context: ToolContext) -> str:
    """Show this turn's tool calls, sub-agents and remaining time, and the tools that timed out in this conversation."""
    calls, health, sub_agents = await _read(context.scope, str(context.metadata.get("turn_id", "")))
    others = [call for call in calls if call.call_id != context.call_id]
    lines = [
        *_describe_calls(others),
        *_describe_sub_agents(sub_agents),
        *_describe_timeouts(health),
        f"Health: {_judge(health)}.",
        f"Time left in this turn: {_time_left(context.metadata)}.",
    ]
    return "\n".join(lines)


@run_in_db_thread
def _read(scope: str, group: str) -> tuple[Sequence[CallRow], ScopeHealth, Sequence[Turn]]:
    return selectors.calls_of_group(group), selectors.health(scope), _sub_agents(scope, group)


def _sub_agents(scope: str, group: str) -> list[Turn]:
    """Return the sub-agents of this turn, and earlier ones that are active or whose reports are not delivered."""
    try:
        conversation_id, turn_id = UUID(scope), UUID(group)
    except ValueError:  # called without a turn
        return []
    of_turn = Q(parent=turn_id)
    undelivered = Q(parent__conversation=conversation_id, is_detached=True, delivered_at=None)
    return list(Turn.objects.filter(of_turn | undelivered).order_by("queued_at")[:LISTED_CALLS])


def _describe_sub_agents(turns: Sequence[Turn]) -> Iterator[str]:
    if turns:
        yield f"Sub-agents: {len(turns)}."
    now = db_clock.now()
    for turn in turns:
        seconds = ((turn.ended_at or now) - (turn.started_at or turn.queued_at)).total_seconds()
        elapsed = format_duration(max(round(seconds), 0) * 1000)
        mode = ", detached" if turn.is_detached else ""
        yield f"- {turn.agent} (session {turn.pk}): {turn.status.replace('_', ' ')}, {elapsed}{mode}"


def _describe_calls(calls: Sequence[CallRow]) -> Iterator[str]:
    """Describe the newest calls; the earlier calls of a long turn are only counted."""
    if not calls:
        yield "No other tool call was made in this turn."
        return
    newest = calls[-LISTED_CALLS:]
    yield f"Other tool calls of this turn: {len(calls)}."
    if len(newest) < len(calls):
        yield f"… {len(calls) - len(newest)} earlier ones are left out …"
    now = db_clock.now()
    for call in newest:
        elapsed = format_duration(elapsed_ms(call, at=now))
        yield f"- {call.tool_name} ({call.call_id}): {_status(call)}, {elapsed}{_limit(call)}"


def _status(call: CallRow) -> str:
    status = call.status.replace("_", " ")
    if call.status == CallStatus.ABANDONED:
        return f"{status} ({call.error_type}), {_ENDS.get(call.late_kind, _HAS_ENDED)}"
    return status


def _limit(call: CallRow) -> str:
    """Return the limit of a call if the call is running or has reached the limit."""
    if call.limit_reached == Limit.IDLE and call.idle_timeout_ms:
        return f", idle limit {format_duration(call.idle_timeout_ms)}"
    matters = not CallStatus(call.status).is_terminal or call.error_type == ErrorType.TIMEOUT
    return f", limit {format_duration(call.timeout_ms)}" if matters and call.timeout_ms else ""


def _describe_timeouts(health: ScopeHealth) -> Iterator[str]:
    if health.timed_out_tools:
        tools = ", ".join(f"{timed.tool_name} ({timed.count}×)" for timed in health.timed_out_tools)
        yield f"Timed out in this conversation: {tools}."


def _judge(health: ScopeHealth) -> str:
    """Return the health as text. It is degraded if calls timed out, were abandoned or were interrupted, but not by
    ordinary failures.
    """
    problems = (
        (health.by_error_type.get(ErrorType.TIMEOUT, 0), "timeouts"),
        (health.by_status.get(CallStatus.ABANDONED, 0), "abandoned"),
        (health.by_error_type.get(ErrorType.INTERRUPTED, 0), "interrupted"),
    )
    counts = ", ".join(f"{count} {kind}" for count, kind in problems if count)
    if counts:
        return f"degraded: {counts}, of {health.total} calls in this conversation"
    failed = health.by_status.get(CallStatus.FAILED, 0)
    return f"healthy ({failed} of {health.total} calls failed)" if failed else "healthy"


def _time_left(metadata: Mapping[str, Any]) -> str:
    """Return the remaining time; `turn_ends_at` is a wall-clock time so that it can be sent to other processes."""
    ends_at = metadata.get("turn_ends_at")
    if ends_at is None:
        return "no limit"
    return format_duration(max(round(ends_at - time.time()), 0) * 1000)
