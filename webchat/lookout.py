"""Finds what the channel layer has lost: asks the log, once for all open sockets of the process, how far it has come.

A lost message is made good by the next one, which shows the gap. After the last one of a turn there is none, so without
this a page would wait for the heartbeat, which asks for each socket alone and so cannot come often.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Protocol
from uuid import UUID

from turns import selectors
from webchat.conf import app_settings

logger = logging.getLogger(__name__)


class Watcher(Protocol):
    """A socket that wants to know."""

    conversation_id: UUID

    async def log_has(self, last_seq: int) -> None:
        """Read on if this is further than what was sent. Never raises."""
        ...


class Lookout:
    """Watches for the sockets of one event loop; its task lives as long as there is one."""

    def __init__(self) -> None:
        self._watchers: set[Watcher] = set()
        self._task: asyncio.Task[None] | None = None

    def enter(self, watcher: Watcher) -> None:
        """Watch for a socket too."""
        self._watchers.add(watcher)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="lookout of the sockets")

    async def leave(self, watcher: Watcher) -> None:
        """Watch no more for a socket."""
        self._watchers.discard(watcher)
        if not self._watchers and self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def look(self) -> None:
        """Ask once."""
        watchers = tuple(self._watchers)
        seqs = await selectors.last_seqs(
            conversation_ids={watcher.conversation_id for watcher in watchers}
        )
        for watcher in watchers:
            await watcher.log_has(seqs.get(watcher.conversation_id, 0))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(app_settings.LOG_CHECK_INTERVAL)
            try:
                await self.look()
            except Exception:
                logger.exception("The log could not be asked for what sockets have missed")


lookout = Lookout()
