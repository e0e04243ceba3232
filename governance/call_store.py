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
from governance.core.registry import LONGEST_TITLE, registry
from governance.core.tools import Tool
from governance.durations import limit_ms, to_ms
from governance.models import ToolCall
from governance.prepared_statements import Insert, Select, Update, fields_of
from governance.rows import NewRow
from governance.sanitize import sanitize_json, sanitize_text

_NAME_LENGTH = 128
_SERVER_LENGTH = 100
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
    "images",
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


_LIMITS = ("timeout_ms", "timeout_source")

INSERT = Insert(ToolCall)
_new_call = NewRow(ToolCall)


def pending_rows(
    calls: Iterable[core_calls.ToolCall], *, group: str, step: int, tool: Tool | None = None
) -> list[ToolCall]:
    now = timezone.now()
    return [
        _new_call(
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


def display_fields(tool: Tool | None) -> dict[str, str]:
    """Return what people read beside the name of a tool, as it is stored: its title and its MCP server."""
    if tool is None:
        return {}
    return {
        "tool_title": sanitize_text(tool.title, limit=LONGEST_TITLE),
        "tool_server": sanitize_text(tool.server, limit=_SERVER_LENGTH),
    }


def eligible_for(status: CallStatus, *call_ids: str, group: str) -> QuerySet[ToolCall]:
    """Return the calls in a status that `status` may follow: the compare of every compare-and-set."""
    sources = [before for before, following in ALLOWED_TRANSITIONS.items() if status in following]
    return ToolCall.objects.filter(group=group, call_id__in=call_ids, status__in=sources)


OPEN = Select(
    lambda group: open_in(group).select_for_update().order_by("step", "position"),
    **fields_of(ToolCall, "group"),
)


def _moving_to(status: CallStatus, *written: str) -> Update:
    """The compare-and-set that moves one call to a status, and writes these fields of it."""
    return Update(
        lambda group, call_id, **values: (eligible_for(status, call_id, group=group), values),
        **fields_of(ToolCall, "group", "call_id", *written),
    )


START = _moving_to(CallStatus.RUNNING, *_STARTED)
_OUTCOME = [name for name in _ENDED if name not in ("is_synthetic", *_LIMITS)]
# By the status, and whether the outcome names limits; else they stay what they were.
END = {
    (status, has_limits): _moving_to(status, *_OUTCOME, *(_LIMITS if has_limits else ()))
    for status in set[CallStatus]().union(*ALLOWED_TRANSITIONS.values())
    if status.is_terminal
    for has_limits in (False, True)
}


def open_in(group: str) -> QuerySet[ToolCall]:
    return ToolCall.objects.filter(group=group, status__in=OPEN_STATUSES)


def lock_open(group: str) -> list[ToolCall]:
    """Lock the open calls of a group until the transaction ends, and return them in call order."""
    return OPEN.all(group=group)


def lock(rows: QuerySet[ToolCall]) -> list[ToolCall]:
    """Lock the rows until the transaction ends, and return them in call order."""
    return list(rows.select_for_update().order_by("step", "position"))


def set_started(rows: Sequence[ToolCall], calls: Mapping[str, LiveCall]) -> None:
    """Let the rows say that these calls are about to run, with the limits they run under."""
    at = timezone.now()
    for row in rows:
        _set(row, _started(calls[row.call_id], at=at))


def write_start(rows: Sequence[ToolCall], calls: Mapping[str, LiveCall]) -> None:
    """Write that these calls are about to run."""
    set_started(rows, calls)
    update_each(rows, _STARTED)


def start_held(rows: Sequence[ToolCall], calls: Mapping[str, LiveCall]) -> list[ToolCall]:
    """Start calls whose rows their owner holds, without reading them; return those that waited.

    Nobody else starts them, so what is held is what is stored, unless somebody has closed a call.
    """
    at = timezone.now()
    written = []
    for row in rows:
        started = _started(calls[row.call_id], at=at)
        _set(row, started)
        written.append(_of_call(row, started))
    return _moved(rows, START.run_each(written), started_at=at)


def end_held(rows: Sequence[ToolCall], outcomes: Mapping[str, ToolOutcome]) -> list[ToolCall]:
    """End calls whose rows their owner holds, without reading them; return those that were open."""
    at = timezone.now()
    alike: dict[tuple[CallStatus, bool], list[dict[str, Any]]] = {}
    for row in rows:
        outcome = outcomes[row.call_id]
        ended = _ended(outcome, at=at)
        _set(row, ended)
        kind = outcome.status, "timeout_ms" in ended
        alike.setdefault(kind, []).append(_of_call(row, ended))
    moved = sum(END[kind].run_each(values) for kind, values in alike.items() if kind in END)
    return _moved(rows, moved, ended_at=at)


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
    return {
        "isolation": str(tool.isolation),
        "concurrency": str(tool.concurrency),
        **display_fields(tool),
    }


def _moved(rows: Sequence[ToolCall], moved: int, **moment: datetime) -> list[ToolCall]:
    """The rows that were written at a moment: all of them, unless fewer were `moved`."""
    ordered = sorted(rows, key=lambda row: (row.step, row.position))
    if moved == len(ordered):
        return ordered
    keys = {(row.group, row.call_id) for row in rows}
    written = ToolCall.objects.filter(group__in={group for group, _ in keys}, **moment)
    return [row for row in written.order_by("step", "position") if (row.group, row.call_id) in keys]


def _of_call(row: ToolCall, written: Mapping[str, Any]) -> dict[str, Any]:
    return {"group": row.group, "call_id": row.call_id, **written}


def _set(row: ToolCall, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(row, name, value)


def _started(call: LiveCall, *, at: datetime) -> dict[str, Any]:
    policy = call.limits.policy
    capped_from = policy.capped_from if policy else None
    return {
        "status": str(CallStatus.RUNNING),
        "started_at": at,
        "queued_ms": to_ms(call.queued),
        "timeout_ms": limit_ms(call.timeout),
        "timeout_source": str(call.timeout_source or ""),
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
        "status": str(outcome.status),
        "error_type": str(outcome.error_type or ""),
        "disposition": str(outcome.disposition),
        "result": sanitize_text(outcome.result),
        "images": [image.to_json() for image in outcome.images],
        "is_error": outcome.is_error,
        "limit_reached": str(outcome.limit_reached or ""),
        "detail": sanitize_text(outcome.detail),
        "ended_at": at,
        "queued_ms": to_ms(outcome.queued),
        "duration_ms": to_ms(outcome.duration) if ran else None,
        "ended_by_reason": str(cause.reason) if cause else "",
        "ended_by_source": str(cause.source) if cause else "",
        "ended_by_name": cause.by if cause else "",
    }
    if outcome.timeout_source:
        ended["timeout_ms"] = limit_ms(outcome.timeout)
        ended["timeout_source"] = str(outcome.timeout_source)
    return ended
