"""What the runner and the supervisor need from outside: a journal for one turn, a store for all."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol
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
from turns.core.requests import PendingRequest
from turns.core.turns import TurnEnding


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The history to send and what the model must be told of the turn before it (H5)."""

    messages: tuple[Message, ...]
    note: str = ""

    def with_note(self) -> list[Message]:
        """Put the note into the last message: in the instructions it would cost the provider's cache of all the others."""
        if not self.note:
            return list(self.messages)
        block = TextBlock(text=self.note)
        if self.messages and self.messages[-1].role == "user":
            *before, last = self.messages
            return [*before, replace(last, content=(block, *last.content))]
        return [*self.messages, Message(role="user", content=(block,))]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedTurn:
    """A turn that this process owns from now on; `epoch` fences its writes. Spans in seconds.

    `token_limit` is the most tokens that it may use in all, in and out. `family_token_limit` is the same for all turns
    of its family. None = no limit. `kind` says whether it answers a text, a voice, or another turn. `is_new`: it was
    stored and claimed in one, so nothing was asked of it before. `prompt` and `agent_config` are there where they were
    read with the claim. `traceparent` names the span in which its message was taken.
    """

    id: UUID
    conversation_id: UUID
    epoch: int
    agent: str
    user_message: str
    turn_timeout: float | None
    step_limit: int
    parent_id: UUID | None = None
    token_limit: int | None = None
    family_token_limit: int | None = None
    kind: ScopeKind = ScopeKind.TEXT_REPLY
    is_new: bool = False
    prompt: Prompt | None = None
    agent_config: object = None
    traceparent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An assistant's message without calls: with it a turn ends, or was cut off."""

    step: int
    message: Message


class TurnJournal(Observer, Approver, Protocol):
    """Writes one turn: every method persists, then publishes.

    Each raises `Fenced` if the turn has another owner, and `NotStored` if the database does not take the write.
    """

    @property
    def answer(self) -> Answer | None:
        """What was said last, if it is not stored yet."""
        ...

    async def prompt(self) -> Prompt:
        """Return the history up to and with this turn's user message: valid, repairs persisted (H3)."""
        ...

    async def share_usage(self, usage: Mapping[str, int]) -> int:
        """Store what the turn has cost so far; return what the other turns of its family have, in tokens."""
        ...

    async def save_text(self, step: int, text: str) -> None:
        """Store the text so far of the assistant message of a step; the first one begins it."""

    async def save_reply(
        self, step: int, message: Message, calls: Sequence[ToolCall], *, interrupted: bool = False
    ) -> None:
        """Take the finished (or interrupted) assistant message and its calls. It is stored before any of them starts.

        It may be stored with the start of the first one. One without calls may be kept as `answer`, which is stored with the
        turn's end.
        """

    def publish_text(self, text: str, offset: int, *, step: int) -> None:
        """Push a delta without waiting; never fails."""

    async def notify(self, notice: Notice) -> None:
        """Tell the person something that is no answer (an `error` event)."""


class TurnStore(Protocol):
    """Keeps turns; the supervisor's view of the database."""

    async def claim_next(self) -> ClaimedTurn | None:
        """Make the queued turn that is next ours and running; None if none can begin now.

        Next is the oldest one of whoever has the fewest turns at work; each conversation has one at a time.
        """
        ...

    async def pending_requests(
        self, turn_ids: Sequence[UUID], questions: Sequence[str]
    ) -> list[PendingRequest]:
        """Return the unsettled requests for these turns, and the decisions on these questions."""
        ...

    def settle_requests(self, requests: Sequence[PendingRequest]) -> None:
        """Let it be stored that these requests were applied, or came too late; nobody waits for that."""

    async def end_turn(
        self,
        turn: ClaimedTurn,
        ending: TurnEnding,
        *,
        steps: int,
        usage: dict[str, int],
        outcomes: Mapping[str, ToolOutcome],
        answer: Answer | None = None,
    ) -> bool:
        """Give the turn its terminal status, once: close its calls, settle its requests.

        Return whether another turn may begin somewhere now; nobody was told of one that waited before that. `outcomes` are those of its last calls, by id, stored or not. `answer` is what it said last, if that is not
        stored yet.
        """
        ...

    async def sweep(self, live: Callable[[], Collection[UUID]]) -> None:
        """End the turns that have no live owner, and those that name this process although it runs only `live`.

        That is asked as late as can be, in any thread: what begins while the sweep waits is live.
        """

    async def find_deleted(self, live: Collection[UUID]) -> Collection[UUID]:
        """Return the turns of `live` that are stored nowhere any more."""
        ...

    async def dispatch_again(self) -> None:
        """Dispatch turns again that were queued a while ago and that nobody has claimed."""

    async def waiting_conversations(self) -> list[UUID]:
        """Return the conversations that have a queued turn and no live one, in the order in which they are next."""
        ...
