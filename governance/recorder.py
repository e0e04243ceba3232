"""Writes tool calls as rows: proposed, started, moved, ended once, settled late.

The functions are for code that is inside its own transaction already, so that a call's row and whatever belongs to it
change together. Every change of status is a compare-and-set on the statuses from which it is allowed: of two endings
one wins, and the other is told. `Recorder` is the executor's observer for projects that use governance alone (B8).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from governance.core import calls as core
from governance.core.calls import (
    ALLOWED_MOVES,
    OPEN_STATUSES,
    CallStatus,
    LateSettlement,
    Progress,
    ToolOutcome,
)
from governance.core.deadline import DeadlineChange
from governance.core.exceptions import IllegalTransition
from governance.core.limiter import Obstacle
from governance.core.live import LiveCall
from governance.core.registry import registry
from governance.core.tools import Tool
from governance.doors import database_door
from governance.durations import limit_ms, to_ms
from governance.models import Approval, ToolCall
from governance.storable import storable_json, storable_text

UNWATCHED = "unwatched"  # instead of what a body did late: its end cannot be seen
_NAME_LENGTH = 128
_AT_ONCE = 500
_RUNNING = (CallStatus.RUNNING, CallStatus.CANCELLING)
_GIVEN_UP = (
    CallStatus.TIMED_OUT,
    CallStatus.CANCELLED,
    CallStatus.ABANDONED,
    CallStatus.REPAIRED,
)


def propose(calls: Sequence[core.ToolCall], *, group: str, step: int) -> None:
    """Insert the calls of one step as pending, known before any of them runs (invariant 10)."""
    ToolCall.objects.bulk_create(_pending(calls, group=group, step=step))


def forget(group: str, *, with_decisions: bool = False) -> None:
    """Delete the calls of a group, and what they asked for from their approvals; who decided what is kept."""
    ToolCall.objects.filter(group=group).delete()
    approvals = Approval.objects.filter(group=group)
    if with_decisions:
        approvals.delete()
    else:
        approvals.exclude(decision="").update(input={}, reason="")


def note_asked(*, group: str, call_id: str) -> bool:
    """Note that the call waits for a person's decision; False if it was closed meanwhile."""
    waits = CallStatus.AWAITING_APPROVAL
    return _where(group, call_id, before=waits).update(status=waits) == 1


def note_approved(*, group: str, call_id: str) -> bool:
    """Note that a person let the waiting call go on; False if it does not wait for one."""
    waiting = ToolCall.objects.filter(
        group=group, call_id=call_id, status=CallStatus.AWAITING_APPROVAL
    )
    return waiting.update(status=CallStatus.PENDING) == 1


def note_queued(*, group: str, call_id: str, waits_for: Obstacle) -> bool:
    """Note what the call waits for; False if it does not wait."""
    waiting = ToolCall.objects.filter(group=group, call_id=call_id, status=CallStatus.PENDING)
    return waiting.update(waits_for=obstacle_fields(waits_for)) == 1


def start(call: LiveCall, *, group: str) -> bool:
    """Note that the call is about to run, with the limits it runs under; False if it was closed meanwhile."""
    policy = call.policy
    changed = _where(group, call.id, before=CallStatus.RUNNING).update(
        status=CallStatus.RUNNING,
        started_at=timezone.now(),
        queued_ms=to_ms(call.queued),
        timeout_ms=limit_ms(call.timeout),
        timeout_source=call.timeout_source or "",
        asked_timeout_ms=None
        if policy is None or policy.capped_from is None
        else limit_ms(policy.capped_from),
        idle_timeout_ms=limit_ms(call.idle_timeout),
    )
    return changed == 1


def note_cancelling(*, group: str, call_id: str) -> bool:
    """Note that the running call was asked to stop; False if it does not run."""
    return (
        _where(group, call_id, before=CallStatus.CANCELLING).update(status=CallStatus.CANCELLING)
        == 1
    )


def note_progress(*, group: str, call_id: str, progress: Mapping[str, Any]) -> bool:
    """Keep the last progress of a running call."""
    running = ToolCall.objects.filter(group=group, call_id=call_id, status__in=_RUNNING)
    return running.update(progress=storable_json(dict(progress))) == 1


def move_deadline(
    *,
    group: str,
    call_id: str,
    change: Mapping[str, Any],
    timeout_ms: int,
    timeout_source: str,
    idle_timeout_ms: int,
) -> bool:
    """Note that the limits of a running call were changed (T9): the new ones, and `change` in the list of changes."""
    running = ToolCall.objects.select_for_update().filter(
        group=group, call_id=call_id, status__in=_RUNNING
    )
    row = running.only("deadline_changes").first()
    if row is None:
        return False
    moved = ToolCall.objects.filter(pk=row.pk, status__in=_RUNNING).update(
        deadline_changes=[*row.deadline_changes, dict(change)],
        timeout_ms=timeout_ms,
        timeout_source=timeout_source,
        idle_timeout_ms=idle_timeout_ms,
    )
    return moved == 1


def end(*, group: str, call_id: str, outcome: ToolOutcome) -> bool:
    """Give the call its one outcome; False if it had one already, or if no such call is open."""
    _require_terminal(outcome)
    return (
        _where(group, call_id, before=outcome.status).update(**_ending(outcome, at=timezone.now()))
        == 1
    )


def settle_late(*, group: str, call_id: str, late: LateSettlement) -> bool:
    """Record what the body of a call that was given up did after all (T11), once; the result stays as it was."""
    ended = ToolCall.objects.filter(
        group=group, call_id=call_id, status__in=_GIVEN_UP, late_kind__in=("", UNWATCHED)
    )
    return (
        ended.update(
            late_kind=late.kind, late_text=storable_text(late.text), late_after_ms=to_ms(late.after)
        )
        == 1
    )


def watch_no_more(calls: Sequence[ToolCall], *, kind: str = UNWATCHED) -> None:
    """Note of given-up calls that nobody watches for their ends any more: how they ended, or that it was not seen."""
    for start in range(0, len(calls), _AT_ONCE):
        ids = [call.pk for call in calls[start : start + _AT_ONCE]]
        ToolCall.objects.filter(pk__in=ids, late_kind="").update(late_kind=kind)


def close_open(*, group: str, close: Callable[[ToolCall], ToolOutcome]) -> list[ToolCall]:
    """End every open call of a group with the outcome that `close` finds for it; return them in call order.

    Raises:
        IllegalTransition: `close` chose a status that may not follow; nothing was written.
    """
    open_calls = ToolCall.objects.filter(group=group, status__in=OPEN_STATUSES)
    rows = list(open_calls.select_for_update().order_by("step", "position"))
    changed = {"is_synthetic", "timeout_ms", "timeout_source"}
    at = timezone.now()
    for row in rows:
        outcome = close(row)
        core.check_move(CallStatus(row.status), outcome.status)
        _require_terminal(outcome)
        ending = {**_ending(outcome, at=at), "is_synthetic": True}
        changed |= ending.keys()
        for name, value in ending.items():
            setattr(row, name, value)
    open_calls.bulk_update(rows, sorted(changed))
    return rows


def deadline_change(change: DeadlineChange, *, at: datetime | None = None) -> dict[str, Any]:
    """Return a change of a running call's limit as it is stored."""
    return {
        "at": (at or timezone.now()).isoformat(),
        "from_ms": limit_ms(change.from_timeout),
        "to_ms": limit_ms(change.to_timeout),
        "from_idle_ms": limit_ms(change.from_idle_timeout),
        "to_idle_ms": limit_ms(change.to_idle_timeout),
        "source": change.source.value,
        "by": change.by,
    }


def obstacle_fields(obstacle: Obstacle) -> dict[str, Any]:
    """Return what a call waits for as it is stored and sent."""
    return {
        "kind": obstacle.kind.value,
        "tool_id": obstacle.call_id,
        "tool_name": obstacle.tool_name,
    }


def progress_fields(progress: Progress | None) -> dict[str, Any]:
    """Return a progress as it is stored; its output is not: it is part of the result."""
    if progress is None:
        return {}
    return {"message": progress.message, "progress": progress.progress, "total": progress.total}


class Recorder:
    """The executor's observer that keeps the calls of one `group` as rows; for use without turns (B8).

    A call that was not proposed is inserted when it starts or ends.
    """

    def __init__(self, *, group: str, step: int = 0) -> None:
        self._group = group
        self._step = step
        self._moves: Counter[str] = Counter()
        self._start = database_door(transaction.atomic(self._insert_and_start))
        self._end = database_door(transaction.atomic(self._insert_and_end))
        self._move_deadline = database_door(transaction.atomic(move_deadline))

    async def call_queued(self, call: LiveCall) -> None:
        """Keep what the call waits for, if it has a row by now."""
        if call.waits_for is not None:
            await _note_queued(group=self._group, call_id=call.id, waits_for=call.waits_for)

    async def call_started(self, call: LiveCall) -> None:
        """Write the start ahead of the run. Raise `IllegalTransition` if the call has ended already."""
        await self._start(call)

    async def call_progressed(self, call: LiveCall) -> None:
        """Keep the last progress."""
        await _note_progress(
            group=self._group, call_id=call.id, progress=progress_fields(call.last_progress)
        )

    async def deadline_moved(self, call: LiveCall) -> None:
        """Keep the last change of the limit."""
        number = self._moves[call.id]  # a second change may have come while the first one waited
        self._moves[call.id] += 1
        change = call.deadline_changes[number]
        await self._move_deadline(
            group=self._group,
            call_id=call.id,
            change=deadline_change(change),
            timeout_ms=limit_ms(change.to_timeout),
            timeout_source=change.source.value,
            idle_timeout_ms=limit_ms(change.to_idle_timeout),
        )

    async def call_cancelling(self, call: LiveCall) -> None:
        """Show that a stop was asked for."""
        await _note_cancelling(group=self._group, call_id=call.id)

    async def call_ended(self, call: LiveCall, outcome: ToolOutcome) -> None:
        """Write the outcome."""
        await self._end(call, outcome)

    async def call_settled_late(self, call: LiveCall, late: LateSettlement) -> None:
        """Write the late settlement."""
        await _settle_late(group=self._group, call_id=call.id, late=late)

    def _insert_and_start(self, call: LiveCall) -> None:
        self._insert(call)
        if not start(call, group=self._group):
            raise IllegalTransition(f"The tool call {call.id!r} is not waiting to start.")

    def _insert_and_end(self, call: LiveCall, outcome: ToolOutcome) -> None:
        if outcome.status in (CallStatus.DENIED, CallStatus.EXPIRED):
            self._insert(call)
            note_asked(group=self._group, call_id=call.id)
        if not end(group=self._group, call_id=call.id, outcome=outcome):
            self._insert(call)
            end(group=self._group, call_id=call.id, outcome=outcome)

    def _insert(self, call: LiveCall) -> None:
        rows = _pending([call.call], group=self._group, step=self._step, tool=call.tool)
        ToolCall.objects.bulk_create(rows, ignore_conflicts=True)


_note_queued = database_door(note_queued)
_note_progress = database_door(note_progress)
_note_cancelling = database_door(note_cancelling)
_settle_late = database_door(settle_late)


def _pending(
    calls: Iterable[core.ToolCall], *, group: str, step: int, tool: Tool | None = None
) -> list[ToolCall]:
    now = timezone.now()
    return [
        ToolCall(
            call_id=call.id,
            scope=call.scope,
            group=group,
            step=step,
            position=call.position,
            tool_name=storable_text(call.tool_name, limit=_NAME_LENGTH),
            input=storable_json(dict(call.input)),
            requested_at=now,
            **_declared(tool or _registered(call.tool_name)),
        )
        for call in calls
    ]


def _registered(tool_name: str) -> Tool | None:
    return registry.get(tool_name) if tool_name in registry else None


def _declared(tool: Tool | None) -> dict[str, Any]:
    if tool is None:
        return {}
    return {
        "isolation": tool.isolation,
        "concurrency": tool.concurrency,
        "cancellable": tool.cancellable,
    }


def _where(group: str, call_id: str, *, before: CallStatus) -> QuerySet[ToolCall]:
    """The call, if it is in a status that `before` may follow: the compare of every compare-and-set."""
    sources = [status for status, following in ALLOWED_MOVES.items() if before in following]
    return ToolCall.objects.filter(group=group, call_id=call_id, status__in=sources)


def _require_terminal(outcome: ToolOutcome) -> None:
    if not outcome.status.is_terminal:
        raise IllegalTransition(f"{outcome.status!r} is no end of a tool call.")


def _ending(outcome: ToolOutcome, *, at: datetime) -> dict[str, Any]:
    # How long a body ran whose process was lost is not known: that is not "no time at all".
    ran = outcome.disposition is core.Disposition.SETTLED or outcome.duration > 0
    cause = outcome.ended_by
    ending: dict[str, Any] = {
        "status": outcome.status,
        "error_type": outcome.error_type or "",
        "disposition": outcome.disposition,
        "result": storable_text(outcome.result),
        "is_error": outcome.is_error,
        "limit_reached": outcome.limit_reached or "",
        "detail": storable_text(outcome.detail),
        "ended_at": at,
        "queued_ms": to_ms(outcome.queued),
        "duration_ms": to_ms(outcome.duration) if ran else None,
        "ended_by_reason": cause.reason if cause else "",
        "ended_by_source": cause.source if cause else "",
        "ended_by_name": cause.by if cause else "",
    }
    if outcome.timeout_source:
        ending["timeout_ms"] = limit_ms(outcome.timeout)
        ending["timeout_source"] = outcome.timeout_source
    return ending
