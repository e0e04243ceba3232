"""Writes tool calls as rows: pending, started, moved, ended once, settled late.

The caller opens the transaction, so that a call's row and its other rows change together. Every change of status is a
compare-and-set on the statuses that allow it. One of two endings wins, and the other learns it. `Recorder` is the
executor's observer for projects that use governance alone (B8).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from governance import call_store
from governance.bulk_updates import update_each
from governance.core import calls as core_calls
from governance.core.calls import (
    RUNNING_STATUSES,
    CallStatus,
    LateSettlement,
    Progress,
    ToolOutcome,
)
from governance.core.deadline import DeadlineChange
from governance.core.exceptions import IllegalTransition
from governance.core.excerpts import last_lines
from governance.core.limiter import Obstacle
from governance.core.live_call import LiveCall
from governance.db import run_in_db_thread
from governance.durations import limit_ms, to_ms
from governance.models import Approval, ToolCall
from governance.sanitize import sanitize_json, sanitize_text

CallKey = tuple[str, str]  # the group and the id of a call

UNWATCHED = "unwatched"  # instead of what a body did late: its end cannot be seen
TAIL_LINES = 6
_BATCH_SIZE = 500
_GIVEN_UP = (
    CallStatus.TIMED_OUT,
    CallStatus.CANCELLED,
    CallStatus.ABANDONED,
    CallStatus.REPAIRED,
)


def insert_pending(
    calls: Sequence[core_calls.ToolCall], *, group: str, step: int
) -> list[ToolCall]:
    """Insert the calls of one step as pending, known before any of them runs (invariant 10). Return their rows.

    Who owns the calls may hold the rows, and hand them in again when the calls start and end.
    """
    rows = call_store.pending_rows(calls, group=group, step=step)
    call_store.INSERT.many(rows)
    return rows


def delete_calls(groups: Sequence[str], *, with_decisions: bool = False) -> int:
    """Delete the calls of groups, and the inputs and reasons of their approvals; the decisions stay. Count the calls."""
    deleted, _by_model = ToolCall.objects.filter(group__in=groups).delete()
    approvals = Approval.objects.filter(group__in=groups)
    if with_decisions:
        approvals.delete()
    else:
        approvals.exclude(decision="").update(input={}, reason="")
    return deleted


def empty_calls(groups: Sequence[str]) -> None:
    """Delete what calls of groups were given, came to, and were asked about. That they ran, and how they ended, stays."""
    ToolCall.objects.filter(group__in=groups).update(
        input={}, result="", images=[], detail="", progress={}, late_text=""
    )
    Approval.objects.filter(group__in=groups).update(input={}, host="", reason="")


def record_question(*, group: str, call_id: str) -> bool:
    """Record that the call waits for a decision. Return False if it was closed."""
    waits = CallStatus.AWAITING_APPROVAL
    return call_store.eligible_for(waits, call_id, group=group).update(status=waits) == 1


def record_approval(*, group: str, call_id: str) -> bool:
    """Record that a person approved the waiting call. Return False if it does not wait."""
    waiting = ToolCall.objects.filter(
        group=group, call_id=call_id, status=CallStatus.AWAITING_APPROVAL
    )
    return waiting.update(status=CallStatus.PENDING) == 1


def record_earlier_approval(*, group: str, call_id: str, by: str) -> None:
    """Record that nobody is asked about the call, since this person has allowed its tool for the scope."""
    ToolCall.objects.filter(group=group, call_id=call_id).update(allowed_earlier_by=by[:150])


def record_queued(obstacles: Mapping[str, Obstacle], *, group: str) -> list[ToolCall]:
    """Record what calls wait for, by their ids. Return the rows that wait."""
    waiting = ToolCall.objects.filter(
        group=group, call_id__in=list(obstacles), status=CallStatus.PENDING
    )
    rows = call_store.lock(waiting)
    for row in rows:
        row.waits_for = obstacle_fields(obstacles[row.call_id])
    update_each(rows, ["waits_for"])
    return rows


def record_start(
    *calls: LiveCall, group: str, held: Mapping[str, ToolCall] | None = None
) -> list[ToolCall]:
    """Record that calls are about to run, with their limits. Return their rows, without calls that were closed.

    Where all rows are `held`, by their ids, they are not read.
    """
    wanted = {call.id: call for call in calls}
    if held is not None and held.keys() >= wanted.keys():
        return call_store.start_held([held[call_id] for call_id in wanted], wanted)
    rows = call_store.lock(call_store.eligible_for(CallStatus.RUNNING, *wanted, group=group))
    call_store.write_start(rows, wanted)
    return rows


def record_cancelling(*call_ids: str, group: str) -> int:
    """Record that running calls were asked to stop. Return how many of them run."""
    running = call_store.eligible_for(CallStatus.CANCELLING, *call_ids, group=group)
    return running.update(status=CallStatus.CANCELLING)


def record_progress(progress: Mapping[CallKey, Mapping[str, Any]]) -> set[CallKey]:
    """Store the last progress of calls, by group and id. Return the calls that run."""
    groups, call_ids = {group for group, _ in progress}, {call_id for _, call_id in progress}
    found = ToolCall.objects.filter(
        group__in=groups, call_id__in=call_ids, status__in=RUNNING_STATUSES
    ).only("group", "call_id", "progress")
    rows = [row for row in call_store.lock(found) if (row.group, row.call_id) in progress]
    for row in rows:
        row.progress = sanitize_json(dict(progress[row.group, row.call_id]))
    update_each(rows, ["progress"])
    return {(row.group, row.call_id) for row in rows}


def record_deadline(
    *,
    group: str,
    call_id: str,
    change: Mapping[str, Any],
    timeout_ms: int,
    timeout_source: str,
    idle_timeout_ms: int,
) -> bool:
    """Record new limits of a running call (T9), and append `change` to its list."""
    running = ToolCall.objects.select_for_update().filter(
        group=group, call_id=call_id, status__in=RUNNING_STATUSES
    )
    row = running.only("deadline_changes").first()
    if row is None:
        return False
    moved = ToolCall.objects.filter(pk=row.pk, status__in=RUNNING_STATUSES).update(
        deadline_changes=[*row.deadline_changes, dict(change)],
        timeout_ms=timeout_ms,
        timeout_source=timeout_source,
        idle_timeout_ms=idle_timeout_ms,
    )
    return moved == 1


def record_end(
    outcomes: Mapping[str, ToolOutcome],
    *,
    group: str,
    held: Mapping[str, ToolCall] | None = None,
) -> list[ToolCall]:
    """Give calls their one outcome, by id. Return the rows that were open and accepted it.

    Where all rows are `held`, by their ids, they are not read.
    """
    if held is not None and held.keys() >= outcomes.keys():
        return call_store.end_held([held[call_id] for call_id in outcomes], outcomes)
    wanted = call_store.open_in(group).filter(call_id__in=list(outcomes))
    rows = [
        row for row in call_store.lock(wanted) if call_store.may_end(row, outcomes[row.call_id])
    ]
    call_store.write_end(rows, outcomes)
    return rows


def record_late_settlement(*, group: str, call_id: str, late: LateSettlement) -> bool:
    """Record, once, how the body of an abandoned call ended (T11); the result does not change."""
    ended = ToolCall.objects.filter(
        group=group, call_id=call_id, status__in=_GIVEN_UP, late_kind__in=("", UNWATCHED)
    )
    return (
        ended.update(
            late_kind=late.kind, late_text=sanitize_text(late.text), late_after_ms=to_ms(late.after)
        )
        == 1
    )


def stop_watching(calls: Sequence[ToolCall], *, kind: str = UNWATCHED) -> None:
    """Record how these abandoned calls ended, or that their end was not seen."""
    for start in range(0, len(calls), _BATCH_SIZE):
        ids = [call.pk for call in calls[start : start + _BATCH_SIZE]]
        ToolCall.objects.filter(pk__in=ids, late_kind="").update(late_kind=kind)


def close_open(
    *,
    group: str,
    close: Callable[[ToolCall], ToolOutcome],
    known: Mapping[str, ToolOutcome] | None = None,
) -> list[ToolCall]:
    """End every open call of a group. Return them in call order.

    `known` has outcomes by id that are not written yet; `close` decides the others.

    Raises:
        IllegalTransition: `close` chose a status that may not follow; nothing was written.
    """
    rows = call_store.lock_open(group)
    outcomes = dict(known or {})
    for row in rows:
        if row.call_id in outcomes and call_store.may_end(row, outcomes[row.call_id]):
            continue
        outcomes[row.call_id] = closing = close(row)
        core_calls.check_transition(CallStatus(row.status), closing.status)
        row.is_synthetic = True
    call_store.write_end(rows, outcomes)
    return rows


def deadline_change(change: DeadlineChange) -> dict[str, Any]:
    """Return a change of limits as it is stored."""
    return {
        "at": timezone.now().isoformat(),
        "from_ms": limit_ms(change.from_timeout),
        "to_ms": limit_ms(change.to_timeout),
        "from_idle_ms": limit_ms(change.from_idle_timeout),
        "to_idle_ms": limit_ms(change.to_idle_timeout),
        "source": change.source.value,
        "by": change.by,
    }


def obstacle_fields(obstacle: Obstacle) -> dict[str, Any]:
    """Return an obstacle as it is stored and sent."""
    return {
        "kind": obstacle.kind.value,
        "tool_id": obstacle.call_id,
        "tool_name": obstacle.tool_name,
    }


def progress_fields(progress: Progress | None, *, output: str = "") -> dict[str, Any]:
    """Return a progress as it is stored. Of the output so far it has only the last lines: that is part of the result."""
    if progress is None:
        return {}
    fields = {
        "message": str(progress.message),
        "progress": _number(progress.progress),
        "total": _number(progress.total),
    }
    return {**fields, "tail": last_lines(output, TAIL_LINES)} if output else fields


def _number(reported: object) -> float | None:
    """Return what a tool has reported as a number, or None: the progress of other calls is stored with it."""
    if isinstance(reported, int | float) and abs(reported) < 1e18:  # which NaN is not
        return reported
    return None


def progress_of(call: LiveCall) -> dict[str, Any]:
    """Return the last progress of a call as it is stored."""
    return progress_fields(call.last_progress, output=call.partial_output)


class Recorder:
    """The executor's observer that stores the calls of one `group` as rows; for use without turns (B8).

    A call without a row is inserted when it starts or ends.
    """

    def __init__(self, *, group: str, step: int = 0) -> None:
        self._group = group
        self._step = step
        self._start = run_in_db_thread(transaction.atomic(self._insert_and_start))
        self._end = run_in_db_thread(transaction.atomic(self._insert_and_end))
        self._move_deadline = run_in_db_thread(transaction.atomic(record_deadline))

    async def call_queued(self, call: LiveCall) -> None:
        """Keep what the call waits for, if it has a row by now."""
        if call.waits_for is not None:
            await _note_queued({call.id: call.waits_for}, group=self._group)

    async def call_started(self, call: LiveCall) -> None:
        """Write the start ahead of the run. Raise `IllegalTransition` if the call has ended already."""
        await self._start(call)

    async def call_progressed(self, call: LiveCall) -> None:
        """Keep the last progress."""
        await _note_progress({(self._group, call.id): progress_of(call)})

    async def deadline_moved(self, call: LiveCall, change: DeadlineChange) -> None:
        """Keep the change of the limit."""
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
        await _note_cancelling(call.id, group=self._group)

    async def call_ended(self, call: LiveCall, outcome: ToolOutcome) -> None:
        await self._end(call, outcome)

    async def call_settled_late(self, call: LiveCall, late: LateSettlement) -> None:
        await _settle_late(group=self._group, call_id=call.id, late=late)

    def _insert_and_start(self, call: LiveCall) -> None:
        self._insert(call)
        if not record_start(call, group=self._group):
            raise IllegalTransition(f"The tool call {call.id!r} is not waiting to start.")

    def _insert_and_end(self, call: LiveCall, outcome: ToolOutcome) -> None:
        if outcome.status in (CallStatus.DENIED, CallStatus.EXPIRED):
            self._insert(call)
            record_question(group=self._group, call_id=call.id)
        if not record_end({call.id: outcome}, group=self._group):
            self._insert(call)
            record_end({call.id: outcome}, group=self._group)

    def _insert(self, call: LiveCall) -> None:
        rows = call_store.pending_rows(
            [call.call], group=self._group, step=self._step, tool=call.tool
        )
        ToolCall.objects.bulk_create(rows, ignore_conflicts=True)


_note_queued = run_in_db_thread(transaction.atomic(record_queued))
_note_progress = run_in_db_thread(transaction.atomic(record_progress))
_note_cancelling = run_in_db_thread(record_cancelling)
_settle_late = run_in_db_thread(record_late_settlement)
