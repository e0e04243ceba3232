"""Start here for the rows of tool calls: creates them, and records starts, new limits, ends and late settlements (sync
ORM).

The caller opens the transaction, so that a call's row and its other rows change together. Every change of status is a
compare-and-set on the statuses that allow it, so that only one of two endings is stored. `Recorder` is the executor's
observer for projects that use governance alone (B8).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from django.db.models import QuerySet

from governance import activity, db_clock
from governance.core import calls as core_calls
from governance.core.calls import (
    ALLOWED_TRANSITIONS,
    OPEN_STATUSES,
    RUNNING_STATUSES,
    CallStatus,
    Effects,
    ErrorType,
    LateSettlement,
    Progress,
    ToolOutcome,
)
from governance.core.deadline import DeadlineChange
from governance.core.exceptions import IllegalTransition
from governance.core.excerpts import last_lines
from governance.core.limiter import Obstacle
from governance.core.live_call import LiveCall
from governance.core.outcomes import unfinished_outcome
from governance.core.registry import LONGEST_TITLE, registry
from governance.core.tools import Tool
from governance.db import atomic, run_in_db_thread
from governance.durations import limit_ms, to_ms
from governance.models import Approval, ToolCall
from governance.sanitize import sanitize_json, sanitize_text

CallKey = tuple[str, str]  # the group and the id of a call

UNWATCHED = "unwatched"  # stored in place of a late settlement if the body's end cannot be observed
TAIL_LINES = 6
_BATCH_SIZE = 500
_GIVEN_UP = (
    CallStatus.TIMED_OUT,
    CallStatus.CANCELLED,
    CallStatus.ABANDONED,
    CallStatus.REPAIRED,
)
_NAME_LENGTH = 128
_SERVER_LENGTH = 100


def insert_pending(
    calls: Sequence[core_calls.ToolCall], *, group: str, step: int
) -> list[ToolCall]:
    """Insert the calls of one step as pending, before any of them runs (invariant 10). Return their rows."""
    rows = pending_rows(calls, group=group, step=step)
    return ToolCall.objects.bulk_create(rows)


def delete_calls(groups: Sequence[str], *, with_decisions: bool = False) -> int:
    """Delete the calls of groups, and the inputs and reasons of their approvals. The decisions are kept unless
    `with_decisions` is set. Return the number of deleted calls.
    """
    deleted, _by_model = ToolCall.objects.filter(group__in=groups).delete()
    activity.remove_notes(groups)
    approvals = Approval.objects.filter(group__in=groups)
    if with_decisions:
        approvals.delete()
    else:
        approvals.exclude(decision="").update(input={}, reason="")
        _empty_forms(approvals.exclude(decision=""))
    return deleted


def empty_calls(groups: Sequence[str]) -> None:
    """Delete the inputs, results and questions of all calls in these groups. The rows are kept, and still show that the
    calls ran and how they ended.
    """
    ToolCall.objects.filter(group__in=groups).update(
        input={}, result="", images=[], detail="", progress={}, late_text=""
    )
    approvals = Approval.objects.filter(group__in=groups)
    approvals.update(input={}, host="", reason="")
    _empty_forms(approvals)
    activity.remove_notes(groups)


def _empty_forms(approvals: QuerySet[Approval]) -> None:
    approvals.filter(form__isnull=False).update(form={"message": "", "fields": []}, answers=None)


def rename_person(old: str, new: str) -> None:
    """Rename a person in the rows of calls that they ended or allowed, or whose limits they changed."""
    for name in ("ended_by_name", "allowed_earlier_by"):
        ToolCall.objects.filter(**{name: old}).update(**{name: new})
    moved = ToolCall.objects.exclude(deadline_changes=[]).only("deadline_changes")
    for call in moved.iterator():
        changes = call.deadline_changes
        if any(change["by"] == old for change in changes):
            renamed = [{**it, "by": new if it["by"] == old else it["by"]} for it in changes]
            ToolCall.objects.filter(pk=call.pk).update(deadline_changes=renamed)


def record_question(*, group: str, call_id: str) -> bool:
    """Record that the call waits for a decision. Return False if the call was closed."""
    waits = CallStatus.AWAITING_APPROVAL
    return eligible_for(waits, call_id, group=group).update(status=waits) == 1


def record_approval(*, group: str, call_id: str) -> bool:
    """Record that a person approved the waiting call. Return False if the call is not waiting."""
    open_calls = ToolCall.objects.filter(
        group=group, call_id=call_id, status=CallStatus.AWAITING_APPROVAL
    )
    return open_calls.update(status=CallStatus.PENDING) == 1


def record_earlier_approval(*, group: str, call_id: str, by: str) -> None:
    """Record that the call needs no question, because this person has allowed its tool for the scope."""
    ToolCall.objects.filter(group=group, call_id=call_id).update(allowed_earlier_by=by[:150])


def record_queued(obstacles: Mapping[str, Obstacle], *, group: str) -> list[ToolCall]:
    """Record the obstacles of waiting calls, by call id. Return the rows of these calls."""
    queued_calls = ToolCall.objects.filter(
        group=group, call_id__in=list(obstacles), status=CallStatus.PENDING
    )
    rows = lock(queued_calls)
    for row in rows:
        row.waits_for = obstacle_fields(obstacles[row.call_id])
    ToolCall.objects.bulk_update(rows, ["waits_for"], batch_size=_BATCH_SIZE)
    return rows


def record_start(*calls: LiveCall, group: str) -> list[ToolCall]:
    """Record that calls are about to run, with their limits. Return the rows of those that were not closed."""
    calls_by_id = {call.id: call for call in calls}
    rows = lock(eligible_for(CallStatus.RUNNING, *calls_by_id, group=group))
    at = db_clock.now()
    _write([(row, _started(calls_by_id[row.call_id], at=at)) for row in rows])
    return rows


def record_cancelling(*call_ids: str, group: str) -> int:
    """Record that running calls are being cancelled. Return how many calls were changed."""
    running = eligible_for(CallStatus.CANCELLING, *call_ids, group=group)
    return running.update(status=CallStatus.CANCELLING)


def record_progress(progress: Mapping[CallKey, Mapping[str, Any]]) -> set[CallKey]:
    """Store the last progress of calls, by group and call id. Return the calls that are still running."""
    groups, call_ids = {group for group, _ in progress}, {call_id for _, call_id in progress}
    running = ToolCall.objects.filter(
        group__in=groups, call_id__in=call_ids, status__in=RUNNING_STATUSES
    ).only("group", "call_id", "progress")
    rows = [row for row in lock(running) if (row.group, row.call_id) in progress]
    for row in rows:
        row.progress = sanitize_json(dict(progress[row.group, row.call_id]))
    ToolCall.objects.bulk_update(rows, ["progress"], batch_size=_BATCH_SIZE)
    return {(row.group, row.call_id) for row in rows}


def record_deadline(change: DeadlineChange, *, group: str, call_id: str) -> ToolCall | None:
    """Record new limits of a running call (T9), and append the change to its list.

    Return the row with its new limits, or None if the call is not running.
    """
    running = ToolCall.objects.filter(group=group, call_id=call_id, status__in=RUNNING_STATUSES)
    row = running.select_for_update().defer(*ToolCall.LONG_COLUMNS).first()
    if row is None:
        return None
    timeout_ms, idle_timeout_ms = limit_ms(change.to_timeout), limit_ms(change.to_idle_timeout)
    entry = {
        "at": db_clock.now().isoformat(),
        "from_ms": limit_ms(change.from_timeout),
        "to_ms": timeout_ms,
        "from_idle_ms": limit_ms(change.from_idle_timeout),
        "to_idle_ms": idle_timeout_ms,
        "source": change.source.value,
        "by": change.by,
    }
    moved = {
        "deadline_changes": [*row.deadline_changes, entry],
        "timeout_ms": timeout_ms,
        "timeout_source": change.source.value,
        "idle_timeout_ms": idle_timeout_ms,
    }
    _write([(row, moved)])
    return row


def record_end(outcomes: Mapping[str, ToolOutcome], *, group: str) -> list[ToolCall]:
    """Store the outcome of each call, by call id. Return the rows of calls that were open and could end that way."""
    open_rows = open_in(group).filter(call_id__in=list(outcomes))
    rows = [row for row in lock(open_rows) if may_end(row, outcomes[row.call_id])]
    write_end(rows, outcomes)
    return rows


def record_late_settlement(*, group: str, call_id: str, late: LateSettlement) -> bool:
    """Record how the body of an abandoned call ended (T11). Return False if that was already recorded.

    The result of the call does not change.
    """
    ended_rows = ToolCall.objects.filter(
        group=group, call_id=call_id, status__in=_GIVEN_UP, late_kind__in=("", UNWATCHED)
    )
    return (
        ended_rows.update(
            late_kind=late.kind, late_text=sanitize_text(late.text), late_after_ms=to_ms(late.after)
        )
        == 1
    )


def stop_watching(calls: Sequence[ToolCall], *, kind: str = UNWATCHED) -> None:
    """Store how these abandoned calls ended (`kind`); by default, that their end was not observed."""
    for start in range(0, len(calls), _BATCH_SIZE):
        ids = [call.pk for call in calls[start : start + _BATCH_SIZE]]
        ToolCall.objects.filter(pk__in=ids, late_kind="").update(late_kind=kind)


def close_open(
    *,
    group: str,
    close: Callable[[ToolCall], ToolOutcome],
    known_outcomes: Mapping[str, ToolOutcome] | None = None,
) -> list[ToolCall]:
    """End every open call of a group. Return the rows of these calls in call order.

    `known_outcomes` contains the outcomes that are known but not written yet, by call id; `close` returns the others.

    Raises:
        IllegalTransition: `close` returned a status that is not allowed; nothing was written.
    """
    rows = lock(open_in(group))
    outcomes = dict(known_outcomes or {})
    for row in rows:
        if row.call_id in outcomes and may_end(row, outcomes[row.call_id]):
            continue
        outcomes[row.call_id] = closing = close(row)
        core_calls.check_transition(CallStatus(row.status), closing.status)
        row.is_synthetic = True
    write_end(rows, outcomes)
    return rows


def obstacle_fields(obstacle: Obstacle) -> dict[str, Any]:
    """Return an obstacle in its stored format, which is also the wire format."""
    return {
        "kind": obstacle.kind.value,
        "tool_id": obstacle.call_id,
        "tool_name": obstacle.tool_name,
    }


def progress_fields(progress: Progress | None, *, output: str = "") -> dict[str, Any]:
    """Return a progress report in its stored format, with only the last lines of the output, because the whole output
    becomes part of the result.
    """
    if progress is None:
        return {}
    fields = {
        "message": str(progress.message),
        "progress": _number(progress.progress),
        "total": _number(progress.total),
    }
    return {**fields, "tail": last_lines(output, TAIL_LINES)} if output else fields


def _number(reported: object) -> float | None:
    """Return a number that a tool has reported, or None if it is not a valid number. An invalid number would also
    prevent the progress of other calls from being stored, because they share a statement.
    """
    if isinstance(reported, int | float) and abs(reported) < 1e18:  # excludes NaN
        return reported
    return None


def progress_of(call: LiveCall) -> dict[str, Any]:
    """Return the last progress of a call in its stored format."""
    return progress_fields(call.last_progress, output=call.partial_output)


def pending_rows(
    calls: Iterable[core_calls.ToolCall], *, group: str, step: int, tool: Tool | None = None
) -> list[ToolCall]:
    now = db_clock.now()
    return [
        ToolCall(
            call_id=call.id,
            scope=call.scope,
            group=group,
            step=step,
            position=call.position,
            tool_name=sanitize_text(call.tool_name, limit=_NAME_LENGTH),
            input=call.input,
            requested_at=now,
            **_declared(tool or _registered(call.tool_name)),
        )
        for call in calls
    ]


def display_fields(tool: Tool | None) -> dict[str, str]:
    """Return the columns that are shown beside the name of a tool: its title and its MCP server."""
    if tool is None:
        return {}
    return {
        "tool_title": sanitize_text(tool.title, limit=LONGEST_TITLE),
        "tool_server": sanitize_text(tool.server, limit=_SERVER_LENGTH),
    }


def eligible_for(status: CallStatus, *call_ids: str, group: str) -> QuerySet[ToolCall]:
    """Return those of the calls whose status may change to `status`. Every compare-and-set uses this condition."""
    sources = [source for source, following in ALLOWED_TRANSITIONS.items() if status in following]
    return ToolCall.objects.filter(group=group, call_id__in=call_ids, status__in=sources)


def open_in(group: str) -> QuerySet[ToolCall]:
    return ToolCall.objects.filter(group=group, status__in=OPEN_STATUSES)


def lock(rows: QuerySet[ToolCall]) -> list[ToolCall]:
    """Lock the rows until the transaction ends, and return them in call order."""
    return list(rows.select_for_update().order_by("step", "position"))


def may_end(row: ToolCall, outcome: ToolOutcome) -> bool:
    """Return whether a call with this status may have this outcome."""
    return outcome.status in ALLOWED_TRANSITIONS.get(CallStatus(row.status), ())


def write_end(rows: Sequence[ToolCall], outcomes: Mapping[str, ToolOutcome]) -> None:
    """Write the outcomes of these calls. Raise `IllegalTransition`, and write nothing, if one status is not terminal."""
    at = db_clock.now()
    _write(
        [
            (
                row,
                {
                    **_ended(outcomes[row.call_id], at=at),
                    "effects": effects_of(row, outcomes[row.call_id]),
                    "is_synthetic": row.is_synthetic,
                },
            )
            for row in rows
        ]
    )


def effects_of(row: ToolCall, outcome: ToolOutcome) -> str:
    """Return the `Effects` of a call with this outcome, according to what its tool declared when the call started."""
    side_effects = row.effects != Effects.NONE
    if row.started_at is None and (tool := _registered(row.tool_name)) is not None:
        # A history has a result for the call, although its start was not recorded.
        side_effects = tool.side_effects
    return str(Effects.of_ended(outcome.status, outcome.disposition, side_effects=side_effects))


def _write(changes: Sequence[tuple[ToolCall, dict[str, Any]]]) -> None:
    """Write new values of calls. Rows with equal values share a statement.

    `bulk_update` needs a single statement, but with so many columns, building that statement takes longer than running
    one statement per row.
    """
    alike: dict[str, tuple[dict[str, Any], list[int]]] = {}
    for row, values in changes:
        for name, value in values.items():
            setattr(row, name, value)
        alike.setdefault(repr(values), (values, []))[1].append(row.pk)
    for values, pks in alike.values():
        ToolCall.objects.filter(pk__in=pks).update(**values)


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
        "effects": str(Effects.of_running(side_effects=bool(call.tool and call.tool.side_effects))),
    }


def _ended(outcome: ToolOutcome, *, at: datetime) -> dict[str, Any]:
    if not outcome.status.is_terminal:
        raise IllegalTransition(f"{outcome.status!r} is no end of a tool call.")
    # The duration of a body whose process was lost is unknown, so it must not be stored as zero.
    ran = outcome.disposition is core_calls.Disposition.SETTLED or outcome.duration > 0
    cause = outcome.ended_by
    columns: dict[str, Any] = {
        **outcome_columns(outcome),
        "images": [image.to_json() for image in outcome.images],
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
        columns["timeout_ms"] = limit_ms(outcome.timeout)
        columns["timeout_source"] = str(outcome.timeout_source)
    return columns


def outcome_columns(outcome: ToolOutcome) -> dict[str, Any]:
    """Return the columns for the status and the result of an outcome, without its times, limits and causes."""
    return {
        "status": str(outcome.status),
        "error_type": str(outcome.error_type or ""),
        "disposition": str(outcome.disposition),
        "result": sanitize_text(outcome.result),
        "is_error": outcome.is_error,
    }


class SettledResult(Protocol):
    """A result in a repaired history."""

    @property
    def content(self) -> str:
        """The text that the model reads."""
        ...

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        ...

    @property
    def is_synthetic(self) -> bool:
        """Whether the repair wrote the result, and not the tool."""
        ...


def settle_repaired(
    calls: Sequence[core_calls.ToolCall],
    *,
    results: Mapping[str, SettledResult],
    group: str,
    step: int,
) -> None:
    """Store the results that a repaired history has for the calls of a step, and create missing rows (H3).

    A real result in a row is kept, and a synthetic one is replaced if the history has a real result.
    """
    known_calls = {
        row.call_id: row for row in ToolCall.objects.select_for_update().filter(group=group)
    }
    insert_pending([call for call in calls if call.id not in known_calls], group=group, step=step)
    for row in ToolCall.objects.filter(group=group, call_id__in=[call.id for call in calls]):
        result = results.get(row.call_id)
        is_open = not CallStatus(row.status).is_terminal
        if result is not None and (is_open or (row.is_synthetic and not result.is_synthetic)):
            ToolCall.objects.filter(pk=row.pk).update(step=step, **_repaired_columns(row, result))


def _repaired_columns(row: ToolCall, result: SettledResult) -> dict[str, object]:
    outcome = _outcome_of(row.tool_name, result)
    return {
        **outcome_columns(replace(outcome, result=result.content)),
        "effects": effects_of(row, outcome),
        "is_synthetic": result.is_synthetic,
        "ended_at": db_clock.now(),
    }


def _outcome_of(tool_name: str, result: SettledResult) -> ToolOutcome:
    if result.is_synthetic:
        return unfinished_outcome(tool_name, CallStatus.RUNNING, lost="its process was lost")
    if not result.is_error:
        return ToolOutcome(status=CallStatus.SUCCEEDED, result=result.content)
    failed, error_type = CallStatus.FAILED, ErrorType.EXECUTION_ERROR
    return ToolOutcome(status=failed, result=result.content, is_error=True, error_type=error_type)


class Recorder:
    """An observer for the executor that stores the calls of one `group` as rows, for projects without turns (B8).

    A call without a row is inserted when it starts or ends.
    """

    def __init__(self, *, group: str, step: int = 0) -> None:
        self._group = group
        self._step = step
        self._start = run_in_db_thread(atomic()(self._insert_and_start))
        self._end = run_in_db_thread(atomic()(self._insert_and_end))
        self._move_deadline = run_in_db_thread(atomic()(record_deadline))

    async def call_queued(self, call: LiveCall) -> None:
        """Store the obstacle of a waiting call, if it already has a row."""
        if call.waits_for is not None:
            await _note_queued({call.id: call.waits_for}, group=self._group)

    async def call_started(self, call: LiveCall) -> None:
        """Record the start before the body runs. Raise `IllegalTransition` if the call has ended already."""
        await self._start(call)

    async def call_progressed(self, call: LiveCall) -> None:
        """Store the last progress of the call."""
        await _note_progress({(self._group, call.id): progress_of(call)})

    async def deadline_moved(self, call: LiveCall, change: DeadlineChange) -> None:
        """Store the new limits of the call."""
        await self._move_deadline(change, group=self._group, call_id=call.id)

    async def call_cancelling(self, call: LiveCall) -> None:
        """Record that the call is being cancelled."""
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
        rows = pending_rows([call.call], group=self._group, step=self._step, tool=call.tool)
        ToolCall.objects.bulk_create(rows, ignore_conflicts=True)


_note_queued = run_in_db_thread(atomic()(record_queued))
_note_progress = run_in_db_thread(atomic()(record_progress))
_note_cancelling = run_in_db_thread(record_cancelling)
_settle_late = run_in_db_thread(record_late_settlement)
