"""Leftovers: calls that were given up and may still be running (T11; sync ORM). They are watched until their end is known, or cannot be.

Where a call ends late, its conversation is told, whether or not its turn is over. What was in a process that is gone has ended
with it. Work elsewhere, or in a process that cannot be seen from here, is dropped from the watch after a while.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from django.db import transaction

from governance import LateSettlement, recorder, registry, selectors
from governance.db_clock import database_now
from governance.selectors import CallRow
from turns.core.tool_events import ToolSettled
from turns.events import log
from turns.models import Process, Turn
from turns.processes import process_registry
from turns.storage import history_version

WATCHED_FOR = timedelta(hours=1)
PROCESS_ENDED = "process_ended"


def settle(turn_id: UUID, call_id: str, late: LateSettlement) -> log.Batch | None:
    """Record that a call which was given up has ended after all. Return what is to be told, None if it was known."""
    with transaction.atomic():
        conversation = log.locked_of(turn_id)
        if conversation is None:
            return None
        if conversation.deleted_at is not None:  # nothing that a tool says is kept any more
            late = replace(late, text="")
        group = str(turn_id)
        if not recorder.record_late_settlement(group=group, call_id=call_id, late=late):
            return None
        history_version.renew([conversation.pk])
        event = _settled_event(selectors.call(group, call_id))
        return conversation.pk, log.append(conversation, turn_id, event)


def settle_of_dead_processes() -> list[log.Batch]:
    """Settle the given-up calls of processes that are gone, and stop watching those whose end nobody can see.

    What is old is noted at once for all and told to nobody. After a long time without a look there may be many.
    """
    rows = selectors.given_up()
    if not rows:
        return []
    turns = _turns_of(rows)
    now = database_now()
    batches: list[log.Batch] = []
    ended: list[CallRow] = []
    unwatched: list[CallRow] = []
    for row in rows:
        if (turn := turns.get(row.group)) is None:  # of somebody who keeps calls without turns
            continue
        passed = now - (row.ended_at or now)
        is_old = passed > WATCHED_FOR
        if _runs_here(row) and _is_proved_dead(turn.owner):
            if is_old:
                ended.append(row)
            elif (batch := _settle_ended(turn, row, after=passed)) is not None:
                batches.append(batch)
        elif is_old and not (_runs_here(row) and _is_alive(turn.owner)):
            unwatched.append(row)
    recorder.stop_watching(ended, kind=PROCESS_ENDED)
    recorder.stop_watching(unwatched)
    return batches


def _settle_ended(turn: Turn, row: CallRow, *, after: timedelta) -> log.Batch | None:
    """Settle a call whose process has ended, that long after it was given up, unless somebody writes there just now."""
    late = LateSettlement(kind=PROCESS_ENDED, text="", after=max(after.total_seconds(), 0.0))
    with transaction.atomic():
        is_free = log.lock_of(turn.pk, waits=False)
        return settle(turn.pk, row.call_id, late) if is_free else None


def _turns_of(rows: Iterable[CallRow]) -> dict[str, Turn]:
    """The turns of calls by their groups, each with its owner."""
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
    """Whether a process is proved to be gone: where we see it, its pid says so."""
    return (
        process is not None
        and process.ended_at is not None
        and process_registry.is_here(process)
        and not process_registry.has_its_pid(process)
    )


def _runs_here(row: CallRow) -> bool:
    """Whether the work of a call ends with its process. A tool that we do not know, or a server's, may run elsewhere."""
    return row.tool_name in registry and registry.get(row.tool_name).raw_schema is None


def _settled_event(row: CallRow) -> ToolSettled:
    return ToolSettled(
        tool_id=row.call_id,
        tool_name=row.tool_name,
        status=row.status,
        kind=row.late_kind,
        after_ms=row.late_after_ms,
    )
