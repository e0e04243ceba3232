"""Tool calls in wire format: `describe` converts a row, and events contain fields of the converted call."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from governance import (
    CallStatus,
    ErrorType,
    Isolation,
    Limit,
    approval_store,
    db_clock,
    recorder,
    registry,
    selectors,
)
from governance.approval_store import ApprovalRow
from governance.selectors import CallRow
from turns.calls import approvals
from turns.core.events import (
    ToolDeadline,
    ToolQueued,
    ToolResult,
    ToolStart,
    ToolTimeout,
    TurnEvent,
)
from turns.core.messages import AttachmentBlock
from turns.core.wire import (
    Call,
    CallEnd,
    CurrentTool,
    EndedBy,
    LimitChange,
    SubAgentTurn,
    arguments_of,
    fields_of,
)
from turns.models import Turn

RESULT_LENGTH = 2_000


def ended_by(row: Any) -> EndedBy | None:
    """Return who or what ended a call or a turn, or None if it ended by itself."""
    if not row.ended_by_reason:
        return None
    return {"reason": row.ended_by_reason, "source": row.ended_by_source, "by": row.ended_by_name}


def is_interruptible(row: CallRow) -> bool:
    """Return whether a cancel can end the body of a call. If not, only the wait for the body ends."""
    return row.isolation != Isolation.THREAD


def elapsed_ms(row: CallRow, *, at: datetime) -> int:
    if row.duration_ms is not None:
        return row.duration_ms
    if row.started_at is None:
        return 0
    return max(round(((row.ended_at or at) - row.started_at).total_seconds() * 1000), 0)


class DescribedCalls:
    """The serialized calls of some turns, read with three queries."""

    def __init__(self, turn_ids: Iterable[UUID], *, at: datetime) -> None:
        groups = [str(turn_id) for turn_id in turn_ids]
        questions, forms = approval_store.questions_by_call(groups)
        sub_agents = _sub_agents(groups)
        self._by_group: dict[str, list[Call]] = {}
        for row in selectors.calls_of_groups(groups):
            key = (row.group, row.call_id)
            call = describe(
                row,
                at=at,
                question=questions.get(key),
                form=forms.get(key),
                sub_agent=sub_agents.get(key),
            )
            self._by_group.setdefault(row.group, []).append(call)

    def of(self, turn_id: UUID) -> list[Call]:
        """Return the calls of one turn, ordered by step."""
        return self._by_group.get(str(turn_id), [])


def _sub_agents(groups: Iterable[str]) -> dict[tuple[str, str], SubAgentTurn]:
    """Return the sub-agents' turns that these turns' calls have started, by turn and call id."""
    return {
        (str(turn.parent_id), turn.parent_tool_id): describe_sub_agent(turn)
        for turn in Turn.objects.filter(parent__in=list(groups)).order_by("queued_at")
    }


def describe_sub_agent(turn: Turn) -> SubAgentTurn:
    """Return the turn of a sub-agent as shown with the call that started it."""
    return {
        "turn_id": str(turn.pk),
        "conversation_id": str(turn.conversation_id),
        "agent": turn.agent,
        "status": turn.status,
        "is_detached": turn.is_detached,
    }


def describe(
    row: CallRow,
    *,
    at: datetime | None = None,
    question: ApprovalRow | None = None,
    form: ApprovalRow | None = None,
    sub_agent: SubAgentTurn | None = None,
) -> Call:
    """Return a call in wire format, as of the time `at`, or as of now if it is None.

    `question` and `sub_agent` are the question about the call and the turn that the call started; the call's events
    do not show them.
    """
    at = at or db_clock.now()
    call: Call = {
        "tool_id": row.call_id,
        "turn_id": row.group,
        "tool_name": row.tool_name,
        "tool_title": row.tool_title,
        "tool_server": row.tool_server,
        "allowed_earlier_by": row.allowed_earlier_by,
        "input": row.input,
        "arguments": arguments_of(row.input),
        "step": row.step,
        "position": row.position,
        "status": row.status,
        "elapsed_ms": elapsed_ms(row, at=at),
        "timeout_ms": row.timeout_ms,
        "timeout_source": row.timeout_source,
        "idle_timeout_ms": row.idle_timeout_ms or None,
        "cancellable": True,
        "interruptible": is_interruptible(row),
        "concurrency": row.concurrency,
        "expected_ms": _expected_ms(row.tool_name),
        "asked_timeout_ms": row.asked_timeout_ms,
        "limit_changes": [_limit_change(change) for change in row.deadline_changes],
        "waits_for": (row.waits_for or None) if row.status == CallStatus.PENDING else None,
        "approval": approvals.describe(question, at=at) if question else None,
        "message": row.progress.get("message"),
        "progress": row.progress.get("progress"),
        "total": row.progress.get("total"),
        "tail": row.progress.get("tail"),
        "sub_agent": sub_agent,
    }
    if CallStatus(row.status).is_terminal:
        return {**call, **_end(row)}
    if form is not None:
        call["form"] = approvals.describe_form(form, at=at)
    return call


def current(call: Call) -> CurrentTool:
    """Return the fields of a waiting or running call that lists of turns show."""
    return cast("CurrentTool", fields_of(call, CurrentTool.__annotations__))


def _end(row: CallRow) -> CallEnd:
    has_settled = row.late_kind not in ("", recorder.UNWATCHED)
    return {
        "result": row.result[:RESULT_LENGTH],
        "result_length": len(row.result),
        "images": [
            AttachmentBlock.of_result(image, tool_use_id=row.call_id).to_json()
            for image in row.images
        ],
        "is_error": row.is_error,
        "error_type": row.error_type or None,
        "limit_reached": row.limit_reached or None,
        "duration_ms": row.duration_ms or 0,
        "ended_by": ended_by(row),
        "disposition": row.disposition,
        "effects": row.effects,
        "late": {"kind": row.late_kind, "after_ms": row.late_after_ms} if has_settled else None,
    }


def _limit_change(change: dict[str, Any]) -> LimitChange:
    is_idle = (
        change["from_ms"] == change["to_ms"] and change["from_idle_ms"] != change["to_idle_ms"]
    )
    return {
        "timeout_ms": (change["to_idle_ms"] or None) if is_idle else change["to_ms"],
        "is_idle": is_idle,
        "changed_by": change["by"],
    }


def queued_event(row: CallRow) -> ToolQueued:
    """Return the event of a call that has been waiting for a while, with the reason."""
    return ToolQueued(
        tool_id=row.call_id,
        tool_name=row.tool_name,
        waits_for=row.waits_for,
        concurrency=row.concurrency,
    )


def start_event(row: CallRow) -> ToolStart:
    """Return the event of a call that is about to run."""
    return ToolStart(call=describe(row))


def deadline_event(row: CallRow) -> ToolDeadline:
    """Return the event of the last change of a running call's limits."""
    return ToolDeadline(
        tool_id=row.call_id,
        timeout_ms=row.timeout_ms,
        timeout_source=row.timeout_source,
        idle_timeout_ms=row.idle_timeout_ms or None,
        changed_by=row.deadline_changes[-1]["by"],
    )


def result_events(row: CallRow) -> list[TurnEvent]:
    """Return the events of a call's end: one `tool_result`, after a `tool_timeout` if it timed out."""
    result = ToolResult(call=describe(row))
    if row.error_type != ErrorType.TIMEOUT:
        return [result]
    is_idle = row.limit_reached == Limit.IDLE
    timeout = ToolTimeout(
        tool_id=row.call_id,
        tool_name=row.tool_name,
        timeout_ms=row.idle_timeout_ms if is_idle else row.timeout_ms,
        limit_reached=row.limit_reached or None,
    )
    return [timeout, result]


def _expected_ms(tool_name: str) -> int | None:
    if tool_name not in registry:
        return None
    expected = registry.get(tool_name).expected_duration
    return None if expected is None else round(expected * 1000)
