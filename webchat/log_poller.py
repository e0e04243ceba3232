"""Polls the database once for all sockets of the process: the ends of logs, the status of conversations.

The channel layer may lose messages. The next message shows the gap, but no message follows the last one of a turn.
The heartbeat would find that gap late, because it queries for each socket and so must be rare.
An event of this process starts a poll at once.
"""

import asyncio
import logging
from contextlib import suppress
from contextvars import Context
from typing import Any, Protocol
from uuid import UUID

from turns import EVENTS
from turns.selectors import conversation_status
from webchat.conf import app_settings
from webchat.overview_tracker import EncodedOverview

logger = logging.getLogger(__name__)

MIN_INTERVAL = 0.5  # seconds between two polls


class Subscriber(Protocol):
    """An open socket."""

    conversation_id: UUID
    user_id: Any

    async def catch_up_to(self, last_seq: int) -> None:
        """Send the events up to `last_seq` that were not sent yet. Never raises."""
        ...

    def update_overview(self, overview: EncodedOverview) -> None:
        """Send what the client does not know of this overview. Never raises."""
        ...


class LogPoller:
    """Polls for the sockets of one event loop; its task lives as long as there is one."""

    def __init__(self) -> None:
        self._subscribers: set[Subscriber] = set()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakeup = asyncio.Event()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Add a socket, and poll now."""
        self._subscribers.add(subscriber)
        if self._task is None or self._task.done():
            self._loop, self._wakeup = asyncio.get_running_loop(), asyncio.Event()
            self._task = self._loop.create_task(
                self._run(), name="log poller of the sockets", context=Context()
            )
        self._wakeup.set()

    async def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)
        if not self._subscribers and self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def publish(self, _conversation_id: UUID, event: dict[str, Any]) -> None:
        """Poll at once after an event that changes a status; this is a sink of the turns."""
        declared = EVENTS.get(event["type"])
        may_change = declared is not None and declared.changes_status
        if not (may_change and self._subscribers and self._loop is not None):
            return
        if asyncio.get_running_loop() is self._loop:
            self._wakeup.set()
            return
        with suppress(RuntimeError):  # the loop of the sockets is closed
            self._loop.call_soon_threadsafe(self._wakeup.set)

    def push(self, _conversation_id: UUID, _delta: dict[str, Any]) -> None:
        """Streamed text changes no status."""

    async def poll(self) -> None:
        """Query the database once, and pass the answers to all sockets."""
        subscribers = tuple(self._subscribers)
        conversation_ids = {subscriber.conversation_id for subscriber in subscribers}
        user_ids = {subscriber.user_id for subscriber in subscribers}
        overview = await conversation_status.look(owners=user_ids, conversations=conversation_ids)
        for subscriber in subscribers:
            await subscriber.catch_up_to(overview.last_seqs.get(subscriber.conversation_id, 0))
        encoded = EncodedOverview(overview)
        for subscriber in subscribers:
            subscriber.update_overview(encoded)
            await asyncio.sleep(0)  # streamed text does not wait for all of them

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(app_settings.LOG_CHECK_INTERVAL):
                    await self._wakeup.wait()
            self._wakeup.clear()
            try:
                await self.poll()
            except Exception:
                logger.exception("What sockets have missed could not be asked for")
            await asyncio.sleep(MIN_INTERVAL)


log_poller = LogPoller()
