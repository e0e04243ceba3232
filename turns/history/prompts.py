"""The prompt of a turn: its history, the note on the previous turn, and whether it continues the previous prompt.

A history is read as stored, or repaired (H3, H5). `open_prompt` stores the changes. The functions here use the
synchronous ORM.
"""

from dataclasses import asdict, dataclass, replace
from uuid import UUID

from governance.sanitize import sanitize_text
from turns.core.events import PromptChanged, TurnEvent
from turns.core.ports import Prompt
from turns.core.prompt_changes import PromptChange, PromptHead
from turns.core.window import Kept
from turns.events import log
from turns.history.histories import (
    Checked,
    History,
    LastPrompt,
    load_repaired,
    note_on_previous,
    read,
)
from turns.models import Conversation, Message, Turn

_SINCE = "since"  # the key of the first turn's number, next to the fingerprints of a head


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The facts about a turn's prompt to store: its note, its head, and why it does not continue the previous
    prompt.
    """

    note: str
    change: PromptChange | None
    head: PromptHead
    version: int

    @property
    def is_waited_for(self) -> bool:
        """Whether this must be stored before the request to the model."""
        return bool(self.note or self.change)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPrompt:
    """A prompt; `checked` is the position up to which its history is valid, if that is worth storing."""

    prompt: Prompt
    checked: Checked | None = None
    events: tuple[log.WireEvent, ...] = ()
    opening: Opening | None = None


def read_prompt(conversation_id: UUID, turn_id: UUID, head: PromptHead) -> ReadPrompt | None:
    """Return the prompt of a running turn; None if its history needs a repair."""
    history = read(conversation_id)
    return None if history is None else _prompt_of(history, conversation_id, turn_id, head)


def repair_prompt(conversation_id: UUID, turn_id: UUID, head: PromptHead) -> ReadPrompt:
    """Return the prompt of a running turn, and the events about the repairs made for it."""
    history = load_repaired(conversation_id, found_when="before_model_call")
    return _prompt_of(history, conversation_id, turn_id, head)


def open_prompt(turn: Turn, opening: Opening) -> list[TurnEvent]:
    """Store the opening of the prompt of a turn whose conversation is locked. This is idempotent."""
    if opening.note:
        Message.objects.filter(turn=turn, role="user").update(note=opening.note)
    place = Conversation.objects.filter(pk=turn.conversation_id)
    head_on_row = place.values_list("prompt_head", flat=True).get()
    since = turn.number if opening.change else head_on_row.get(_SINCE, 0)
    place.update(prompt_head={**asdict(opening.head), _SINCE: since})
    if opening.change is None:
        return []
    Turn.objects.filter(pk=turn.pk).update(prompt_change=opening.change)
    # The next turn will report what has changed since the history was read.
    place.filter(history_version=opening.version).update(prompt_change="")
    return [PromptChanged(reason=opening.change)]


def keep(turn: Turn, selection: Kept, change: PromptChange) -> list[TurnEvent]:
    """Store which messages the prompts of a locked conversation still contain. This is idempotent."""
    Conversation.objects.filter(pk=turn.conversation_id).update(context=selection.to_json())
    summary = sanitize_text(selection.summary) if change is PromptChange.SUMMARY else ""
    columns = {"summary": summary} if summary else {}
    Turn.objects.filter(pk=turn.pk).update(prompt_change=change, **columns)
    return [PromptChanged(reason=change, summary=summary)]


def _prompt_of(
    history: History, conversation_id: UUID, turn_id: UUID, head: PromptHead
) -> ReadPrompt:
    note = "" if history.follows_completed else note_on_previous(conversation_id, turn_id)
    last = history.last
    change = _change_since(last, head)
    since = turn_id if change else _first_since(conversation_id, last.prompt_head.get(_SINCE, 0))
    prompt = Prompt(
        messages=history.messages,
        note=note,
        unchanged_from=None if since is None else str(since),
        kept=_kept(Kept.from_json(last.context)),
    )
    opening = Opening(note=note, change=change, head=head, version=last.history_version)
    is_new = opening.is_waited_for or not last.prompt_head
    return ReadPrompt(
        prompt=prompt,
        checked=history.checked,
        events=history.events,
        opening=opening if is_new else None,
    )


def _kept(selection: Kept) -> Kept:
    """Return the selection with its summary, which is empty if the content of its turn or an earlier one was
    deleted.
    """
    if not selection.summary_turn:
        return selection
    summary = (
        Turn.objects.filter(pk=selection.summary_turn).values_list("summary", flat=True).first()
    )
    return replace(selection, summary=summary or "")


def _change_since(last: LastPrompt, head: PromptHead) -> PromptChange | None:
    """Return why the prompt does not continue the last one. Before the first prompt, there is nothing to continue."""
    if not last.prompt_head:
        return None
    if last.prompt_change:
        return PromptChange(last.prompt_change)
    return head.change_since(last.prompt_head)


def _first_since(conversation_id: UUID, number: int) -> UUID | None:
    """Return the first turn of the history with this number or a later one; None if all turns have such numbers."""
    if not number:
        return None
    rows = Turn.objects.filter(conversation=conversation_id, number__gte=number, replaced_by=None)
    return rows.order_by("number").values_list("pk", flat=True).first()
