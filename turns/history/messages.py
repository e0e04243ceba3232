"""Messages: what is said in a conversation, as rows and as events (sync ORM)."""

from datetime import datetime
from typing import Any

from turns.core.events import MessageEvent, TurnEvent
from turns.models import Conversation, Message, Turn


def add(
    conversation: Conversation,
    turn: Turn,
    *,
    role: str,
    content: list[dict[str, Any]],
    at: datetime,
    **fields: Any,
) -> Message:
    """Append a message to a locked conversation."""
    conversation.last_position += 1
    conversation.save(update_fields=["last_position"])
    return Message.objects.create(
        conversation=conversation,
        turn=turn,
        position=conversation.last_position,
        role=role,
        content=content,
        at=at,
        **fields,
    )


def close_unfinished(turn: Turn) -> list[TurnEvent]:
    """Keep what an unfinished answer has said so far, marked as interrupted (H2)."""
    # Locked: the text is stored without a lock of the conversation, and must not change once it was read here.
    unfinished = Message.objects.select_for_update().filter(turn=turn, is_streaming=True)
    message = unfinished.first()
    if message is None:
        return []
    if not any(block.get("text", "").strip() for block in message.content):
        message.delete()
        return []
    message.is_streaming, message.interrupted = False, True
    message.save(update_fields=["is_streaming", "interrupted"])
    return [message_event(message)]


def message_event(message: Message) -> MessageEvent:
    """Return the event of a finished (or interrupted) message."""
    return MessageEvent(
        id=message.pk,
        role=message.role,
        content=message.content,
        interrupted=message.interrupted,
        step=message.step,
    )
