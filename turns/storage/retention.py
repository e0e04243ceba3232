"""Deletes data that is older than its retention, in small batches, so that other work need not wait.

The content of an ended turn is deleted: its messages, its tool calls with their results, its events. Its row is kept as
a record of what ran and who ended it, with its cancel requests, repairs and decisions. The functions use the
synchronous ORM.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import (
    CharField,
    Count,
    Exists,
    Func,
    Model,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
)

from governance import activity, recorder, selectors
from governance.db import atomic
from governance.db_clock import database_now
from governance.keysets import Keyset
from turns.attachments import rows as attachments
from turns.core.events import PromptChanged
from turns.core.prompt_changes import PromptChange
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

BATCH = 100  # turns or conversations per transaction; fewer if they have many rows
PIECE = 1_000  # rows per deletion
_IDS = 500  # ids per statement

_DUE = Q(
    is_detached=True,
    delivered_at=None,
    parent__status=TurnStatus.COMPLETED,
    parent__replaced_by=None,
)
_HAS_CONTENTS = ~Q(user_message="")
Row = TypeVar("Row", Turn, Conversation)


@dataclass(slots=True)
class ContentCounts:
    """The number of turns, and of the rows and files that belong to them."""

    turns: int = 0
    events: int = 0
    messages: int = 0
    calls: int = 0
    attachments: int = 0

    def add(self, more: "ContentCounts") -> None:
        for field in fields(more):
            setattr(self, field.name, getattr(self, field.name) + getattr(more, field.name))


class _Group(Func):
    """A turn's id as text, which is the group of its calls."""

    output_field = CharField()
    template = "CAST(%(expressions)s AS varchar)"

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Remove the hyphens, because SQLite stores UUIDs without them."""
        places = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
        parts = (f"substr(%(expressions)s, {start}, {length})" for start, length in places)
        template = " || '-' || ".join(parts)
        return self.as_sql(compiler, connection, template=template, **context)


def count_contents(turns: QuerySet[Turn]) -> ContentCounts:
    counts = (
        turns.order_by()
        .annotate(
            events_of=_count_of(Event),
            messages_of=_count_of(Message),
            attachments_of=_count_of(Attachment),
            calls_of=selectors.count_of_group(_Group(OuterRef("pk"))),
        )
        .aggregate(
            turns=Count("pk"),
            events=Sum("events_of"),
            messages=Sum("messages_of"),
            calls=Sum("calls_of"),
            attachments=Sum("attachments_of"),
        )
    )
    return ContentCounts(**{name: count or 0 for name, count in counts.items()})


def _count_of(model: type[Model]) -> Subquery:
    rows = model._default_manager.filter(turn=OuterRef("pk")).order_by().values("turn")
    return Subquery(rows.values(count=Count("pk")))


@dataclass(slots=True)
class Pruned(ContentCounts):
    """The numbers of rows and files that were deleted, or that would be."""

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

    Conversations that people deleted that long ago are removed with all records. With `with_conversations`,
    conversations that have been idle for that long are removed as well. Files that were not sent within a day are
    removed too. `pause` is the number of seconds between batches. `report` is called with the numbers so far and the
    planned ones. The deletion can be interrupted and run again at any time.
    """
    before = database_now() - older_than
    if not is_dry_run:
        _delete_below_deleted()
    levels = _idle_conversations(before, only_deleted=not with_conversations)
    planned = _count(before, [pk for level in levels for pk in level])
    if is_dry_run:
        return planned
    pruned = Pruned()
    try:
        for _batch in _delete(before, levels, pruned):
            report(pruned, planned)
            time.sleep(pause)
    finally:  # even if the deletion is interrupted
        if counts := {name: count for name, count in asdict(pruned).items() if count}:
            activity.record("deletion", "prune", changes=counts)
    return pruned


def _old(before: datetime) -> Q:
    """Return the condition for turns that ended before a time.

    Turns with a due report are excluded. A report of cancelled or replaced work is never due.
    """
    return Q(ended_at__lt=before) & ~Q(status__in=ACTIVE_STATUSES) & ~_DUE


def _count(before: datetime, idle: Sequence[UUID]) -> Pruned:
    """Count what there is to delete, with one query, plus one per few hundred idle conversations."""
    pruned, old = Pruned(conversations=len(idle)), _old(before) & _HAS_CONTENTS
    pruned.add(count_contents(Turn.objects.filter(old)))
    for start in range(0, len(idle), _IDS):
        few = Turn.objects.filter(conversation__in=idle[start : start + _IDS])
        pruned.add(count_contents(few.filter(ended_at__lt=before).exclude(old)))
    pruned.attachments += attachments.orphans().count()
    pruned.processes = _ended_processes(before).count()
    return pruned


def _delete(before: datetime, levels: Iterable[Sequence[UUID]], pruned: Pruned) -> Iterator[None]:
    """Delete the data batch by batch, and add the numbers of each batch to `pruned`."""
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
    """Yield turns, oldest first, reading each batch after the previous one is done."""
    keyset = Keyset(order)
    turns = keyset.sort(Turn.objects.filter(which))
    turns = turns.only("conversation_id", "steps", "tool_call_count")
    batch = list(turns[:BATCH])
    while batch:
        yield from _batches(batch, rows_of=lambda turn: turn.steps + turn.tool_call_count)
        last = [getattr(batch[-1], name) for name in keyset.names]
        batch = list(turns.filter(keyset.behind(last))[:BATCH])


def _batches(rows: Iterable[Row], *, rows_of: Callable[[Row], int]) -> Iterator[list[Row]]:
    """Group rows so that each group has at most `PIECE` related rows, unless a single row has more."""
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
    """Mark conversations below a deleted one as deleted, because one may have started concurrently."""
    deleted = Conversation.objects.filter(deleted_at__isnull=False)
    since = deleted.filter(pk=OuterRef("parent")).values("deleted_at")
    below = Conversation.objects.filter(parent__in=deleted, deleted_at=None)
    while below.update(deleted_at=Subquery(since)):
        pass  # each pass reaches one level further down


def _idle_conversations(before: datetime, *, only_deleted: bool) -> list[list[UUID]]:
    """Return the conversations that have been idle since a time, those of sub-agents before their parents."""
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
    """Delete the contents of conversations. Yield after each piece, so that other work can run in between.

    Rows of turns, calls, cancels, repairs and decisions are kept. The title, which comes from the first message, is
    deleted last. A conversation without a title is therefore empty, except for later turns.
    """
    for conversation_id in conversation_ids:
        full = Q(conversation=conversation_id) & (_HAS_CONTENTS | ~Q(conversation__title=""))
        for turns in _batches_of_turns(full, order=["number"]):
            few = [turn.pk for turn in turns]
            for _deleted in _delete_events(few):
                yield
            with atomic():
                history_version.renew([conversation_id], PromptChange.PRUNE)
                _delete_texts(few)
                recorder.empty_calls([str(turn_id) for turn_id in few])
                CancelRequest.objects.filter(turn__in=few).update(note="")
                Repair.objects.filter(turn__in=few).update(text="")
            yield
    titled = Conversation.objects.filter(pk__in=conversation_ids).exclude(
        title="", parked_reason=""
    )
    titled.update(title="", parked_reason="")


def _delete_texts(turn_ids: Sequence[UUID], **facts: Any) -> int:
    """Delete what people and agents wrote in these turns, and the operations of clients; return the number of
    messages.

    `facts` are further fields to set on the turns.
    """
    messages, _by_model = Message.objects.filter(turn__in=turn_ids).delete()
    for rows in (Operation, Acknowledgement, DeadlineOrder):
        rows.objects.filter(turn__in=turn_ids).delete()
    attachments.mark_for_removal(Attachment.objects.filter(turn__in=turn_ids))
    Turn.objects.filter(pk__in=turn_ids).update(
        user_message="", attachments=[], error_message="", error_detail="", summary="", **facts
    )
    return messages


def _delete_summaries(conversation_ids: Collection[UUID]) -> None:
    """Delete the summaries of these conversations, because each contains content of earlier turns."""
    turns = Turn.objects.filter(conversation__in=conversation_ids).exclude(summary="")
    for turn_id in list(turns.values_list("pk", flat=True)):
        events = Event.objects.filter(turn=turn_id, type=PromptChanged.type)
        for event in events.exclude(payload__summary=""):
            event.payload = {**event.payload, "summary": ""}
            event.save(update_fields=["payload"])
    turns.update(summary="")


def _delete_events(turn_ids: Sequence[UUID]) -> Iterator[int]:
    """Delete the events of turns in batches, and yield the number of deleted events of each batch.

    Events are not part of the history. A page that was disconnected long enough to miss them receives a snapshot
    instead.
    """
    rows: QuerySet[Event] = Event.objects.filter(turn__in=turn_ids).order_by()
    while piece := list(rows.values_list("pk", flat=True)[:PIECE]):
        yield Event.objects.filter(pk__in=piece).delete()[0]


def _empty(turns: Sequence[Turn], pruned: Pruned) -> None:
    """Delete the contents of turns, waiting for each locked conversation separately."""
    pruned.events += sum(_delete_events([turn.pk for turn in turns]))
    for turn in _empty_locked(turns, pruned, waits=False):
        _empty_locked([turn], pruned, waits=True)


def _empty_locked(turns: Sequence[Turn], pruned: Pruned, *, waits: bool) -> list[Turn]:
    """Empty turns in one transaction, so that no history has calls without results.

    Return those whose conversations are locked.
    """
    with atomic():
        locked = _lock({turn.conversation_id for turn in turns}, waits=waits)
        ids = [turn.pk for turn in turns if turn.conversation_id in locked]
        history_version.renew(locked, PromptChange.PRUNE)
        calls = recorder.delete_calls([str(turn_id) for turn_id in ids])
        messages = _delete_texts(ids, pruned_at=database_now())
        _delete_summaries(locked)
    pruned.add(ContentCounts(turns=len(ids), messages=messages, calls=calls))
    return [turn for turn in turns if turn.conversation_id not in locked]


def _lock(conversation_ids: Collection[UUID], *, waits: bool) -> set[UUID]:
    """Lock conversations until the transaction ends.

    Holders of one such lock never wait for another, so there is no deadlock.
    """
    rows = Conversation.objects.select_for_update(of=("self",), skip_locked=not waits)
    return set(rows.filter(pk__in=conversation_ids).order_by("pk").values_list("pk", flat=True))


def _delete_conversations(ids: Sequence[UUID], *, before: datetime, pruned: Pruned) -> None:
    """Delete conversations with all records, except those that were resumed or are in use."""
    with atomic():
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
