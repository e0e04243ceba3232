"""Wake-ups, which notify another process that a request for it has been stored. Other apps register the buses.

A wake-up may be lost, late or repeated, because every process also polls the database each second (C12).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol
from uuid import UUID

logger = logging.getLogger(__name__)

SEND_LIMIT = 1.0  # seconds
SEND_WAIT = 0.1  # seconds that a caller waits for a bus; most take one or two milliseconds
LISTEN_PAUSE = 1.0  # seconds before a bus that has ended or failed is listened to again

OnWakeup = Callable[[], Awaitable[None]]


class WakeupBus(Protocol):
    """A bus that sends wake-ups. `is_shared` is true if they reach other processes."""

    @property
    def is_shared(self) -> bool: ...

    async def send(self, process_id: UUID) -> None:
        """Notify a process that it should read the database."""

    async def listen(self, process_id: UUID, callback: OnWakeup) -> None:
        """Await `callback` for every wake-up of this process. If this method returns or raises, it is called again."""


_buses: list[WakeupBus] = []


def register(bus: WakeupBus) -> None:
    """Add a bus. A second registration of the same bus has no effect."""
    if bus not in _buses:
        _buses.append(bus)


def unregister(bus: WakeupBus) -> None:
    if bus in _buses:
        _buses.remove(bus)


def are_shared() -> bool:
    return any(bus.is_shared for bus in _buses)


_sending: set[asyncio.Task[None]] = set()
_silent: set[WakeupBus] = set()  # buses that were too slow or failed last time


async def send(process_id: UUID) -> None:
    """Notify a process that it should read the database. Never raise an error, and do not wait for a bus that hangs."""
    for bus in tuple(_buses):
        sending = asyncio.create_task(_send(bus, process_id), name="wake-up")
        _sending.add(sending)
        sending.add_done_callback(_sending.discard)
        if bus not in _silent:
            _done, waiting = await asyncio.wait({sending}, timeout=SEND_WAIT)
            if waiting:
                logger.warning(
                    "Wake-ups are slow, so callers do not wait for them until one succeeds"
                )
                _silent.add(bus)


async def _send(bus: WakeupBus, process_id: UUID) -> None:
    try:
        async with asyncio.timeout(SEND_LIMIT):
            await bus.send(process_id)
    except Exception:
        if bus not in _silent:  # logged once instead of for every cancel
            logger.exception("A wake-up was not sent", extra={"process_id": str(process_id)})
        _silent.add(bus)
    else:
        _silent.discard(bus)


async def listen(process_id: UUID, callback: OnWakeup) -> None:
    """Await `callback` for every wake-up of this process on all buses, until cancelled; failed buses are retried."""
    async with asyncio.TaskGroup() as listening:
        for bus in tuple(_buses):
            listening.create_task(_listen(bus, process_id, callback), name="listening for wake-ups")


class WakeupListener:
    """Listens for the wake-ups of one process at a time, in a separate task. Create it on the loop that uses it."""

    def __init__(self, callback: OnWakeup) -> None:
        self._callback = callback
        self._listening: asyncio.Task[None] | None = None

    def listen_for(self, process_id: UUID) -> None:
        """Listen for the wake-ups of this process from now on, and stop listening for those of the previous one."""
        if self._listening is not None:
            self._listening.cancel()
        self._listening = asyncio.create_task(
            listen(process_id, self._callback), name="listening for wake-ups"
        )

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait({self._listening})


async def _listen(bus: WakeupBus, process_id: UUID, callback: OnWakeup) -> None:
    async def run_callback() -> None:
        try:
            await callback()
        except Exception:
            logger.exception("A wake-up could not be handled")

    has_failed = False
    while True:
        try:
            await bus.listen(process_id, run_callback)
        except Exception:
            if not has_failed:  # logged once instead of every second
                logger.exception("No wake-ups are received; the database is asked every second")
            has_failed = True
        else:
            has_failed = False
        await asyncio.sleep(LISTEN_PAUSE)
