"""The event log: appends events with gapless numbers, and reads them in the form of the wire (sync ORM)."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet, UUIDField
from django.utils import timezone

from governance.bulk_updates import update_each
from governance.prepared_statements import Insert, Select, Update, fields_of
from governance.sanitize import sanitize_json
from turns.core.events import TurnEvent
from turns.exceptions import ConversationNotFound
from turns.models import Conversation, Event

LOCK_WAIT_MS = 500  # for a row that somebody else has locked
_RECENT = 2_000  # events that are looked through

WireEvent = dict[str, Any]
Batch = tuple[UUID, list[WireEvent]]  # a conversation and events of it that are to be published

# What a conversation counts, and what is stored of it with news. While a turn runs, two indexes stay as they are.
COUNTED = ("last_seq", "last_position", "last_number")
_NEWS = (*COUNTED, "title", "updated_at")

LOCKED = Select(lambda pk: Conversation.objects.select_for_update().filter(pk=pk), pk=UUIDField())
IF_FREE = Select(
    lambda pk: Conversation.objects.select_for_update(skip_locked=True).filter(pk=pk),
    pk=UUIDField(),
)
LOCKED_OF = Select(
    lambda turn_id: Conversation.objects.select_for_update(of=("self",)).filter(turns=turn_id),
    turn_id=UUIDField(),
)
LOCK_OF, LOCK_OF_IF_FREE = (
    Select(
        lambda turn_id, skips=skips: (
            Conversation.objects.select_for_update(of=("self",), skip_locked=skips)
            .filter(turns=turn_id)
            .only("pk")
            .order_by()
        ),
        turn_id=UUIDField(),
    )
    for skips in (False, True)
)
COUNT, COUNT_NEWS = (
    Update(
        lambda pk, **counted: (Conversation.objects.filter(pk=pk), counted),
        **fields_of(Conversation, "pk", *names),
    )
    for names in (COUNTED, _NEWS)
)
_EVENTS = Insert(Event)


class NewEvent(NamedTuple):
    """What a row has of an event that is appended: to make the row itself takes several times as long."""

    conversation_id: UUID
    turn_id: UUID
    seq: int
    type: str
    payload: dict[str, Any]
    at: datetime


def locked(conversation_id: UUID, *, waits: bool = True) -> Conversation:
    """Return a conversation with its row locked until the transaction ends.

    Whoever changes anything of a conversation holds this lock first, so changes have one order and no deadlock. Raise
    `ConversationNotFound` if there is none, or not any more. Raise it also if another one has the lock and we do not wait.
    """
    conversation = (LOCKED if waits else IF_FREE).first(pk=conversation_id)
    if conversation is None:
        raise ConversationNotFound
    return conversation


def last_seq(conversation_id: UUID) -> int:
    """Return the number of the last event. Raise `ConversationNotFound`."""
    found = (
        Conversation.objects.filter(pk=conversation_id).values_list("last_seq", flat=True).first()
    )
    if found is None:
        raise ConversationNotFound
    return found


def locked_of(turn_id: UUID) -> Conversation | None:
    """Return the conversation of a turn, locked. None if it was deleted."""
    return LOCKED_OF.first(turn_id=turn_id)


def lock_of(turn_id: UUID, *, waits: bool = True) -> bool:
    """Lock the conversation of a turn without reading it.

    False if it was deleted, or somebody has it and we do not wait.
    """
    return (LOCK_OF if waits else LOCK_OF_IF_FREE).first(turn_id=turn_id) is not None


@contextmanager
def short_lock_wait() -> Iterator[None]:
    """In a transaction: wait for one row that somebody else has locked no longer than a moment, then raise.

    For who has others to see to as well. Without effect where the database cannot be told so.
    """
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}")
        yield
        cursor.execute("SET LOCAL lock_timeout TO DEFAULT")


def append(
    conversation: Conversation,
    turn_id: UUID,
    *events: TurnEvent,
    at: datetime | None = None,
    is_news: bool = True,
) -> list[WireEvent]:
    """Store the events of a `locked` conversation and return them as they go to clients.

    What the conversation counts is stored with them: events, messages and turns. If it `is_news`, so is its title, and
    lists show that it was updated.
    """
    if not events:
        return []
    at = at or timezone.now()
    rows = _numbered(conversation, turn_id, events, at=at)
    _EVENTS.many(rows)
    if is_news:
        conversation.updated_at = at
    count(conversation, is_news=is_news)
    return _wire_of_all(rows)


def count(conversation: Conversation, *, is_news: bool = False) -> None:
    """Store what a `locked` conversation counts."""
    statement, names = (COUNT_NEWS, _NEWS) if is_news else (COUNT, COUNTED)
    statement.run(pk=conversation.pk, **{name: getattr(conversation, name) for name in names})


def append_to_all(
    news: Iterable[tuple[Conversation, UUID, Sequence[TurnEvent]]],
) -> list[Batch]:
    """Store events of turns in several `locked` conversations, and return them as they go to clients."""
    at = timezone.now()
    rows = {place: _numbered(place, turn_id, events, at=at) for place, turn_id, events in news}
    for place in rows:
        place.updated_at = at
    _EVENTS.many([row for of_place in rows.values() for row in of_place])
    update_each(list(rows), ["last_seq", "updated_at"])
    return [(place.pk, _wire_of_all(of_place)) for place, of_place in rows.items()]


def _numbered(
    conversation: Conversation, turn_id: UUID, events: Sequence[TurnEvent], *, at: datetime
) -> list[NewEvent]:
    """Return new rows with the next numbers of a conversation, which counts them from now on."""
    conversation_id = conversation.pk
    rows = [
        NewEvent(
            conversation_id=conversation_id,
            turn_id=turn_id,
            seq=seq,
            type=event.type,
            payload=sanitize_json(event.payload()),
            at=at,
        )
        for seq, event in enumerate(events, conversation.last_seq + 1)
    ]
    conversation.last_seq += len(rows)
    return rows


def wire(row: Event) -> WireEvent:
    """Return an event as clients see it."""
    return {
        "type": row.type,
        "seq": row.seq,
        "turn_id": str(row.turn_id),
        "at": row.at.isoformat(),
        **row.payload,
    }


def _wire_of_all(rows: Sequence[NewEvent]) -> list[WireEvent]:
    """Return new events of one turn and moment as clients see them."""
    if not rows:
        return []
    turn_id, at = str(rows[0].turn_id), rows[0].at.isoformat()
    return [
        {"type": row.type, "seq": row.seq, "turn_id": turn_id, "at": at, **row.payload}
        for row in rows
    ]


def has(conversation_id: UUID, event: WireEvent) -> bool:
    """Whether an event that was appended is in the log, or was rolled back with its transaction."""
    known = Event.objects.filter(conversation_id=conversation_id, seq=event["seq"])
    at = datetime.fromisoformat(event["at"])
    return known.filter(turn_id=event["turn_id"], type=event["type"], at=at).exists()


def has_equal(conversation: Conversation, event: TurnEvent) -> bool:
    """Whether one of the last events of a conversation says the same. What was pruned or lies far back does not count."""
    recent = Event.objects.filter(
        conversation_id=conversation.pk, seq__gt=conversation.last_seq - _RECENT, type=event.type
    )
    payload = sanitize_json(event.payload())
    return payload in list(recent.values_list("payload", flat=True))


def read(conversation_id: UUID, *, after: int, limit: int = 1000) -> list[WireEvent]:
    """Return the events with a number above `after`, in order, at most `limit`."""
    rows = Event.objects.filter(conversation_id=conversation_id, seq__gt=after).order_by("seq")[
        :limit
    ]
    return [wire(row) for row in rows]


def read_turn(turn_id: UUID, *, after: int, limit: int = 1000) -> list[WireEvent]:
    """Return the events of one turn with a number above `after`, in order, at most `limit`."""
    rows = Event.objects.filter(turn_id=turn_id, seq__gt=after).order_by("seq")[:limit]
    return [wire(row) for row in rows]


def numbers_of_turn(turn_id: UUID, *, until: int) -> "QuerySet[Event, int]":
    """Return the numbers of the events of one turn up to `until`, the last one first."""
    rows = Event.objects.filter(turn_id=turn_id, seq__lte=until).order_by("-seq")
    return rows.values_list("seq", flat=True)
