"""The interfaces that the runner and the supervisor need: a journal for one turn, and a store for all turns."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from uuid import UUID

from governance import (
    Approver,
    Observer,
    ScopeKind,
    ToolCall,
    ToolOutcome,
)
from turns.core.chat_model import Notice
from turns.core.messages import Message, TextBlock
from turns.core.prompt_changes import PromptChange, PromptHead
from turns.core.turns import PendingRequest, TurnEnding
from turns.core.window import KEEP_ALL, Kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The history for the model, with the note about the previous turn (H5).

    `unchanged_from` is the id of the turn since which prompts were only extended at the end, except for messages that
    were no longer `kept`. If it is None, prompts were only extended since the first turn.
    """

    messages: tuple[Message, ...]
    note: str = ""
    unchanged_from: str | None = None
    kept: Kept = KEEP_ALL

    def with_note(self) -> list[Message]:
        """Return the messages with the note added to the last one. A note in the instructions would invalidate the
        provider's cache of all messages.
        """
        if not self.note:
            return list(self.messages)
        block = TextBlock(text=self.note)
        if self.messages and self.messages[-1].role == "user":
            *before, last = self.messages
            return [*before, replace(last, content=(block, *last.content))]
        return [*self.messages, Message(role="user", content=(block,))]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedTurn:
    """A turn that this process has claimed; `epoch` fences its writes. Durations are in seconds.

    `token_limit` is the maximum number of input and output tokens of the turn, and `family_token_limit` that of its
    whole family; None means that there is no limit. `kind` is the kind of message: text, voice, or from another turn.
    `traceparent` identifies the span that received the message. `user_id` is the id of the conversation's owner.
    """

    id: UUID
    conversation_id: UUID
    epoch: int
    agent: str
    user_message: str
    turn_timeout: float | None
    step_limit: int
    parent_id: UUID | None = None
    user_id: Any = None
    token_limit: int | None = None
    family_token_limit: int | None = None
    kind: ScopeKind = ScopeKind.TEXT_REPLY
    traceparent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An assistant message without calls, which ended a turn or was interrupted."""

    step: int
    message: Message


class TurnJournal(Observer, Approver, Protocol):
    """Writes the changes of one turn: every method first persists, then publishes.

    Each method raises `Fenced` if the turn has another owner, and `NotStored` if the database does not accept the
    write.
    """

    @property
    def answer(self) -> Answer | None:
        """Return the last answer if it has not been stored yet."""
        ...

    async def prompt(self, head: PromptHead) -> Prompt:
        """Return the valid history, including this turn's user message. Its repairs are stored (H3).

        The note becomes part of the history. If the prompt does not extend the previous one, the person sees the
        reason.
        """
        ...

    async def keep(self, selection: Kept, change: PromptChange) -> None:
        """Store which messages the next prompts contain, and notify the person of the change."""

    async def share_usage(self, usage: Mapping[str, int]) -> int:
        """Store the turn's usage so far; return the tokens used by the other turns of its family."""
        ...

    async def save_text(self, step: int, text: str) -> None:
        """Store the text so far of a step's assistant message; create the message if necessary."""

    async def save_reply(
        self,
        step: int,
        message: Message,
        calls: Sequence[ToolCall],
        *,
        interrupted: bool = False,
        usage: Mapping[str, int] | None = None,
    ) -> None:
        """Store the finished or interrupted assistant message and its calls, before any of them starts.

        The turn's `usage` so far is stored with the message, so that a crash does not lose it.

        The message may be stored together with the start of the first call. A message without calls may be kept as
        `answer`, which is stored with the turn's end.
        """

    def publish_text(
        self, text: str, offset: int, *, step: int, are_thoughts: bool = False
    ) -> None:
        """Push a delta of the answer or of the thoughts without waiting."""

    async def notify(self, notice: Notice) -> None:
        """Show the person a notice that is not part of the answer (an `error` event)."""


class TurnStore(Protocol):
    """The supervisor's interface to the database."""

    async def claim_next(self) -> ClaimedTurn | None:
        """Claim the next queued turn. Return None if no turn can start now.

        The oldest turn of the user with the fewest active turns is next; each conversation runs one turn at a time.
        """
        ...

    async def pending_requests(
        self, turn_ids: Sequence[UUID], questions: Sequence[str]
    ) -> list[PendingRequest]:
        """Return the unsettled requests for these turns, and the decisions on these questions."""
        ...

    async def pending_cancels(self, turn_id: UUID) -> Sequence[PendingRequest]:
        """Return the unsettled cancel requests for a turn that has just started."""
        ...

    def settle_requests(self, requests: Sequence[PendingRequest]) -> None:
        """Queue the settling of requests that were applied or came too late, without waiting for the database."""

    async def end_turn(
        self,
        turn: ClaimedTurn,
        ending: TurnEnding,
        *,
        steps: int,
        usage: dict[str, int],
        outcomes: Mapping[str, ToolOutcome],
        answer: Answer | None = None,
    ) -> None:
        """Set the turn's final status, which happens only once; close its calls and settle its requests.

        `outcomes` are the outcomes of the last step's calls, by id, whether stored or not. `answer` is the last answer
        if it has not been stored yet.
        """

    async def sweep(self, live: Callable[[], Collection[UUID]]) -> None:
        """End turns without a live owner, and turns of this process that are not in `live`.

        `live` is called as late as possible, in any thread, so that it includes turns that started during the sweep.
        """

    async def find_deleted(self, live: Collection[UUID]) -> Collection[UUID]:
        """Return the ids in `live` of turns whose rows no longer exist."""
        ...
