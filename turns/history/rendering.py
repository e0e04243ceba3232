"""Renders messages from rows: what was said, and behind each call its result, from the call's own row (sync ORM)."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Protocol
from uuid import UUID

from governance import CallStatus
from governance import selectors as governance_selectors
from turns.core.history import violations
from turns.core.messages import AttachmentBlock, Message, ToolResultBlock


class MessageFields(Protocol):
    """What a history needs of the row of a message."""

    @property
    def role(self) -> str: ...
    @property
    def content(self) -> Any: ...
    @property
    def turn_id(self) -> UUID: ...
    @property
    def interrupted(self) -> bool: ...
    @property
    def step(self) -> int: ...


def message_of(row: MessageFields) -> Message:
    return Message.from_json(
        {
            "role": row.role,
            "content": row.content,
            "turn_id": row.turn_id,
            "interrupted": row.interrupted,
        }
    )


def with_results(said: Sequence[Message]) -> list[Message]:
    """Put each call's result, from its own row, behind the message that asked for it (invariant 10).

    What the calls have shown follows their results.
    """
    with_calls = dict.fromkeys(message.turn_id or "" for message in said if message.tool_uses)
    results = {}
    images = {}
    for call in governance_selectors.results_of_groups(with_calls):
        key = (call.group, call.call_id)
        results[key] = ToolResultBlock(
            tool_use_id=call.call_id,
            content=call.result,
            is_error=call.is_error,
            is_synthetic=call.is_synthetic,
        )
        images[key] = [
            AttachmentBlock.of_result(image, tool_use_id=call.call_id) for image in call.images
        ]
    messages = []
    for message in said:
        messages.append(message)
        asked = dict.fromkeys((message.turn_id, use.id) for use in message.tool_uses)
        if found := tuple(results[key] for key in asked if key in results):
            shown = chain.from_iterable(images[key] for key in asked if key in images)
            messages.append(Message(role="user", content=(*found, *shown), turn_id=message.turn_id))
    return messages


def live_part(rows: Sequence[MessageFields]) -> list[Message]:
    """The steps of a live turn whose calls have all ended. If they are no valid history, what the user said."""
    said = [(row.step, message_of(row)) for row in rows]
    open_steps = _open_steps(
        row.turn_id for row, (_, message) in zip(rows, said, strict=True) if message.tool_uses
    )
    settled = with_results(
        [message for step, message in said if message.role == "user" or step not in open_steps]
    )
    if not violations(settled):
        return settled
    words = [message for _, message in said if message.role == "user"]
    return [message for message in words if not violations([message])]


def _open_steps(turn_ids: Iterable[UUID]) -> set[int]:
    """The steps of a turn of which a call waits or runs."""
    return {
        call.step
        for turn_id in set(turn_ids)
        for call in governance_selectors.calls_of_group(str(turn_id))
        if not CallStatus(call.status).is_terminal
    }
