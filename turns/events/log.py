"""The event log: appends events with gapless numbers, and reads them in wire format.

The functions here use the synchronous ORM.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.functions import Now

from governance import db_clock
from governance.db import database_connection
from governance.sanitize import sanitize_json
from turns.core.events import TurnEvent
from turns.exceptions import ConversationNotFound
from turns.models import Conversation, Event

LOCK_WAIT_MS = 500  # maximum wait for a locked row
_RECENT = 2_000  # number of latest events that `has_equal` searches

WireEvent = dict[str, Any]
Batch = tuple[UUID, list[WireEvent]]  # a conversation and its events to publish

# The counters of a conversation, and the fields stored with news. Events during a turn are not news, so that two
# indexes remain unchanged.
COUNTED = ("last_seq", "last_position", "last_number")
_NEWS = (*COUNTED, "title", "updated_at")


def locked(conversation_id: UUID, *, waits: bool = True) -> Conversation:
    """Return a conversation, locked until the transaction ends.

    Every writer of a conversation acquires this lock first, which orders changes and prevents deadlocks. Raise
    `ConversationNotFound` if the conversation does not exist, or if it is locked and `waits` is False.
    """
    rows: Any = Conversation.objects.select_for_update(skip_locked=not waits)
    conversation = rows.annotate(read_at=Now()).filter(pk=conversation_id).first()
    if conversation is None:
        raise ConversationNotFound
    return cast("Conversation", conversation)


def last_seq(conversation_id: UUID) -> int:
    """Return the number of the last event. Raise `ConversationNotFound`."""
    seq = Conversation.objects.filter(pk=conversation_id).values_list("last_seq", flat=True).first()
    if seq is None:
        raise ConversationNotFound
    return seq


def locked_of(turn_id: UUID) -> Conversation | None:
    """Lock and return the conversation of a turn; None if it was deleted."""
    rows = Conversation.objects.select_for_update(of=("self",))
    return rows.filter(turns=turn_id).first()


def lock_of(turn_id: UUID, *, waits: bool = True) -> bool:
    """Lock the conversation of a turn without reading it.

    Return False if it was deleted, or if it is locked and `waits` is False.
    """
    rows = Conversation.objects.select_for_update(of=("self",), skip_locked=not waits)
    return rows.filter(turns=turn_id).only("pk").first() is not None


@contextmanager
def short_lock_wait() -> Iterator[None]:
    """Limit the wait for each locked row within a transaction; a longer wait raises `OperationalError`.

    This is for callers that have other rows to process. It has no effect on databases without such a limit.
    """
    connection = database_connection()
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
    """Store the events of a `locked` conversation and return them in wire format.

    The conversation's counters of events, messages and turns are stored too; with `is_news`, also its title and the
    time of its update, by which lists are sorted.
    """
    if not events:
        return []
    at = at or db_clock.now()
    rows = _numbered(conversation, turn_id, events, at=at)
    Event.objects.bulk_create(rows)
    if is_news:
        conversation.updated_at = at
    count(conversation, is_news=is_news)
    return _wire_of_all(rows)


def count(conversation: Conversation, *, is_news: bool = False) -> None:
    """Store the counters of a `locked` conversation."""
    names = _NEWS if is_news else COUNTED
    values = {name: getattr(conversation, name) for name in names}
    Conversation.objects.filter(pk=conversation.pk).update(**values)


def append_to_all(
    news: Iterable[tuple[Conversation, UUID, Sequence[TurnEvent]]],
) -> list[Batch]:
    """Store events of turns in several `locked` conversations, and return them in wire format."""
    at = db_clock.now()
    rows = {place: _numbered(place, turn_id, events, at=at) for place, turn_id, events in news}
    for place in rows:
        place.updated_at = at
    Event.objects.bulk_create([row for of_place in rows.values() for row in of_place])
    Conversation.objects.bulk_update(rows, ["last_seq", "updated_at"])
    return [(place.pk, _wire_of_all(of_place)) for place, of_place in rows.items()]


def _numbered(
    conversation: Conversation, turn_id: UUID, events: Sequence[TurnEvent], *, at: datetime
) -> list[Event]:
    """Return new rows with the conversation's next numbers."""
    conversation_id = conversation.pk
    rows = [
        Event(
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
    """Return an event in wire format."""
    return {
        "type": row.type,
        "seq": row.seq,
        "turn_id": str(row.turn_id),
        "at": row.at.isoformat(),
        **row.payload,
    }


def _wire_of_all(rows: Sequence[Event]) -> list[WireEvent]:
    """Return new events in wire format. All must have the same turn and the same time."""
    if not rows:
        return []
    turn_id, at = str(rows[0].turn_id), rows[0].at.isoformat()
    return [
        {"type": row.type, "seq": row.seq, "turn_id": turn_id, "at": at, **row.payload}
        for row in rows
    ]


def has(conversation_id: UUID, event: WireEvent) -> bool:
    """Return whether an appended event is in the log, that is, its transaction was not rolled back."""
    rows = Event.objects.filter(conversation_id=conversation_id, seq=event["seq"])
    at = datetime.fromisoformat(event["at"])
    return rows.filter(turn_id=event["turn_id"], type=event["type"], at=at).exists()


def has_equal(conversation: Conversation, event: TurnEvent) -> bool:
    """Return whether one of the last events of a conversation equals this one. Older events are not considered."""
    recent = Event.objects.filter(
        conversation_id=conversation.pk, seq__gt=conversation.last_seq - _RECENT, type=event.type
    )
    payload = sanitize_json(event.payload())
    return payload in list(recent.values_list("payload", flat=True))


def read(conversation_id: UUID, *, after: int, limit: int = 1000) -> list[WireEvent]:
    """Return up to `limit` events with a number above `after`, in order."""
    rows = Event.objects.filter(conversation_id=conversation_id, seq__gt=after).order_by("seq")[
        :limit
    ]
    return [wire(row) for row in rows]


def read_turn(turn_id: UUID, *, after: int, limit: int = 1000) -> list[WireEvent]:
    """Return up to `limit` events of one turn with a number above `after`, in order."""
    rows = Event.objects.filter(turn_id=turn_id, seq__gt=after).order_by("seq")[:limit]
    return [wire(row) for row in rows]


def numbers_of_turn(turn_id: UUID, *, until: int) -> "QuerySet[Event, int]":
    """Return the numbers of a turn's events up to `until`, in descending order."""
    rows = Event.objects.filter(turn_id=turn_id, seq__lte=until).order_by("-seq")
    return rows.values_list("seq", flat=True)
