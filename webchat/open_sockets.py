"""The sockets that this process holds open: whose they are, and that they come back when it goes down."""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakSet

CLOSE_TIMEOUT = 1.0  # seconds in which what is queued may still leave, and clients may answer


class OpenSocket(Protocol):
    """A socket as seen from its process; `user_id` is None until it is known whose it is."""

    has_ended: asyncio.Event
    user_id: Any

    async def close_for_restart(self) -> None:
        """Send what the log has, then close with 1012."""
        ...


_open: WeakSet[OpenSocket] = WeakSet()
_counts: Counter[str] = Counter()


def add(socket: OpenSocket) -> None:
    """Remember a socket until it is gone."""
    _open.add(socket)


def remove(socket: OpenSocket) -> None:
    """Forget a socket."""
    _open.discard(socket)
    socket.has_ended.set()


def count() -> int:
    """Return how many sockets are open in this process."""
    return len(_open)


def count_for_user(user_id: Any) -> int:
    """Return how many of them are a user's."""
    return sum(socket.user_id == user_id for socket in _open)


def note_overflow() -> None:
    """Note that a client reads more slowly than it is written to."""
    _counts["overflow"] += 1


def overflow_count() -> int:
    """Return how often that has happened in this process."""
    return _counts["overflow"]


async def close_all() -> None:
    """Tell every client that the server restarts (close code 1012); they reconnect and miss nothing."""
    sockets = tuple(_open)
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_TIMEOUT):
            await asyncio.gather(*(socket.close_for_restart() for socket in sockets))
            for socket in sockets:
                await socket.has_ended.wait()
