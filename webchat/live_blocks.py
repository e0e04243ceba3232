"""The finished blocks of an answer while it streams, rendered once for all sockets that asked for HTML.

The message that follows has the HTML of the whole. That is the truth, and it takes the place of these blocks.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias
from uuid import UUID

from governance.per_loop import PerLoop
from turns.processes import background
from webchat.markdown import render_markdown
from webchat.markdown_blocks import GrowingText, finished_length
from webchat.protocol.server_frames import TextHtml

Delta: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Blocks that were finished at the same time, and where they stand in the text."""

    turn_id: str
    offset: int
    end: int
    html: str

    @cached_property
    def frame(self) -> str:
        """What is sent of them, encoded once."""
        frame = TextHtml(turn_id=self.turn_id, offset=self.offset, end=self.end, html=self.html)
        return frame.model_dump_json()


class LiveAnswer:
    """The answer that streams in a conversation: what of it is finished, for all sockets of one event loop."""

    def __init__(self, rendering: asyncio.Lock) -> None:
        self.message = ("", 0)  # its turn and its step
        self.blocks: list[Blocks] = []
        self.readers: set[BlockReader] = set()
        self._growing = GrowingText()
        self._pieces: list[str] = []
        self._length = 0
        self._rendering = rendering
        self._is_rendering = False

    def add(self, delta: Delta) -> None:
        """Take a piece of text; each socket brings it, and the first one counts."""
        message, offset, text = message_of(delta), delta["offset"], delta["text"]
        if message != self.message:
            if offset > 0 or (message[0] == self.message[0] and message[1] < self.message[1]):
                return  # late, or its beginning is not known here
            self._begin(message)
        if offset > self._length:
            return  # who asks for all of it brings it here
        text = text[self._length - offset :]
        self._length += len(text)
        self._pieces.append(text)
        self._growing.add(text)
        if self._growing.is_due and not self._is_rendering:
            self._is_rendering = True
            background.spawn(self._render(), name=f"blocks {self.message[0]}")

    @property
    def text(self) -> str:
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    def finish(self, message: tuple[str, int]) -> None:
        """Forget the answer: its message is complete."""
        if message == self.message:
            self._begin(("", 0))

    def _begin(self, message: tuple[str, int]) -> None:
        self.message = message
        self.blocks = []
        self._growing = GrowingText()
        self._pieces = []
        self._length = 0

    async def _render(self) -> None:
        try:
            while (growing := self._growing).is_due:
                await self._render_finished(growing)
        finally:
            self._is_rendering = False

    async def _render_finished(self, growing: GrowingText) -> None:
        try:
            async with self._rendering:
                length, html = await asyncio.to_thread(_render_finished, growing.search())
        except BaseException:
            growing.give_up()
            raise
        offset = growing.offset
        growing.drop(length)
        if growing is self._growing and length:
            turn_id, _step = self.message
            end = offset + length
            self.blocks.append(Blocks(turn_id=turn_id, offset=offset, end=end, html=html))
            for reader in tuple(self.readers):
                reader.send()


def _render_finished(text: str) -> tuple[int, str]:
    """Return how much of a text is finished, and its HTML. This takes a thread some milliseconds."""
    length = finished_length(text)
    return length, render_markdown(text[:length])


def message_of(delta: Delta) -> tuple[str, int]:
    """Return the turn and the step of a piece of text."""
    return delta["turn_id"], delta.get("step", 0)


class LiveAnswers:
    """The answers that are read on one event loop. They are rendered one by one: however many stream, they take one thread."""

    def __init__(self) -> None:
        self.by_conversation: dict[UUID, LiveAnswer] = {}
        self._rendering = asyncio.Lock()

    def of(self, conversation_id: UUID) -> LiveAnswer:
        """Return the answer of a conversation, made now if nobody reads it yet."""
        if conversation_id not in self.by_conversation:
            self.by_conversation[conversation_id] = LiveAnswer(self._rendering)
        return self.by_conversation[conversation_id]

    def forget(self, conversation_id: UUID) -> None:
        """Drop the answer of a conversation that nobody reads."""
        answer = self.by_conversation.get(conversation_id)
        if answer is not None and not answer.readers:
            del self.by_conversation[conversation_id]


live_answers: PerLoop[LiveAnswers] = PerLoop()


class BlockReader:
    """What one client has of the answer: it gets each block once, after the block's text. `offer` returns whether it was sent."""

    def __init__(self, conversation_id: UUID, *, offer: Callable[[str], bool]) -> None:
        self._conversation_id = conversation_id
        self._answers = live_answers.get_or_make(LiveAnswers)
        self._answer = self._answers.of(conversation_id)
        self._answer.readers.add(self)
        self._offer = offer
        self._message = ("", 0)
        self._text_end = 0
        self._sent = 0  # of the blocks

    def complete(self, text: str, *, turn_id: str, step: int) -> tuple[str, int]:
        """Return the answer's text so far and its step, where more is known here than this text."""
        live = self._answer
        if live.message[0] != turn_id or live.message[1] < step or len(live.text) <= len(text):
            return text, step
        return live.text, live.message[1]

    def note(self, delta: Delta) -> None:
        """The client has got a piece of text."""
        self._answer.add(delta)
        offset, end = delta["offset"], delta["offset"] + len(delta["text"])
        if offset == 0:
            self._message, self._text_end, self._sent = message_of(delta), end, 0
        elif offset <= self._text_end and self._message == message_of(delta):
            self._text_end = max(self._text_end, end)
        self.send()

    def send(self) -> None:
        """Send the blocks that are finished."""
        if self._message != self._answer.message:
            return
        for blocks in self._answer.blocks[self._sent :]:
            if blocks.end > self._text_end or not self._offer(blocks.frame):
                return
            self._sent += 1

    def finish(self, turn_id: str, step: int) -> None:
        """The client has got the whole message."""
        self._answer.finish((turn_id, step))
        self._message = ("", 0)

    def close(self) -> None:
        """Read no more; what nobody reads is forgotten."""
        self._answer.readers.discard(self)
        self._answers.forget(self._conversation_id)
