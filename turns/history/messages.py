"""Messages: what is said in a conversation, as rows and as events (sync ORM)."""

from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from governance import selectors
from governance.prepared_statements import Insert
from governance.rows import NewRow
from governance.sanitize import sanitize_json
from turns.core.events import MessageEvent, TurnEvent
from turns.core.ports import Answer
from turns.events import log
from turns.models import Conversation, Message, Turn

_MESSAGE = Insert(Message)
_new_message = NewRow(Message)


def add(
    conversation: Conversation,
    turn: Turn,
    *,
    role: str,
    content: list[dict[str, Any]],
    at: datetime,
    **fields: Any,
) -> Message:
    """Append a message to a locked conversation, whose new position is stored with the next event that is appended."""
    conversation.last_position += 1
    return _MESSAGE.one(
        _new_message(
            conversation_id=conversation.pk,
            turn_id=turn.pk,
            position=conversation.last_position,
            role=role,
            content=content,
            at=at,
            **fields,
        )
    )


def has(turn: Turn, *, step: int) -> bool:
    """Whether the message of a step is there, complete or not."""
    return Message.objects.filter(turn=turn, step=step, role="assistant").exists()


def begin(turn: Turn, *, step: int, text: str, at: datetime) -> None:
    """Append the message of a step to a locked conversation as far as it was said. Done twice, it is there once."""
    if has(turn, step=step):
        return
    content = [{"type": "text", "text": text}]
    fields: dict[str, Any] = {"step": step, "is_streaming": True}
    add(turn.conversation, turn, role="assistant", content=content, at=at, **fields)
    log.count(turn.conversation)
    Turn.objects.filter(pk=turn.pk).update(steps=step)


def save(turn: Turn, answer: Answer, *, is_begun: bool, at: datetime) -> list[TurnEvent]:
    """Store a whole (or interrupted) message of a locked conversation. One that says nothing is not kept."""
    message, step = answer.message, answer.step
    if message.is_empty:
        if is_begun:
            _begun(turn, step).delete()
        return []
    content = sanitize_json([block.to_json() for block in message.content])
    fields: dict[str, Any] = {"step": step, "interrupted": message.interrupted}
    if not is_begun:
        row = add(turn.conversation, turn, role="assistant", content=content, at=at, **fields)
        return [message_event(row)]
    row = _begun(turn, step).get()
    row.content, row.is_streaming, row.interrupted = content, False, message.interrupted
    row.at = at
    row.save(update_fields=["content", "is_streaming", "interrupted", "at"])
    return [message_event(row)]


def _begun(turn: Turn, step: int) -> "QuerySet[Message]":
    return Message.objects.select_for_update().filter(turn=turn, step=step, is_streaming=True)


def close_unfinished(turn: Turn, *, at: datetime) -> list[TurnEvent]:
    """Keep what an unfinished answer has said so far, marked as interrupted (H2)."""
    # Locked: the text is stored without a lock of the conversation, and must not change once it was read here.
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


def message_event(message: Message) -> MessageEvent:
    """Return the event of a finished (or interrupted) message; its calls with the titles of their tools."""
    return MessageEvent(
        id=message.pk,
        role=message.role,
        content=[_with_title(block) for block in message.content],
        interrupted=message.interrupted,
        step=message.step,
    )


def _with_title(block: Any) -> Any:
    title = selectors.tool_title(block["name"]) if block.get("type") == "tool_use" else ""
    return {**block, "title": title} if title else block
