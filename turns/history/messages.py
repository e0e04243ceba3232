"""The messages of a conversation, as rows and as events.

The functions here use the synchronous ORM.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from governance import selectors
from governance.sanitize import sanitize_json
from turns.core.events import MessageEvent, TurnEvent
from turns.core.ports import Answer
from turns.events import log
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
    """Append a message to a locked conversation. The new position is stored with the next event."""
    conversation.last_position += 1
    return Message.objects.create(
        conversation_id=conversation.pk,
        turn_id=turn.pk,
        position=conversation.last_position,
        role=role,
        content=content,
        at=at,
        **fields,
    )


def has(turn: Turn, *, step: int) -> bool:
    """Return whether the message of a step exists, complete or not."""
    return Message.objects.filter(turn=turn, step=step, role="assistant").exists()


def begin(turn: Turn, *, step: int, text: str, at: datetime) -> None:
    """Append the partial message of a step to a locked conversation. This is idempotent."""
    if has(turn, step=step):
        return
    content = [{"type": "text", "text": text}]
    fields: dict[str, Any] = {"step": step, "is_streaming": True}
    add(turn.conversation, turn, role="assistant", content=content, at=at, **fields)
    log.count(turn.conversation)
    Turn.objects.filter(pk=turn.pk).update(steps=step)


def save(
    turn: Turn,
    answer: Answer,
    *,
    is_begun: bool,
    at: datetime,
    usage: Mapping[str, int] | None = None,
) -> list[TurnEvent]:
    """Store a complete or interrupted message in a locked conversation. Empty messages are not kept.

    Its event includes the `usage` of the turn so far, if it is known.
    """
    message, step = answer.message, answer.step
    if message.is_empty:
        if is_begun:
            _begun(turn, step).delete()
        return []
    content = sanitize_json([block.to_json() for block in message.content])
    fields: dict[str, Any] = {
        "step": step,
        "interrupted": message.interrupted,
        "usage": message.usage,
        "provider_parts": _storable(message.provider_parts),
        "thoughts": sanitize_json(message.thoughts),
    }
    if not is_begun:
        row = add(turn.conversation, turn, role="assistant", content=content, at=at, **fields)
        return [message_event(row, usage=usage)]
    row = _begun(turn, step).get()
    row.content, row.is_streaming, row.at = content, False, at
    for name, value in fields.items():
        setattr(row, name, value)
    row.save(update_fields=["content", "is_streaming", "at", *fields])
    return [message_event(row, usage=usage)]


def _storable(parts: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the parts if they can be stored unchanged, otherwise None, because providers reject modified parts."""
    return parts if parts is not None and sanitize_json(parts) == parts else None


def _begun(turn: Turn, step: int) -> "QuerySet[Message]":
    return Message.objects.select_for_update().filter(turn=turn, step=step, is_streaming=True)


def close_unfinished(turn: Turn, *, at: datetime) -> list[TurnEvent]:
    """Keep the text of an unfinished answer, marked as interrupted (H2)."""
    # Locked, because text is stored without the conversation's lock, and must not change after this read.
    unfinished = Message.objects.select_for_update().filter(turn=turn, is_streaming=True)
    message = unfinished.first()
    if message is None:
        return []
    if not any(block.get("text", "").strip() for block in message.content):
        message.delete()
        return []
    message.is_streaming, message.interrupted, message.at = False, True, at
    message.save(update_fields=["is_streaming", "interrupted", "at"])
    return [message_event(message)]


def message_event(message: Message, *, usage: Mapping[str, int] | None = None) -> MessageEvent:
    """Return the event of a finished or interrupted message; its calls include the titles of their tools."""
    return MessageEvent(
        id=message.pk,
        role=message.role,
        content=[_with_title(block) for block in message.content],
        interrupted=message.interrupted,
        step=message.step,
        thoughts=message.thoughts,
        usage=dict(usage) if usage else None,
    )


def _with_title(block: Any) -> Any:
    title = selectors.tool_title(block["name"]) if block.get("type") == "tool_use" else ""
    return {**block, "title": title} if title else block
