"""Watches abandoned calls, which may still be running, until their end is known or cannot be determined (T11; sync
ORM).

A late end is published in the conversation even if the turn has ended. Work in a process that died has ended with it.
Work that runs elsewhere, or in a process that cannot be observed from here, is watched only for `WATCHED_FOR`.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from governance import LateSettlement, recorder, registry, selectors
from governance.db import atomic
from governance.db_clock import database_now
from governance.selectors import CallRow
from turns.core.events import ToolSettled
from turns.events import log
from turns.models import Process, Turn
from turns.processes import process_registry
from turns.storage import history_version

WATCHED_FOR = timedelta(hours=1)
PROCESS_ENDED = "process_ended"


def settle(turn_id: UUID, call_id: str, late: LateSettlement) -> log.Batch | None:
    """Record that an abandoned call has ended. Return the events to publish, or None if its end was already known or
    its turn was deleted.
    """
    with atomic():
        conversation = log.locked_of(turn_id)
        if conversation is None:
            return None
        if (
            conversation.deleted_at is not None
        ):  # a deleted conversation stores no more output of tools
            late = replace(late, text="")
        group = str(turn_id)
        if not recorder.record_late_settlement(group=group, call_id=call_id, late=late):
            return None
        history_version.renew([conversation.pk])
        event = _settled_event(selectors.call(group, call_id))
        return conversation.pk, log.append(conversation, turn_id, event)


def settle_of_dead_processes() -> list[log.Batch]:
    """Settle the abandoned calls of dead processes, and stop watching calls whose end cannot be observed.

    Old calls are updated together without events, because there may be many after a long downtime.
    """
    rows = selectors.abandoned_calls()
    if not rows:
        return []
    turns = _turns_of(rows)
    now = database_now()
    batches: list[log.Batch] = []
    ended: list[CallRow] = []
    unwatched: list[CallRow] = []
    for row in rows:
        if (turn := turns.get(row.group)) is None:  # calls made by another app without turns
            continue
        age = now - (row.ended_at or now)
        is_old = age > WATCHED_FOR
        if _runs_here(row) and _is_proved_dead(turn.owner):
            if is_old:
                ended.append(row)
            elif (batch := _settle_ended(turn, row, after=age)) is not None:
                batches.append(batch)
        elif is_old and not (_runs_here(row) and _is_alive(turn.owner)):
            unwatched.append(row)
    recorder.stop_watching(ended, kind=PROCESS_ENDED)
    recorder.stop_watching(unwatched)
    return batches


def _settle_ended(turn: Turn, row: CallRow, *, after: timedelta) -> log.Batch | None:
    """Settle a call whose process ended this long after the call was abandoned, unless its conversation is locked."""
    late = LateSettlement(kind=PROCESS_ENDED, text="", after=max(after.total_seconds(), 0.0))
    with atomic():
        is_free = log.lock_of(turn.pk, waits=False)
        return settle(turn.pk, row.call_id, late) if is_free else None


def _turns_of(rows: Iterable[CallRow]) -> dict[str, Turn]:
    """Return the turns of calls by group, each with its owner."""
    ids = {turn_id for row in rows if (turn_id := _uuid(row.group)) is not None}
    turns = Turn.objects.filter(pk__in=ids).select_related("owner")
    return {str(turn.pk): turn for turn in turns.only("conversation_id", "owner")}


def _uuid(group: str) -> UUID | None:
    try:
        return UUID(group)
    except ValueError:
        return None


def _is_alive(process: Process | None) -> bool:
    return process is not None and process.ended_at is None


def _is_proved_dead(process: Process | None) -> bool:
    """Return whether a process is known to be dead, because its pid can be checked from this one."""
    return (
        process is not None
        and process.ended_at is not None
        and process_registry.is_here(process)
        and not process_registry.has_its_pid(process)
    )


def _runs_here(row: CallRow) -> bool:
    """Return whether the call's work ends with its process. Unknown tools and those of MCP servers may run elsewhere."""
    return row.tool_name in registry and registry.get(row.tool_name).raw_schema is None


def _settled_event(row: CallRow) -> ToolSettled:
    return ToolSettled(
        tool_id=row.call_id,
        tool_name=row.tool_name,
        status=row.status,
        kind=row.late_kind,
        after_ms=row.late_after_ms,
    )
