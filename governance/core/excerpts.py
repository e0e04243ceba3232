"""Excerpts, which keep the beginning and the end of a long text in bounded memory."""

import re
from collections import deque
from typing import Self

_MARKER_ROOM = 60
_LINE = 200
_ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(\x07|\x1b\\)?|[ -/]+[0-~]|.)")


class ExactText(str):
    """A result that must stay unchanged, such as a file's text, because edits are matched against it."""


class Excerpt:
    """The first `head` and the last `tail` characters of a text that is added piece by piece."""

    def __init__(self, *, head: int, tail: int) -> None:
        self._head_room = head
        self._tail_room = tail
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._tail_length = 0
        self.total = 0

    @classmethod
    def within(cls, limit: int) -> Self:
        """Return an empty excerpt of at most `limit` characters, including a line that states how much was omitted."""
        room = max(limit - _MARKER_ROOM, 2)
        return cls(head=room // 2, tail=room - room // 2)

    def add(self, text: str) -> None:
        self.total += len(text)
        head, text = text[: self._head_room], text[self._head_room :]
        if head:
            self._head.append(head)
            self._head_room -= len(head)
        if text and self._tail_room:
            self._add_to_tail(text)

    def __str__(self) -> str:
        head, tail = "".join(self._head), "".join(self._tail)
        tail = tail[max(len(tail) - self._tail_room, 0) :]
        left_out = self.total - len(head) - len(tail)
        gap = f"\n… {spaced(left_out)} characters left out …\n" if left_out else ""
        return f"{head}{gap}{tail}"

    def _add_to_tail(self, text: str) -> None:
        self._tail.append(text[-self._tail_room :])
        self._tail_length += len(self._tail[-1])
        while self._tail_length - len(self._tail[0]) >= self._tail_room:
            self._tail_length -= len(self._tail.popleft())


def excerpt(text: str, *, limit: int) -> str:
    """Return the text, without its middle if it is longer than `limit`. Most of what is kept is the beginning."""
    if len(text) <= limit:
        return text
    tail = limit // 4
    cut_text = Excerpt(head=limit - tail, tail=tail)
    cut_text.add(text)
    return str(cut_text)


def shortened(text: str, *, limit: int) -> str:
    """Return the text, cut to `limit` characters with an ellipsis if it is longer."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def spaced(number: int) -> str:
    """Return a number with its digits in groups of three, such as 9 950 000."""
    return f"{number:,}".replace(",", " ")


def as_displayed(text: str) -> str:
    """Return the text as a terminal displays it, without escape sequences and with only the last state of each line."""
    if isinstance(text, ExactText):
        return text
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    return "\n".join(map(_last_frame, text.split("\n"))) if "\r" in text else text


def _last_frame(line: str) -> str:
    body = line.rstrip("\r")
    return line[body.rfind("\r") + 1 :]


def last_lines(text: str, count: int) -> str:
    """Return the last `count` non-empty lines as plain text, each cut to a maximum length."""
    lines = text[-4 * _LINE * count :].splitlines()
    plain = ["".join(c for c in _ESCAPE.sub("", line) if c.isprintable()).strip() for line in lines]
    return "\n".join([shortened(line, limit=_LINE) for line in plain if line][-count:])
