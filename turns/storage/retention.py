"""Deletes what is older than its retention, in small batches, so that nobody waits (sync ORM).

Of an ended turn goes what was said and done: its messages, its tool calls with their results, its events. Its row
stays as a record of what ran and who ended it. Cancel requests, repairs and decisions stay with it.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery

from governance import recorder
from governance.db_clock import database_now
from governance.keysets import Keyset
from turns.attachments import rows as attachments
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.models import (
    Acknowledgement,
    Attachment,
    CancelRequest,
    Conversation,
    DeadlineOrder,
    Event,
    Message,
    Operation,
    Process,
    Repair,
    Turn,
)
from turns.storage import history_version
from turns.storage.retention_counts import ContentCounts, count_contents

BATCH = 100  # turns, or conversations, of one transaction; fewer where they have many rows
PIECE = 1_000  # rows that are deleted at once
_IDS = 500  # ids that are bound to one statement

_DUE = Q(
    is_detached=True,
    delivered_at=None,
    parent__status=TurnStatus.COMPLETED,
    parent__replaced_by=None,
)
_HAS_CONTENTS = ~Q(user_message="")
Row = TypeVar("Row", Turn, Conversation)


@dataclass(slots=True)
class Pruned(ContentCounts):
    """How much was deleted, or would be."""

    conversations: int = 0
    processes: int = 0


Report = Callable[[Pruned, Pruned], None]


def prune(
    older_than: timedelta,
    *,
    with_conversations: bool = False,
    is_dry_run: bool = False,
    pause: float = 0.0,
    report: Report = lambda _done, _planned: None,
) -> Pruned:
    """Delete the contents of turns that ended longer ago than `older_than`, by the database's clock.

    Conversations that people deleted that long ago go with all records of them. `with_conversations`: so do those in
    which nothing has happened since. Files go that no message has claimed within a day. `pause` is how many seconds to
    leave to others after each batch. `report` learns how much is done, and of how much. It can be interrupted and run
    again at any time.
    """
    before = database_now() - older_than
    if not is_dry_run:
        _delete_below_deleted()
    levels = _idle_conversations(before, only_deleted=not with_conversations)
    planned = _count(before, [pk for level in levels for pk in level])
    if is_dry_run:
        return planned
    pruned = Pruned()
    for _batch in _delete(before, levels, pruned):
        report(pruned, planned)
        time.sleep(pause)
    return pruned


def _old(before: datetime) -> Q:
    """The turns that ended before a moment.

    A report that is still due is not old. One of work that was cut off or replaced is due to nobody.
    """
    return Q(ended_at__lt=before) & ~Q(status__in=ACTIVE_STATUSES) & ~_DUE


def _count(before: datetime, idle: Sequence[UUID]) -> Pruned:
    """Count what there is to delete: in one query, and one more for some hundred idle conversations each."""
    pruned, old = Pruned(conversations=len(idle)), _old(before) & _HAS_CONTENTS
    pruned.add(count_contents(Turn.objects.filter(old)))
    for start in range(0, len(idle), _IDS):
        few = Turn.objects.filter(conversation__in=idle[start : start + _IDS])
        pruned.add(count_contents(few.filter(ended_at__lt=before).exclude(old)))
    pruned.attachments += attachments.orphans().count()
    pruned.processes = _ended_processes(before).count()
    return pruned


def _delete(before: datetime, levels: Iterable[Sequence[UUID]], pruned: Pruned) -> Iterator[None]:
    """Delete batch by batch, and add each to `pruned`."""
    for level in levels:
        for start in range(0, len(level), BATCH):
            few = level[start : start + BATCH]
            for turns in _batches_of_turns(_old(before) & Q(conversation__in=few)):
                _empty(turns, pruned)
                yield
            conversations = Conversation.objects.filter(pk__in=few).only("last_number")
            for batch in _batches(conversations, rows_of=lambda place: place.last_number):
                _delete_conversations([place.pk for place in batch], before=before, pruned=pruned)
                yield
    for turns in _batches_of_turns(_old(before) & _HAS_CONTENTS):
        _empty(turns, pruned)
        yield
    attachments.mark_for_removal(attachments.orphans())
    pruned.attachments += attachments.sweep()
    pruned.processes += _ended_processes(before).delete()[1].get(Process._meta.label, 0)


def _ended_processes(before: datetime) -> "QuerySet[Process]":
    owned = Turn.objects.filter(owner=OuterRef("pk"))
    return Process.objects.filter(~Exists(owned), ended_at__lt=before)


def _batches_of_turns(
    which: Q, *, order: Sequence[str] = ("ended_at", "pk")
) -> Iterator[list[Turn]]:
    """Turns, oldest first, each batch read when the one before it is done."""
    keyset = Keyset(order)
    turns = keyset.sort(Turn.objects.filter(which))
    turns = turns.only("conversation_id", "steps", "tool_call_count")
    found = list(turns[:BATCH])
    while found:
        yield from _batches(found, rows_of=lambda turn: turn.steps + turn.tool_call_count)
        last = [getattr(found[-1], name) for name in keyset.names]
        found = list(turns.filter(keyset.behind(last))[:BATCH])


def _batches(rows: Iterable[Row], *, rows_of: Callable[[Row], int]) -> Iterator[list[Row]]:
    """Join rows to which no more than `PIECE` others belong; one alone may have more."""
    batch: list[Row] = []
    weight = 0
    for row in rows:
        if batch and weight + rows_of(row) > PIECE:
            yield batch
            batch, weight = [], 0
        batch.append(row)
        weight += rows_of(row)
    if batch:
        yield batch


def _delete_below_deleted() -> None:
    """Let a conversation count as deleted with the one above it: it may have begun in that moment, and stayed."""
    deleted = Conversation.objects.filter(deleted_at__isnull=False)
    since = deleted.filter(pk=OuterRef("parent")).values("deleted_at")
    below = Conversation.objects.filter(parent__in=deleted, deleted_at=None)
    while below.update(deleted_at=Subquery(since)):
        pass  # now those a level further down are below it


def _idle_conversations(before: datetime, *, only_deleted: bool) -> list[list[UUID]]:
    """Conversations in which nothing has happened since a moment, those of sub-agents before those that they work for."""
    active = Turn.objects.filter(conversation=OuterRef("pk"), status__in=ACTIVE_STATUSES)
    idle = Conversation.objects.filter(~Exists(active), updated_at__lt=before)
    if only_deleted:
        idle = idle.filter(deleted_at__lt=before, emptied_at__isnull=False)
    ids = set(idle.values_list("pk", flat=True))
    parents = dict(Conversation.objects.filter(parent__in=idle).values_list("pk", "parent_id"))
    while blocked := {parent for child, parent in parents.items() if child not in ids} & ids:
        ids -= blocked
    levels: dict[int, list[UUID]] = {}
    for pk in sorted(ids):
        levels.setdefault(_depth(pk, parents), []).append(pk)
    return [levels[depth] for depth in sorted(levels, reverse=True)]


def _depth(conversation_id: UUID, parents: Mapping[UUID, UUID | None]) -> int:
    depth = 0
    parent = parents.get(conversation_id)
    while parent is not None:
        depth, parent = depth + 1, parents.get(parent)
    return depth


def empty_conversations(conversation_ids: Collection[UUID]) -> Iterator[None]:
    """Delete what was said and done in conversations. Yield after each piece, so that others get in between.

    Rows of turns, calls, cancels, repairs and decisions stay. A title, which the first message gives, goes last. So where
    there is none, nothing is left of turns but of those that came later.
    """
    for conversation_id in conversation_ids:
        full = Q(conversation=conversation_id) & (_HAS_CONTENTS | ~Q(conversation__title=""))
        for turns in _batches_of_turns(full, order=["number"]):
            few = [turn.pk for turn in turns]
            for _deleted in _delete_events(few):
                yield
            with transaction.atomic():
                history_version.renew([conversation_id])
                _delete_texts(few)
                recorder.empty_calls([str(turn_id) for turn_id in few])
                CancelRequest.objects.filter(turn__in=few).update(note="")
                Repair.objects.filter(turn__in=few).update(text="")
            yield
    titled = Conversation.objects.filter(pk__in=conversation_ids).exclude(
        title="", parked_reason=""
    )
    titled.update(title="", parked_reason="")


def _delete_texts(turn_ids: Sequence[UUID]) -> int:
    """Delete what people and agents have written in these turns, and what clients have asked for; count the messages."""
    messages, _by_model = Message.objects.filter(turn__in=turn_ids).delete()
    for rows in (Operation, Acknowledgement, DeadlineOrder):
        rows.objects.filter(turn__in=turn_ids).delete()
    attachments.mark_for_removal(Attachment.objects.filter(turn__in=turn_ids))
    Turn.objects.filter(pk__in=turn_ids).update(user_message="", attachments=[], error_message="")
    return messages


def _delete_events(turn_ids: Sequence[UUID]) -> Iterator[int]:
    """Delete the events of turns, and yield how many after each piece.

    They are no part of the history: pages that were away for that long get a snapshot.
    """
    rows: QuerySet[Event] = Event.objects.filter(turn__in=turn_ids).order_by()
    while piece := list(rows.values_list("pk", flat=True)[:PIECE]):
        yield Event.objects.filter(pk__in=piece).delete()[0]


def _empty(turns: Sequence[Turn], pruned: Pruned) -> None:
    """Delete what was said and done in turns; whoever works in their conversations is waited for one by one."""
    pruned.events += sum(_delete_events([turn.pk for turn in turns]))
    for turn in _empty_locked(turns, pruned, waits=False):
        _empty_locked([turn], pruned, waits=True)


def _empty_locked(turns: Sequence[Turn], pruned: Pruned, *, waits: bool) -> list[Turn]:
    """Empty turns at once: a history never has calls of which the results are gone. Return those that are not locked."""
    with transaction.atomic():
        locked = _lock({turn.conversation_id for turn in turns}, waits=waits)
        ids = [turn.pk for turn in turns if turn.conversation_id in locked]
        history_version.renew(locked)
        calls = recorder.delete_calls([str(turn_id) for turn_id in ids])
        messages = _delete_texts(ids)
    pruned.add(ContentCounts(turns=len(ids), messages=messages, calls=calls))
    return [turn for turn in turns if turn.conversation_id not in locked]


def _lock(conversation_ids: Collection[UUID], *, waits: bool) -> set[UUID]:
    """Lock conversations until the transaction ends. Whoever has one already waits for another nowhere: no deadlock."""
    rows = Conversation.objects.select_for_update(of=("self",), skip_locked=not waits)
    return set(rows.filter(pk__in=conversation_ids).order_by("pk").values_list("pk", flat=True))


def _delete_conversations(ids: Sequence[UUID], *, before: datetime, pruned: Pruned) -> None:
    """Delete conversations with all records of them, but those that have been taken up again, or are just in use."""
    with transaction.atomic():
        active = Turn.objects.filter(conversation=OuterRef("pk"), status__in=ACTIVE_STATUSES)
        children = Conversation.objects.filter(parent=OuterRef("pk"))
        still_idle = Conversation.objects.filter(
            ~Exists(active),
            ~Exists(children),
            pk__in=_lock(ids, waits=False),
            updated_at__lt=before,
        )
        idle = list(still_idle.values_list("pk", flat=True))
        turn_ids = Turn.objects.filter(conversation__in=idle).values_list("pk", flat=True)
        groups = [str(turn_id) for turn_id in turn_ids]
        calls = recorder.delete_calls(groups, with_decisions=True)
        _all, deleted = Conversation.objects.filter(pk__in=idle).delete()
    pruned.calls += calls
    pruned.events += deleted.get("turns.Event", 0)
    pruned.messages += deleted.get("turns.Message", 0)
    pruned.attachments += deleted.get("turns.Attachment", 0)
    pruned.conversations += len(idle)
