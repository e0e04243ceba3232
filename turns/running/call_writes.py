"""What a turn's owner writes of its calls (sync ORM). Start, limit and end are each written for all calls that wait.

`held` are the rows of the calls of a step as the owner holds them. What it has written itself is not read again.
"""

from collections.abc import Sequence
from operator import attrgetter

from governance import (
    DeadlineChange,
    LiveCall,
    Obstacle,
    ToolCall,
    ToolOutcome,
    call_store,
    recorder,
)
from governance.durations import limit_ms
from governance.selectors import CallRow
from turns.calls.serializers import queued_event, result_events, start_event
from turns.cancelling import cancel_requests
from turns.core.events import TurnEvent
from turns.core.exceptions import Fenced
from turns.core.tool_events import ToolDeadline
from turns.core.turns import TurnStatus
from turns.models import Turn
from turns.storage.turn_lock import has_requests

Events = list[TurnEvent]
Held = dict[str, CallRow]


def note_queued(turn: Turn, items: Sequence[tuple[LiveCall, Obstacle]]) -> Events:
    obstacles = {call.id: obstacle for call, obstacle in items}
    rows = recorder.record_queued(obstacles, group=str(turn.pk))
    return [queued_event(row) for row in rows]


def insert_calls(turn: Turn, calls: Sequence[ToolCall], *, step: int) -> Held:
    """Store the calls of a step. Those whose starts are written with it are stored as running.

    `batch` are the items of this write by their changes. `begun` are the rows of the calls that have begun with it.
    """
    starting: dict[str, LiveCall] = {}
    if turn.status != TurnStatus.CANCELLING and not has_requests(turn):
        starting = {call.id: call for call, _ in getattr(turn, "batch", {}).get(start_calls, ())}
    rows = call_store.pending_rows(calls, group=str(turn.pk), step=step)
    call_store.set_started([row for row in rows if row.call_id in starting], starting)
    call_store.INSERT.many(rows)
    held = {row.call_id: row for row in rows}
    vars(turn)["begun"] = {call_id: held[call_id] for call_id in starting.keys() & held.keys()}
    return held


def start_calls(turn: Turn, items: Sequence[tuple[LiveCall, Held]]) -> Events:
    """Store that calls begin, ahead of their bodies; one that was cancelled meanwhile is told so instead."""
    if turn.status == TurnStatus.CANCELLING:
        return []
    calls = {call.id: call for call, _ in items}
    cancelled = cancel_requests.stored_of_calls(turn, list(calls)) if has_requests(turn) else {}
    for tool_id, cancellation in cancelled.items():
        calls.pop(tool_id).cancel(cancellation)
    begun: Held = getattr(turn, "begun", {})
    rows = [begun[call_id] for call_id in calls if call_id in begun]
    if waiting := [call for call in calls.values() if call.id not in begun]:
        rows += recorder.record_start(*waiting, group=str(turn.pk), held=items[0][1])
    if closed := calls.keys() - {row.call_id for row in rows}:
        raise Fenced(f"tool calls {sorted(closed)} were closed before they started")
    return [start_event(row) for row in sorted(rows, key=attrgetter("position"))]


def move_deadline(turn: Turn, call: LiveCall, change: DeadlineChange, held: Held) -> Events:
    timeout_ms, idle_timeout_ms = limit_ms(change.to_timeout), limit_ms(change.to_idle_timeout)
    moved = recorder.record_deadline(
        group=str(turn.pk),
        call_id=call.id,
        change=recorder.deadline_change(change),
        timeout_ms=timeout_ms,
        timeout_source=change.source.value,
        idle_timeout_ms=idle_timeout_ms,
    )
    if moved and (row := held.get(call.id)) is not None:
        row.timeout_ms, row.timeout_source = timeout_ms, change.source.value
        row.idle_timeout_ms = idle_timeout_ms
    event = ToolDeadline(
        tool_id=call.id,
        timeout_ms=timeout_ms,
        idle_timeout_ms=idle_timeout_ms or None,
        timeout_source=change.source.value,
        changed_by=change.by,
    )
    return [event] if moved else []


def note_cancelling(turn: Turn, items: Sequence[tuple[LiveCall]]) -> Events:
    recorder.record_cancelling(*(call.id for (call,) in items), group=str(turn.pk))
    return []


def end_calls(turn: Turn, items: Sequence[tuple[LiveCall, ToolOutcome, Held]]) -> Events:
    outcomes = {call.id: outcome for call, outcome, _ in items}
    rows = recorder.record_end(outcomes, group=str(turn.pk), held=items[0][2])
    if has_requests(turn):
        cancel_requests.settle_calls(turn.pk, {row.call_id: row.status for row in rows})
    return [event for row in rows for event in result_events(row)]
