"""Tool calls as clients see them: a row of governance in the form of the wire."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from governance import CallStatus, ErrorType, Isolation, Limit, recorder, registry, selectors
from governance import approval_store as approval_store
from governance.approval_store import ApprovalRow
from governance.selectors import CallRow
from turns.calls import approvals
from turns.core.events import TurnEvent
from turns.core.messages import AttachmentBlock
from turns.core.tool_events import ToolQueued, ToolResult, ToolStart, ToolTimeout
from turns.core.wire import Call, CallEnd, CurrentTool, EndedBy, LimitChange, SubAgentTurn
from turns.models import Turn

RESULT_LENGTH = 2_000


def ended_by(row: Any) -> EndedBy | None:
    """Return who ended a call or a turn, None where nobody did."""
    if not row.ended_by_reason:
        return None
    return {"reason": row.ended_by_reason, "source": row.ended_by_source, "by": row.ended_by_name}


def is_interruptible(row: CallRow) -> bool:
    """Return whether a cancel can end the body of a call; else it only stops waiting for it."""
    return row.isolation != Isolation.THREAD


def elapsed_ms(row: CallRow, *, at: datetime) -> int:
    """Return how long the call has been running, or ran."""
    if row.duration_ms is not None:
        return row.duration_ms
    if row.started_at is None:
        return 0
    return max(round(((row.ended_at or at) - row.started_at).total_seconds() * 1000), 0)


class DescribedCalls:
    """The calls of some turns as clients see them, read in three queries."""

    def __init__(self, turn_ids: Iterable[UUID], *, at: datetime) -> None:
        groups = [str(turn_id) for turn_id in turn_ids]
        questions = approval_store.latest_by_call(groups)
        sub_agents = _sub_agents(groups)
        self._by_group: dict[str, list[Call]] = {}
        for row in selectors.calls_of_groups(groups):
            key = (row.group, row.call_id)
            described = describe(
                row, at=at, question=questions.get(key), sub_agent=sub_agents.get(key)
            )
            self._by_group.setdefault(row.group, []).append(described)

    def of(self, turn_id: UUID) -> list[Call]:
        """Return the calls of one turn, in the order of their steps."""
        return self._by_group.get(str(turn_id), [])


def _sub_agents(groups: Iterable[str]) -> dict[tuple[str, str], SubAgentTurn]:
    """What calls have set to work, by their turn and id."""
    return {
        (str(turn.parent_id), turn.parent_tool_id): describe_sub_agent(turn)
        for turn in Turn.objects.filter(parent__in=list(groups)).order_by("queued_at")
    }


def describe_sub_agent(turn: Turn) -> SubAgentTurn:
    """Return the turn of a sub-agent as those who set it to work see it."""
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
    at: datetime,
    question: ApprovalRow | None = None,
    sub_agent: SubAgentTurn | None = None,
) -> Call:
    """Return a call as snapshots and the API show it, with the question that people were asked about it."""
    call: Call = {
        "tool_id": row.call_id,
        "turn_id": row.group,
        "tool_name": row.tool_name,
        "tool_title": row.tool_title,
        "tool_server": row.tool_server,
        "allowed_earlier_by": row.allowed_earlier_by,
        "input": row.input,
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
    return {**call, **result_fields(row)} if CallStatus(row.status).is_terminal else call


def current(call: Call) -> CurrentTool:
    """Return what a list of turns shows of a call that runs or waits."""
    return {
        "tool_id": call["tool_id"],
        "tool_name": call["tool_name"],
        "status": call["status"],
        "elapsed_ms": call["elapsed_ms"],
        "timeout_ms": call["timeout_ms"],
        "timeout_source": call["timeout_source"],
        "idle_timeout_ms": call["idle_timeout_ms"],
        "waits_for": call["waits_for"],
    }


def result_fields(row: CallRow) -> CallEnd:
    """Return how a call ended: the part that the `tool_result` event shares with the snapshot."""
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
        "status": row.status,
        "limit_reached": row.limit_reached or None,
        "duration_ms": row.duration_ms or 0,
        "ended_by": ended_by(row),
        "disposition": row.disposition,
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
    """Return the event of a call that has waited for a while, and for what."""
    return ToolQueued(
        tool_id=row.call_id,
        tool_name=row.tool_name,
        waits_for=row.waits_for,
        concurrency=row.concurrency,
    )


def start_event(row: CallRow) -> ToolStart:
    """Return the event of a call that is about to run."""
    return ToolStart(
        tool_id=row.call_id,
        tool_name=row.tool_name,
        tool_title=row.tool_title,
        tool_server=row.tool_server,
        allowed_earlier_by=row.allowed_earlier_by,
        input=row.input,
        timeout_ms=row.timeout_ms,
        timeout_source=row.timeout_source,
        idle_timeout_ms=row.idle_timeout_ms or None,
        cancellable=True,
        interruptible=is_interruptible(row),
        concurrency=row.concurrency,
        position=row.position,
        expected_ms=_expected_ms(row.tool_name),
        asked_timeout_ms=row.asked_timeout_ms,
    )


def result_events(row: CallRow) -> list[TurnEvent]:
    """Return the events of a call's end: its one `tool_result`, after a `tool_timeout` where it ran out of time."""
    result = ToolResult(
        tool_id=row.call_id,
        tool_name=row.tool_name,
        step=row.step,
        position=row.position,
        **result_fields(row),
    )
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
