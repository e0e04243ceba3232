"""Separates the thoughts that some models write into their text, between tags, from the answer; marks models by how
they treat thoughts and messages.
"""

import re
from collections.abc import Iterator

from turns.core.chat_model import ChatDelta, TextDelta, ThinkingDelta

_OPENING, _CLOSING = "<think>", "</think>"
_SIGNS = re.compile(rf"{_OPENING}|`+")


class ThinksInText:
    """Marks models that may write their thoughts into their text."""


class BindsThoughts:
    """Marks models that accept their earlier thoughts only if the history before them is unchanged."""


class KeepsMessagesApart:
    """Marks models that accept two user messages in a row, so that messages that were already sent never change."""


class Thoughts:
    """Forwards the deltas of one answer, and converts text between `<think>` and `</think>` to thoughts.

    Inside code, between backticks, a tag is part of the answer. Text that may be the start of a tag is held back until
    the rest of it has arrived.
    """

    def __init__(self) -> None:
        self._held = ""
        self._is_thinking = False
        self._code = ""  # the backticks that will close the current code
        self._has_answered = False

    def take(self, delta: ChatDelta) -> Iterator[ChatDelta]:
        """Accept the next delta of the answer, and yield the deltas that can be forwarded now."""
        if isinstance(delta, TextDelta):
            self._held += delta.text
            yield from self._certain()
        else:
            yield delta

    def rest(self) -> Iterator[ChatDelta]:
        """Yield the text that was held back, at the end of the answer."""
        yield from self._say(self._held)
        self._held = ""

    def _certain(self) -> Iterator[ChatDelta]:
        while (span := self._next_sign()) is not None:
            start, end = span
            text, sign = self._held[:start], self._held[start:end]
            self._held = self._held[end:]
            if sign in {_OPENING, _CLOSING}:
                yield from self._say(text)
                self._is_thinking = sign == _OPENING
            else:
                yield from self._say(text + sign)
                self._code = "" if sign == self._code else self._code or sign
        length = len(self._held) - self._uncertain()
        yield from self._say(self._held[:length])
        self._held = self._held[length:]

    def _next_sign(self) -> tuple[int, int] | None:
        """Return the span of the next tag or run of backticks; None if there is none, or the run may continue."""
        if self._is_thinking:
            start = self._held.find(_CLOSING)
            return None if start < 0 else (start, start + len(_CLOSING))
        for sign in _SIGNS.finditer(self._held):
            if sign[0] == _OPENING and self._code:
                continue
            if sign[0] != _OPENING and sign.end() == len(self._held):
                return None
            return sign.span()
        return None

    def _uncertain(self) -> int:
        """Return how many of the last characters may begin a tag, or belong to a run of backticks that may continue."""
        tag = _CLOSING if self._is_thinking else _OPENING
        for length in range(min(len(tag) - 1, len(self._held)), 0, -1):
            if tag.startswith(self._held[-length:]):
                return length
        return 0 if self._is_thinking else len(self._held) - len(self._held.rstrip("`"))

    def _say(self, text: str) -> Iterator[ChatDelta]:
        if self._is_thinking:
            if text:
                yield ThinkingDelta(text)
            return
        if not self._has_answered:  # the lines between the thoughts and the answer
            text = text.lstrip()
        if text:
            self._has_answered = True
            yield TextDelta(text)
