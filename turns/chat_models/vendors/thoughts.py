"""Thoughts that a model writes into its text, between tags: told apart from the answer, however they are cut up."""

import re
from collections.abc import Iterator

from turns.core.chat_model import ChatDelta, TextDelta, ThinkingDelta

_OPENING, _CLOSING = "<think>", "</think>"
_SIGNS = re.compile(rf"{_OPENING}|`+")


class Thoughts:
    """Passes the deltas of one answer on; text between `<think>` and `</think>` becomes thinking.

    Inside code, between backticks, a tag is what the answer speaks about. What may be the beginning of a tag is held
    back until it is known.
    """

    def __init__(self) -> None:
        self._held = ""
        self._is_thinking = False
        self._code = ""  # the backticks that will close it
        self._has_answered = False

    def take(self, delta: ChatDelta) -> Iterator[ChatDelta]:
        """Yield what the delta is known to be."""
        if isinstance(delta, TextDelta):
            self._held += delta.text
            yield from self._known()
        else:
            yield delta

    def rest(self) -> Iterator[ChatDelta]:
        """Yield what was held back, at the end of the answer."""
        yield from self._say(self._held)
        self._held = ""

    def _known(self) -> Iterator[ChatDelta]:
        while (sign := self._next_sign()) is not None:
            start, end = sign
            before, found = self._held[:start], self._held[start:end]
            self._held = self._held[end:]
            if found in {_OPENING, _CLOSING}:
                yield from self._say(before)
                self._is_thinking = found == _OPENING
            else:
                yield from self._say(before + found)
                self._code = "" if found == self._code else self._code or found
        certain = len(self._held) - self._uncertain()
        yield from self._say(self._held[:certain])
        self._held = self._held[certain:]

    def _next_sign(self) -> tuple[int, int] | None:
        """Return where the next tag or run of backticks is; a run that may go on is none yet."""
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
        """Return how many of the last characters may begin a tag, or belong to backticks that go on."""
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
