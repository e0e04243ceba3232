"""The rows of tool calls: how they are made, found, and filled in when calls start and end (sync ORM)."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from governance.bulk_updates import update_each
from governance.core import calls as core_calls
from governance.core.calls import ALLOWED_TRANSITIONS, OPEN_STATUSES, CallStatus, ToolOutcome
from governance.core.exceptions import IllegalTransition
from governance.core.live_call import LiveCall
from governance.core.registry import registry
from governance.core.tools import Tool
from governance.durations import limit_ms, to_ms
from governance.models import ToolCall
from governance.sanitize import sanitize_json, sanitize_text

_NAME_LENGTH = 128
_STARTED = (
    "status",
    "started_at",
    "queued_ms",
    "timeout_ms",
    "timeout_source",
    "asked_timeout_ms",
    "idle_timeout_ms",
)
_ENDED = (
    "status",
    "error_type",
    "disposition",
    "result",
    "is_error",
    "is_synthetic",
    "limit_reached",
    "detail",
    "ended_at",
    "queued_ms",
    "duration_ms",
    "timeout_ms",
    "timeout_source",
    "ended_by_reason",
    "ended_by_source",
    "ended_by_name",
)


def pending_rows(
    calls: Iterable[core_calls.ToolCall], *, group: str, step: int, tool: Tool | None = None
) -> list[ToolCall]:
    """Return unsaved rows for calls that wait."""
    now = timezone.now()
    return [
        ToolCall(
            call_id=call.id,
            scope=call.scope,
            group=group,
            step=step,
            position=call.position,
            tool_name=sanitize_text(call.tool_name, limit=_NAME_LENGTH),
            input=sanitize_json(dict(call.input)),
            requested_at=now,
            **_declared(tool or _registered(call.tool_name)),
        )
        for call in calls
    ]


def eligible_for(status: CallStatus, *call_ids: str, group: str) -> QuerySet[ToolCall]:
    """Return the calls in a status that `status` may follow: the compare of every compare-and-set."""
    sources = [before for before, following in ALLOWED_TRANSITIONS.items() if status in following]
    return ToolCall.objects.filter(group=group, call_id__in=call_ids, status__in=sources)


def open_in(group: str) -> QuerySet[ToolCall]:
    """Return the open calls of a group."""
    return ToolCall.objects.filter(group=group, status__in=OPEN_STATUSES)


def lock(rows: QuerySet[ToolCall]) -> list[ToolCall]:
    """Lock the rows until the transaction ends, and return them in call order."""
    return list(rows.select_for_update().order_by("step", "position"))


def write_start(rows: Sequence[ToolCall], calls: Mapping[str, LiveCall]) -> None:
    """Write that these calls are about to run, with the limits they run under."""
    at = timezone.now()
    for row in rows:
        _set(row, _started(calls[row.call_id], at=at))
    update_each(rows, _STARTED)


def may_end(row: ToolCall, outcome: ToolOutcome) -> bool:
    """Return whether a call may have this outcome after the status that it has."""
    return outcome.status in ALLOWED_TRANSITIONS.get(CallStatus(row.status), ())


def write_end(rows: Sequence[ToolCall], outcomes: Mapping[str, ToolOutcome]) -> None:
    """Write the outcomes of these calls. Raise `IllegalTransition`, and write nothing, if one status is not terminal."""
    at = timezone.now()
    for row in rows:
        _set(row, _ended(outcomes[row.call_id], at=at))
    update_each(rows, _ENDED)


def _registered(tool_name: str) -> Tool | None:
    return registry.get(tool_name) if tool_name in registry else None


def _declared(tool: Tool | None) -> dict[str, Any]:
    if tool is None:
        return {}
    return {"isolation": tool.isolation, "concurrency": tool.concurrency}


def _set(row: ToolCall, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(row, name, value)


def _started(call: LiveCall, *, at: datetime) -> dict[str, Any]:
    policy = call.limits.policy
    capped_from = policy.capped_from if policy else None
    return {
        "status": CallStatus.RUNNING.value,
        "started_at": at,
        "queued_ms": to_ms(call.queued),
        "timeout_ms": limit_ms(call.timeout),
        "timeout_source": call.timeout_source or "",
        "asked_timeout_ms": None if capped_from is None else limit_ms(capped_from),
        "idle_timeout_ms": limit_ms(call.idle_timeout),
    }


def _ended(outcome: ToolOutcome, *, at: datetime) -> dict[str, Any]:
    if not outcome.status.is_terminal:
        raise IllegalTransition(f"{outcome.status!r} is no end of a tool call.")
    # How long a body ran whose process was lost is not known: that is not "no time at all".
    ran = outcome.disposition is core_calls.Disposition.SETTLED or outcome.duration > 0
    cause = outcome.ended_by
    ended: dict[str, Any] = {
        "status": outcome.status.value,
        "error_type": outcome.error_type or "",
        "disposition": outcome.disposition.value,
        "result": sanitize_text(outcome.result),
        "is_error": outcome.is_error,
        "limit_reached": outcome.limit_reached or "",
        "detail": sanitize_text(outcome.detail),
        "ended_at": at,
        "queued_ms": to_ms(outcome.queued),
        "duration_ms": to_ms(outcome.duration) if ran else None,
        "ended_by_reason": cause.reason if cause else "",
        "ended_by_source": cause.source if cause else "",
        "ended_by_name": cause.by if cause else "",
    }
    if outcome.timeout_source:
        ended["timeout_ms"] = limit_ms(outcome.timeout)
        ended["timeout_source"] = outcome.timeout_source
    return ended
