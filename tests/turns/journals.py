"""Journals: a record of a turn in memory, for tests of what runs turns."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from governance import DeadlineChange, Decision, LateSettlement, LiveCall, ToolCall, ToolOutcome
from tests.support import PATIENCE
from turns.core.chat_model import Notice
from turns.core.exceptions import Fenced
from turns.core.messages import Message, TextBlock, ToolResultBlock
from turns.core.ports import Prompt
from turns.core.prompt_changes import PromptChange, PromptHead
from turns.core.window import KEEP_ALL, Kept


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedReply:
    """An assistant message as it was stored."""

    step: int
    message: Message
    calls: tuple[ToolCall, ...]
    interrupted: bool


class RecordingJournal:
    """A `TurnJournal` in memory. `entries` lists what was written, in order: ("call_started", "c1"), ("save_reply", 1).

    `fence()` makes every later write raise `Fenced`, `fail(name, error)` one kind of write raise. `hold(name)` returns
    an event that such writes wait for: all of them, or those `of` one call or step. `until` waits, bounded, until
    something was written.
    """

    def __init__(self, *messages: Message | str, note: str = "") -> None:
        self.entries: list[tuple[str, object]] = []
        self.replies: list[SavedReply] = []
        self.published: list[tuple[int, str]] = []
        self.published_thoughts: list[tuple[int, str]] = []
        self.saved_texts: dict[int, str] = {}
        self.notices: list[tuple[str, str]] = []
        self.used_by_others = 0
        self.kept = KEEP_ALL
        self.asked: dict[str, LiveCall] = {}
        self.decisions: dict[str, Decision] = {}
        self.started: dict[str, LiveCall] = {}
        self.outcomes: dict[str, ToolOutcome] = {}
        self.late: dict[str, LateSettlement] = {}
        self._prompt = Prompt(messages=tuple(map(_as_message, messages)), note=note)
        self._is_fenced = False
        self._errors: dict[tuple[str, object], Exception] = {}
        self._holds: dict[tuple[str, object], asyncio.Event] = {}
        self._news = asyncio.Event()

    @property
    def text(self) -> str:
        """All that was pushed to whoever watches, one step after the other."""
        return "".join(text for _offset, text in self.published)

    @property
    def history(self) -> tuple[Message, ...]:
        """The conversation as the next request would see it."""
        return (*self._prompt.messages, *self._said())

    def names(self, name: str) -> list[object]:
        """Return what was written under a name: the ids of the calls, or the steps."""
        return [what for written, what in self.entries if written == name]

    def fence(self) -> None:
        """Let the turn belong to another owner from now on."""
        self._is_fenced = True

    def fail(self, name: str, error: Exception, *, of: object = None) -> None:
        """Let the writes of this name raise."""
        self._errors[name, of] = error

    def hold(self, name: str, *, of: object = None) -> asyncio.Event:
        """Let the writes of this name wait until the returned event is set."""
        return self._holds.setdefault((name, of), asyncio.Event())

    async def until(self, name: str, what: object, *, timeout: float = PATIENCE) -> None:
        """Wait until this was written (a write that is held counts). Raise `TimeoutError` if it never is."""
        async with asyncio.timeout(timeout):
            while (name, what) not in self.entries:
                self._news.clear()
                await self._news.wait()

    async def prompt(self, head: PromptHead) -> Prompt:
        """Return the messages it was made with."""
        await self._write("prompt", None)
        return self._prompt

    def begin_with(self, kept: Kept) -> None:
        """Let the prompt have left this out before."""
        self._prompt = replace(self._prompt, kept=kept)

    async def keep(self, kept: Kept, change: PromptChange) -> None:
        """Remember."""
        await self._write("keep", change)
        self.kept = kept

    async def share_usage(self, usage: Mapping[str, int]) -> int:
        """Remember; a test says in `used_by_others` what the family has used."""
        await self._write("share_usage", sum(usage.values()))
        return self.used_by_others

    @property
    def answer(self) -> None:
        """All is remembered at once."""

    async def save_text(self, step: int, text: str) -> None:
        """Remember."""
        await self._write("save_text", step)
        self.saved_texts[step] = text

    async def save_reply(
        self,
        step: int,
        message: Message,
        calls: Sequence[ToolCall],
        *,
        interrupted: bool = False,
        usage: Mapping[str, int] | None = None,
    ) -> None:
        """Remember; an empty message is not kept."""
        await self._write("save_reply", step)
        reply = SavedReply(step=step, message=message, calls=tuple(calls), interrupted=interrupted)
        if not message.is_empty:
            self.replies.append(reply)

    def publish_text(
        self, text: str, offset: int, *, step: int, are_thoughts: bool = False
    ) -> None:
        """Remember."""
        if are_thoughts:
            self.published_thoughts.append((offset, text))
            return
        self._note("publish_text", offset)
        self.published.append((offset, text))
        self._raise("publish_text", offset)

    async def notify(self, notice: Notice) -> None:
        """Remember."""
        await self._write("notify", notice.code)
        self.notices.append((notice.code, notice.message))

    async def ask(self, call: LiveCall) -> Decision | None:
        """Remember; a test answers with `call.answer`."""
        await self._write("ask", call.id)
        self.asked[call.id] = call
        return None

    async def conclude(self, call: LiveCall, decision: Decision) -> Decision:
        """Remember; what comes first counts."""
        await self._write("conclude", call.id)
        self.decisions[call.id] = decision
        return decision

    async def call_started(self, call: LiveCall) -> None:
        """Remember."""
        await self._write("call_started", call.id)
        self.started[call.id] = call

    async def call_queued(self, call: LiveCall) -> None:
        """Remember."""
        await self._write("call_queued", call.id)

    async def call_progressed(self, call: LiveCall) -> None:
        """Remember."""
        await self._write("call_progressed", call.id)

    async def deadline_moved(self, call: LiveCall, change: DeadlineChange) -> None:
        """Remember."""
        await self._write("deadline_moved", call.id)

    async def call_cancelling(self, call: LiveCall) -> None:
        """Remember."""
        await self._write("call_cancelling", call.id)

    async def call_ended(self, call: LiveCall, outcome: ToolOutcome) -> None:
        """Remember."""
        await self._write("call_ended", call.id)
        self.outcomes[call.id] = outcome

    async def call_settled_late(self, call: LiveCall, late: LateSettlement) -> None:
        """Remember."""
        await self._write("call_settled_late", call.id)
        self.late[call.id] = late

    async def _write(self, name: str, what: object) -> None:
        self._note(name, what)
        held = self._holds.get((name, what)) or self._holds.get((name, None))
        if held is not None:
            await held.wait()
        if self._is_fenced:
            raise Fenced("the turn belongs to another owner")
        self._raise(name, what)

    def _note(self, name: str, what: object) -> None:
        self.entries.append((name, what))
        self._news.set()

    def _raise(self, name: str, what: object) -> None:
        error = self._errors.get((name, what)) or self._errors.get((name, None))
        if error is not None:
            raise error

    def _said(self) -> Iterator[Message]:
        for reply in self.replies:
            yield reply.message
            ended = [
                (call, self.outcomes[call.id]) for call in reply.calls if call.id in self.outcomes
            ]
            if ended:
                yield Message(
                    role="user", content=tuple(_block(call, outcome) for call, outcome in ended)
                )


def _block(call: ToolCall, outcome: ToolOutcome) -> ToolResultBlock:
    return ToolResultBlock(tool_use_id=call.id, content=outcome.result, is_error=outcome.is_error)


def _as_message(message: Message | str) -> Message:
    if isinstance(message, Message):
        return message
    return Message(role="user", content=(TextBlock(text=message),))
