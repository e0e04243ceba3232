"""Renders the finished blocks of a streaming answer once for all sockets that requested HTML.

A block is finished when no further text can change it. `GrowingText` decides when to search for finished blocks, and
`finished_length` performs the search. The message that completes the answer contains the HTML of the whole text and
replaces these blocks.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from governance.per_loop import PerLoop
from governance.threads import run_in_thread
from turns.processes import background
from webchat.markdown import fence_after, render_markdown
from webchat.protocol.server_frames import TextHtml

Delta: TypeAlias = Mapping[str, Any]
MAX_TEXT = 200_000  # characters of an answer to render while it streams
MAX_BLOCK = 10_000  # characters to search for the end of a block; the end of a code block is found without a search
_MAY_END = re.compile(r"[ \t]*\r?$| {0,3}(?:#|```|~~~|[-*_=])")  # lines that may end a block
_WORDS = re.compile(r"(?:\*\*)?[^\W\d_]")  # the start of a line of a paragraph or a table
_LINE_END = re.compile(r"\r\n?|\n")
_CLOSING = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*$")
# Blocks that can continue after a blank line.
_GO_ON = {"bullet_list_open", "ordered_list_open", "code_block"}
_SINGLE = {"heading_open", "hr"}  # blocks that cannot grow


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Finished blocks that were found by one search, with their position in the text."""

    turn_id: str
    offset: int
    end: int
    html: str

    @cached_property
    def frame(self) -> str:
        """The encoded frame with the blocks. All sockets share it."""
        frame = TextHtml(turn_id=self.turn_id, offset=self.offset, end=self.end, html=self.html)
        return frame.model_dump_json()


class LiveAnswer:
    """The answer that streams in a conversation, with its finished blocks. All sockets of an event loop share it."""

    def __init__(self, rendering: asyncio.Lock) -> None:
        self.message = ("", 0)  # turn and step
        self.blocks: list[Blocks] = []
        self.readers: set[BlockReader] = set()
        self._growing = GrowingText()
        self._pieces: list[str] = []
        self._length = 0
        self._rendering = rendering
        self._is_rendering = False

    def add(self, delta: Delta) -> None:
        """Add a piece of text. Every socket adds each piece, and all copies but the first are ignored."""
        message, offset, text = message_of(delta), delta["offset"], delta["text"]
        if message != self.message:
            if offset > 0 or (message[0] == self.message[0] and message[1] < self.message[1]):
                return  # the piece is late, or the text before it is unknown
            self._begin(message)
        if offset > self._length:
            return  # there is a gap, which closes when a socket adds the whole text
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
        """Drop the answer if this message, which is complete now, is the one that streamed."""
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

    async def _render_finished(self, growing: "GrowingText") -> None:
        try:
            async with self._rendering:
                length, html = await run_in_thread(_render_finished, growing.search())
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
    """Return the length and HTML of the finished blocks. This takes several milliseconds, so call it in a thread."""
    length = finished_length(text)
    return length, render_markdown(text[:length])


def message_of(delta: Delta) -> tuple[str, int]:
    """Return the turn and the step of a piece of text."""
    return delta["turn_id"], delta.get("step", 0)


class LiveAnswers:
    """The streaming answers of an event loop. They are rendered one at a time, so that they occupy only one thread."""

    def __init__(self) -> None:
        self.by_conversation: dict[UUID, LiveAnswer] = {}
        self._rendering = asyncio.Lock()

    def of(self, conversation_id: UUID) -> LiveAnswer:
        """Return the answer of a conversation. Create it if it has no reader yet."""
        if conversation_id not in self.by_conversation:
            self.by_conversation[conversation_id] = LiveAnswer(self._rendering)
        return self.by_conversation[conversation_id]

    def forget(self, conversation_id: UUID) -> None:
        """Drop the answer of a conversation if it has no readers."""
        answer = self.by_conversation.get(conversation_id)
        if answer is not None and not answer.readers:
            del self.by_conversation[conversation_id]


live_answers: PerLoop[LiveAnswers] = PerLoop()


class BlockReader:
    """A client's position in the answer. The client gets each block once, after the block's text.

    `offer` queues a frame for the client, and returns whether the queue had room.
    """

    def __init__(self, conversation_id: UUID, *, offer: Callable[[str], bool]) -> None:
        self._conversation_id = conversation_id
        self._answers = live_answers.get_or_make(LiveAnswers)
        self._answer = self._answers.of(conversation_id)
        self._answer.readers.add(self)
        self._offer = offer
        self._message = ("", 0)
        self._text_end = 0
        self._sent = 0  # number of blocks that were sent

    def complete(self, text: str, *, turn_id: str, step: int) -> tuple[str, int]:
        """Return a text and its step, or the streaming answer and its step if the answer has more text."""
        live = self._answer
        if live.message[0] != turn_id or live.message[1] < step or len(live.text) <= len(text):
            return text, step
        return live.text, live.message[1]

    def note(self, delta: Delta) -> None:
        """Record that the client received a piece of text."""
        self._answer.add(delta)
        offset, end = delta["offset"], delta["offset"] + len(delta["text"])
        if offset == 0:
            self._message, self._text_end, self._sent = message_of(delta), end, 0
        elif offset <= self._text_end and self._message == message_of(delta):
            self._text_end = max(self._text_end, end)
        self.send()

    def send(self) -> None:
        if self._message != self._answer.message:
            return
        for blocks in self._answer.blocks[self._sent :]:
            if blocks.end > self._text_end or not self._offer(blocks.frame):
                return
            self._sent += 1

    def finish(self, turn_id: str, step: int) -> None:
        """Record that the client received the whole message."""
        self._answer.finish((turn_id, step))
        self._message = ("", 0)

    def close(self) -> None:
        """Stop reading, and drop the answer if it has no other readers."""
        self._answer.readers.discard(self)
        self._answers.forget(self._conversation_id)


if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


class GrowingText:
    """The unfinished end of an answer. The time to add a piece does not depend on the length of the text."""

    def __init__(self) -> None:
        self.offset = 0  # position of the unfinished text in the answer
        self._begin("")

    @property
    def is_due(self) -> bool:
        return self._may_have_end and len(self._text) >= self._enough

    def add(self, text: str) -> None:
        if self._is_given_up:
            return
        self._text += text[: MAX_TEXT - self.offset - len(self._text)]
        if "\n" in text or self._is_after_blank:
            self._scan()

    def search(self) -> str:
        """Return the part of the text to search for finished blocks."""
        self._may_have_end = False
        return self._text if self._is_code else self._text[:MAX_BLOCK]

    def drop(self, length: int) -> None:
        """Drop the finished text. After an unsuccessful search, the text must grow by a quarter before the next search."""
        self.offset += length
        if length:
            self._begin(self._text[length:])
        elif len(self._text) < MAX_BLOCK:
            self._enough = len(self._text) * 5 // 4
            self._scan()
        else:
            self.give_up()

    def give_up(self) -> None:
        """Stop searching. The message that completes the answer will contain the rest."""
        self._begin("")
        self._is_given_up = True

    def _begin(self, text: str) -> None:
        self._text = text
        self._is_given_up = self._may_have_end = self._is_after_blank = self._has_begun = False
        self._enough = 0
        self._scanned = 0  # length of the complete lines that were scanned
        self._fence = ""  # opening fence of the code block at the start of the text
        self._is_code = False  # whether that code block has ended
        self._scan()

    def _scan(self) -> None:
        """Scan new lines until one of them may end a block."""
        while not self.is_due and (self._fence or self._scanned < MAX_BLOCK):
            if not (end := self._text.find("\n", self._scanned) + 1):
                break
            self._scan_line(self._text[self._scanned : end])
            self._scanned = end
        self._look_for_paragraph()

    def _look_for_paragraph(self) -> None:
        """Request a search if a paragraph begins after a blank line, because the block before it has ended then."""
        if self._is_after_blank and _WORDS.match(self._text, self._scanned):
            self._may_have_end, self._is_after_blank, self._enough = True, False, 0

    def _scan_line(self, line: str) -> None:
        is_blank = not line.strip()
        was_code = bool(self._fence)
        self._look_for_paragraph()
        if was_code or not (self._has_begun or is_blank):
            self._fence = fence_after(line, self._fence)
        self._is_code = self._is_code or (was_code and not self._fence)
        if self._is_code or not (self._fence or was_code):
            may_end = self._is_code or self._is_after_blank or _MAY_END.match(line)
            self._may_have_end = self._may_have_end or bool(may_end)
        self._is_after_blank = is_blank and not self._fence
        self._has_begun = self._has_begun or not is_blank


def finished_length(text: str) -> int:
    """Return the length of the finished blocks at the beginning of a text, including the blank lines after them."""
    lines_text = text[: _known_length(text)]
    blocks = [
        token for token in _parser().parse(lines_text) if token.level == 0 and token.nesting >= 0
    ]
    starts = [0, *(line_end.end() for line_end in _LINE_END.finditer(lines_text))]
    lines = [lines_text[start:end].rstrip("\r\n") for start, end in pairwise(starts)]
    if blocks and not _is_finished(blocks[-1], lines):
        blocks.pop()
    if not blocks:
        return 0
    end = _end_of(blocks[-1])
    while end < len(lines) and _is_blank(lines[end]):
        end += 1
    return starts[end]


def _known_length(text: str) -> int:
    """Return the length of the lines whose type is certain: the complete lines, and a last line that begins with a
    word.
    """
    end = text.rfind("\n") + 1
    return len(text) if _WORDS.match(text, end) else end


def _is_finished(block: "Token", lines: list[str]) -> bool:
    """Return whether the last block of a text can no longer grow."""
    if block.type in _SINGLE:
        return True
    end = _end_of(block)
    if block.type == "fence":
        closing = _CLOSING.match(lines[end - 1]) if end <= len(lines) else None
        is_other_line = block.map is not None and end - 1 > block.map[0]
        return bool(closing and is_other_line and closing[1].startswith(block.markup))
    return block.type not in _GO_ON and end < len(lines) and _is_blank(lines[end])


def _end_of(block: "Token") -> int:
    """Return the number of the line after a block."""
    return block.map[1] if block.map else 0


def _is_blank(line: str) -> bool:
    return not line.strip(" \t")


@cache
def _parser() -> "MarkdownIt":
    """Return a parser for blocks without inline markup. It has the same block rules as `markdown_rules`."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - most processes never parse Markdown

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser
