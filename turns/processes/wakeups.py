"""Wake-ups: messages to another process that something is stored for it. Apps above register the buses.

A wake-up may be lost, late or doubled: every process also polls the database each second (C12).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol
from uuid import UUID

logger = logging.getLogger(__name__)

SEND_LIMIT = 1.0  # seconds
LISTEN_PAUSE = 1.0  # seconds before a bus is listened to again that has ended or failed

OnWakeup = Callable[[], Awaitable[None]]


class WakeupBus(Protocol):
    """Carries wake-ups. `is_shared`: they reach other processes."""

    @property
    def is_shared(self) -> bool:
        """Whether wake-ups reach other processes."""
        ...

    async def send(self, process_id: UUID) -> None:
        """Tell a process to look into the database."""

    async def listen(self, process_id: UUID, callback: OnWakeup) -> None:
        """Await `callback` for every wake-up of this process; if this returns or raises, it is called again."""


_buses: list[WakeupBus] = []


def register(bus: WakeupBus) -> None:
    """Add a bus; the same one twice counts once."""
    if bus not in _buses:
        _buses.append(bus)


def unregister(bus: WakeupBus) -> None:
    if bus in _buses:
        _buses.remove(bus)


def are_shared() -> bool:
    """Whether wake-ups reach other processes."""
    return any(bus.is_shared for bus in _buses)


async def send(process_id: UUID) -> None:
    """Tell a process to look into the database: takes a second at most, and never fails."""
    for bus in tuple(_buses):
        try:
            async with asyncio.timeout(SEND_LIMIT):
                await bus.send(process_id)
        except Exception:
            logger.exception("A wake-up was not sent", extra={"process_id": str(process_id)})


async def listen(process_id: UUID, callback: OnWakeup) -> None:
    """Await `callback` for every wake-up of this process, over all buses, until cancelled; one that fails is tried again."""
    async with asyncio.TaskGroup() as listening:
        for bus in tuple(_buses):
            listening.create_task(_listen(bus, process_id, callback), name="listening for wake-ups")


class WakeupListener:
    """Listens for the wake-ups of one process at a time, in a task of its own. Made on the loop that it is used on."""

    def __init__(self, callback: OnWakeup) -> None:
        self._callback = callback
        self._listening: asyncio.Task[None] | None = None

    def listen_for(self, process_id: UUID) -> None:
        """Listen for the wake-ups of this process from now on, and to no other."""
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
            if not has_failed:  # told once, not every second
                logger.exception("No wake-ups are received; the database is asked every second")
            has_failed = True
        else:
            has_failed = False
        await asyncio.sleep(LISTEN_PAUSE)
