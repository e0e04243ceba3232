"""The event log: appends facts with a number that has no gap, and reads them in the form of the wire (sync ORM)."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F
from django.utils import timezone

from turns.core.events import TurnEvent
from turns.models import Conversation, Event

WireEvent = dict[str, Any]


def append(
    conversation_id: UUID, turn_id: UUID, *events: TurnEvent, at: datetime | None = None
) -> list[WireEvent]:
    """Store the events and return them as they go to clients; inside the caller's transaction.

    The conversation's row is locked by its update, so numbers are given in the order of the commits.
    """
    if not events:
        return []
    at = at or timezone.now()
    conversation = Conversation.objects.filter(pk=conversation_id)
    conversation.update(last_seq=F("last_seq") + len(events), updated_at=at)
    first = conversation.values_list("last_seq", flat=True).get() - len(events) + 1
    rows = [
        Event(
            conversation_id=conversation_id,
            turn_id=turn_id,
            seq=first + offset,
            type=event.type.value,
            payload=event.payload,
            at=at,
        )
        for offset, event in enumerate(events)
    ]
    Event.objects.bulk_create(rows)
    return [wire(row) for row in rows]


def wire(row: Event) -> WireEvent:
    """Return an event as clients see it."""
    return {
        "type": row.type,
        "seq": row.seq,
        "turn_id": str(row.turn_id),
        "at": row.at.isoformat(),
        **row.payload,
    }


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
