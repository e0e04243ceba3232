"""The event log: appends facts with a number that has no gap, and reads them in the form of the wire (sync ORM)."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils import timezone

from governance.storable import storable_json
from turns.core.events import TurnEvent
from turns.models import Conversation, Event

WireEvent = dict[str, Any]
Batch = tuple[UUID, list[WireEvent]]  # a conversation and events of it that are to be published


def locked(conversation_id: UUID) -> Conversation:
    """Return a conversation with its row locked until the transaction ends.

    Whoever changes anything of a conversation holds this lock first, so changes have one order and no deadlock.
    """
    return Conversation.objects.select_for_update().get(pk=conversation_id)


def locked_of(turn_id: UUID, *, waits: bool = True) -> Conversation | None:
    """Return the conversation of a turn, locked; None if it was deleted, or somebody has it and we do not wait."""
    rows = Conversation.objects.select_for_update(of=("self",), skip_locked=not waits)
    return rows.filter(turns=turn_id).first()


def append(
    conversation: Conversation, turn_id: UUID, *events: TurnEvent, at: datetime | None = None
) -> list[WireEvent]:
    """Store the events of a `locked` conversation and return them as they go to clients."""
    if not events:
        return []
    at = at or timezone.now()
    rows = [
        Event(
            conversation=conversation,
            turn_id=turn_id,
            seq=seq,
            type=event.type.value,
            payload=storable_json(event.payload),
            at=at,
        )
        for seq, event in enumerate(events, conversation.last_seq + 1)
    ]
    Event.objects.bulk_create(rows)
    conversation.last_seq += len(rows)
    conversation.updated_at = at
    conversation.save(update_fields=["last_seq", "updated_at"])
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
