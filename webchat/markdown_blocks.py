"""Where the blocks of a growing Markdown text end: those at its beginning that no further text can change.

`GrowingText` says when it is worth looking, `finished_length` looks.
"""

import re
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from webchat.markdown import fence_after

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_TEXT = 200_000  # characters of an answer whose blocks are looked for while it streams
MAX_BLOCK = 10_000  # characters in which the end of a block is looked for; that of code is known without looking
_MAY_END = re.compile(r"[ \t]*\r?$| {0,3}(?:#|```|~~~|[-*_=])")  # a line that may end a block
_WORDS = re.compile(r"(?:\*\*)?[^\W\d_]")  # begins a line of a paragraph or of a table
_LINE_END = re.compile(r"\r\n?|\n")
_CLOSING = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*$")
_GO_ON = {"bullet_list_open", "ordered_list_open", "code_block"}  # also after a blank line
_SINGLE = {"heading_open", "hr"}  # nothing can be added to them


class GrowingText:
    """The end of an answer, whose last block grows. Adding a piece costs the same, however much is there."""

    def __init__(self) -> None:
        self.offset = 0  # where the text begins in the answer
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
        """Return the text at whose beginning there may be finished blocks."""
        self._may_have_end = False
        return self._text if self._is_code else self._text[:MAX_BLOCK]

    def drop(self, length: int) -> None:
        """Forget what is finished. After a search in vain the text has to grow by a quarter before the next one."""
        self.offset += length
        if length:
            self._begin(self._text[length:])
        elif len(self._text) < MAX_BLOCK:
            self._enough = len(self._text) * 5 // 4
            self._scan()
        else:
            self.give_up()

    def give_up(self) -> None:
        """Leave the rest to the message."""
        self._begin("")
        self._is_given_up = True

    def _begin(self, text: str) -> None:
        self._text = text
        self._is_given_up = self._may_have_end = self._is_after_blank = self._has_begun = False
        self._enough = 0
        self._scanned = 0  # up to the line that is not whole yet
        self._fence = ""  # the line that has begun the code with which the text begins
        self._is_code = False  # and which has ended
        self._scan()

    def _scan(self) -> None:
        """Look at the lines that are new, up to one that is worth a search."""
        while not self.is_due and (self._fence or self._scanned < MAX_BLOCK):
            if not (end := self._text.find("\n", self._scanned) + 1):
                break
            self._scan_line(self._text[self._scanned : end])
            self._scanned = end
        self._look_for_paragraph()

    def _look_for_paragraph(self) -> None:
        """What stands before a paragraph has ended for certain: no need to grow."""
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
    """Return how many characters at the beginning are finished blocks, with the blank lines behind them."""
    known = text[: _known_length(text)]
    blocks = [token for token in _parser().parse(known) if token.level == 0 and token.nesting >= 0]
    starts = [0, *(found.end() for found in _LINE_END.finditer(known))]
    lines = [known[start:end].rstrip("\r\n") for start, end in pairwise(starts)]
    if blocks and not _is_finished(blocks[-1], lines):
        blocks.pop()
    if not blocks:
        return 0
    end = _end_of(blocks[-1])
    while end < len(lines) and _is_blank(lines[end]):
        end += 1
    return starts[end]


def _known_length(text: str) -> int:
    """Return where the known lines end: whole ones, and a last one that begins with words."""
    end = text.rfind("\n") + 1
    return len(text) if _WORDS.match(text, end) else end


def _is_finished(block: "Token", lines: list[str]) -> bool:
    """Whether the last block of a text can grow no more."""
    if block.type in _SINGLE:
        return True
    end = _end_of(block)
    if block.type == "fence":
        closing = _CLOSING.match(lines[end - 1]) if end <= len(lines) else None
        is_other_line = block.map is not None and end - 1 > block.map[0]
        return bool(closing and is_other_line and closing[1].startswith(block.markup))
    return block.type not in _GO_ON and end < len(lines) and _is_blank(lines[end])


def _end_of(block: "Token") -> int:
    """Return the line behind a block."""
    return block.map[1] if block.map else 0


def _is_blank(line: str) -> bool:
    return not line.strip(" \t")


@cache
def _parser() -> "MarkdownIt":
    """Return a parser of blocks alone, the same ones that `markdown_rules` renders."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - most processes that start parse nothing

    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser
