"""The sockets that this process holds open: whose they are, and that they come back when it goes down."""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakSet

GOODBYE = 1.0  # seconds in which what is queued may still leave, and clients may answer


class OpenSocket(Protocol):
    """A socket as seen from its process; `user_id` is None until it is known whose it is."""

    has_gone: asyncio.Event
    user_id: Any

    async def say_goodbye(self) -> None:
        """Send what the log has, then close with 1012."""
        ...


_open: WeakSet[OpenSocket] = WeakSet()
_happened: Counter[str] = Counter()


def opened(socket: OpenSocket) -> None:
    """Remember a socket until it is gone."""
    _open.add(socket)


def gone(socket: OpenSocket) -> None:
    """Forget a socket."""
    _open.discard(socket)
    socket.has_gone.set()


def count() -> int:
    """Return how many sockets are open in this process."""
    return len(_open)


def count_of(user_id: Any) -> int:
    """Return how many of them are a user's."""
    return sum(socket.user_id == user_id for socket in _open)


def fell_behind() -> None:
    """Note that a client reads more slowly than it is written to."""
    _happened["overflow"] += 1


def overflows() -> int:
    """Return how often that has happened in this process."""
    return _happened["overflow"]


async def close_all() -> None:
    """Tell every client that the server restarts (close code 1012); they reconnect and miss nothing."""
    sockets = tuple(_open)
    with suppress(TimeoutError):
        async with asyncio.timeout(GOODBYE):
            await asyncio.gather(*(socket.say_goodbye() for socket in sockets))
            for socket in sockets:
                await socket.has_gone.wait()
