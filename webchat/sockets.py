"""The sockets that this process holds open, so that they can be told to come back when it goes down."""

import asyncio
from contextlib import suppress
from weakref import WeakSet

from webchat.outbox import Outbox

RESTARTING = 1012
GOODBYE = 1.0  # seconds in which what is queued may still leave
_open: WeakSet[Outbox] = WeakSet()


def opened(outbox: Outbox) -> None:
    """Remember a socket until it is gone."""
    _open.add(outbox)


def gone(outbox: Outbox) -> None:
    """Forget a socket."""
    _open.discard(outbox)


async def close_all() -> None:
    """Tell every client that the server restarts (close code 1012); they reconnect and miss nothing."""
    outboxes = tuple(_open)
    for outbox in outboxes:
        outbox.close(RESTARTING)
    with suppress(TimeoutError):
        async with asyncio.timeout(GOODBYE):
            for outbox in outboxes:
                await outbox.is_done.wait()
