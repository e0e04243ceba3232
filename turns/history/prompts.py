"""The prompt of a turn: its history, and the note on the turn before it.

Both are read as they are, or repaired (H3, H5; sync ORM).
"""

from dataclasses import dataclass
from uuid import UUID

from turns.core.ports import Prompt
from turns.events import log
from turns.history.cache import CACHE
from turns.history.histories import Checked, History, load_repaired, note_on_previous, read
from turns.models import Conversation, Message

_FEW = 50  # messages that may be read while others wait to write


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPrompt:
    """A prompt; `checked` is how far its history was found to be valid, where that is worth being stored."""

    prompt: Prompt
    checked: Checked | None = None
    events: tuple[log.WireEvent, ...] = ()


def read_prompt(conversation_id: UUID, turn_id: UUID) -> ReadPrompt | None:
    """Return the prompt of a running turn; None if something has to be repaired."""
    history = read(conversation_id)
    return None if history is None else _with_note(history, conversation_id, turn_id)


def repair_prompt(conversation_id: UUID, turn_id: UUID) -> ReadPrompt:
    """Return the prompt of a running turn, and the events that tell of what was repaired for it."""
    history = load_repaired(conversation_id, found_when="before_model_call")
    return _with_note(history, conversation_id, turn_id)


def read_prompt_quickly(conversation: Conversation, message: Message) -> Prompt | None:
    """Return the prompt of a turn that begins with a message, if it takes but a moment to read. Else None."""
    known = CACHE.get(conversation.pk, version=conversation.history_version)
    if conversation.last_position - known.position > _FEW:
        return None
    history = read(conversation.pk, locked=conversation, added=message)
    if history is None or history.checked is not None:
        return None
    previous = conversation.last_number - 1
    needs_none = history.completed == previous  # 0 = there is none
    note = "" if needs_none else note_on_previous(conversation.pk, message.turn_id)
    return Prompt(messages=history.messages, note=note)


def _with_note(history: History, conversation_id: UUID, turn_id: UUID) -> ReadPrompt:
    prompt = Prompt(messages=history.messages, note=note_on_previous(conversation_id, turn_id))
    return ReadPrompt(prompt=prompt, checked=history.checked, events=history.events)
