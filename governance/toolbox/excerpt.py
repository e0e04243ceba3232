"""The beginning and the end of a long text, in bounded memory."""

from collections import deque

_MARKER_ROOM = 60


class Excerpt:
    """Takes a text piece by piece and keeps its first and last characters, `limit` in all."""

    def __init__(self, limit: int) -> None:
        room = max(limit - _MARKER_ROOM, 2)
        self._head_room = room // 2
        self._tail_room = room - self._head_room
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._tail_length = 0
        self.total = 0

    def add(self, text: str) -> None:
        """Take the next piece."""
        self.total += len(text)
        head, text = text[: self._head_room], text[self._head_room :]
        if head:
            self._head.append(head)
            self._head_room -= len(head)
        if text:
            self._add_to_tail(text)

    def render(self) -> str:
        """Return what was kept, with a line in between that says how much was not."""
        head, tail = "".join(self._head), "".join(self._tail)[-self._tail_room :]
        left_out = self.total - len(head) - len(tail)
        if not left_out:
            return head + tail
        return f"{head}\n… {spaced(left_out)} characters left out …\n{tail}"

    def _add_to_tail(self, text: str) -> None:
        self._tail.append(text[-self._tail_room :])
        self._tail_length += len(self._tail[-1])
        while self._tail_length - len(self._tail[0]) >= self._tail_room:
            self._tail_length -= len(self._tail.popleft())


def spaced(number: int) -> str:
    """Return a number in groups of three digits: 9 950 000."""
    return f"{number:,}".replace(",", " ")
