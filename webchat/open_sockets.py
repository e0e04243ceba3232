"""Tracks the open sockets of this process, so that they can be counted per user and closed at a restart."""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakSet

CLOSE_TIMEOUT = 1.0  # seconds to send queued frames and to wait for the clients' close frames


class OpenSocket(Protocol):
    """An open socket. Its `user_id` is None until it is authenticated."""

    has_ended: asyncio.Event
    user_id: Any

    async def close_for_restart(self) -> None:
        """Send the remaining events in the log, then close with code 1012."""
        ...


_open: WeakSet[OpenSocket] = WeakSet()
_counts: Counter[str] = Counter()
_leaving: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


def add(socket: OpenSocket) -> None:
    _open.add(socket)


def remove(socket: OpenSocket) -> None:
    _open.discard(socket)
    socket.has_ended.set()


def count() -> int:
    return len(_open)


def count_for_user(user_id: Any) -> int:
    return sum(socket.user_id == user_id for socket in _open)


def note_overflow() -> None:
    """Count an overflow of a send queue, which happens if its client reads too slowly."""
    _counts["overflow"] += 1


def overflow_count() -> int:
    """Return how often a send queue of this process overflowed."""
    return _counts["overflow"]


def are_closing() -> bool:
    """Return whether the sockets of this event loop are being closed, so that new ones must be refused."""
    return asyncio.get_running_loop() in _leaving


async def close_all() -> None:
    """Close every socket with code 1012 (service restart). Clients then reconnect and miss nothing."""
    _leaving.add(asyncio.get_running_loop())
    sockets = tuple(_open)
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_TIMEOUT):
            await asyncio.gather(*(socket.close_for_restart() for socket in sockets))
            for socket in sockets:
                await socket.has_ended.wait()
