"""Looks around, once for all open sockets of the process: how far the logs have come, how other conversations stand.

What the channel layer loses is made good by the next message, which shows the gap. After the last one of a turn there is
none, so without this a page would wait for the heartbeat, which asks for each socket alone and so cannot come often.
What happens in this process rings, so that nobody waits for the next look.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Any, Protocol
from uuid import UUID

from turns import overviews, selectors
from turns.overviews import Overview
from webchat.conf import app_settings

logger = logging.getLogger(__name__)

QUIET = 0.5  # seconds between two looks at least, however often it rings
# After these a conversation may stand otherwise than before.
NEWS = frozenset(
    {
        "turn_queued",
        "turn_start",
        "turn_abort",
        "turn_end",
        "tool_approval",
        "tool_decision",
        "tool_result",
        "conversation_parked",
        "conversation_resumed",
    }
)


class Watcher(Protocol):
    """A socket that wants to know."""

    conversation_id: UUID
    user_id: Any

    async def log_has(self, last_seq: int) -> None:
        """Read on if this is further than what was sent. Never raises."""
        ...

    def see(self, overview: Overview) -> None:
        """Tell the client if anything of this is new to it. Never raises."""
        ...


class Lookout:
    """Watches for the sockets of one event loop; its task lives as long as there is one."""

    def __init__(self) -> None:
        self._watchers: set[Watcher] = set()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rung = asyncio.Event()

    def enter(self, watcher: Watcher) -> None:
        """Watch for a socket too, and look for it now."""
        self._watchers.add(watcher)
        if self._task is None or self._task.done():
            self._loop, self._rung = asyncio.get_running_loop(), asyncio.Event()
            self._task = asyncio.create_task(self._watch(), name="lookout of the sockets")
        self._rung.set()

    async def leave(self, watcher: Watcher) -> None:
        """Watch no more for a socket."""
        self._watchers.discard(watcher)
        if not self._watchers and self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def publish(self, _conversation_id: UUID, event: dict[str, Any]) -> None:
        """As a sink: look at once when something has happened that others want to see."""
        if self._watchers and self._loop is not None and event["type"] in NEWS:
            with suppress(RuntimeError):  # the loop of the sockets is closed: nobody looks any more
                self._loop.call_soon_threadsafe(self._rung.set)

    async def look(self) -> None:
        """Ask once."""
        watchers = tuple(self._watchers)
        places = {watcher.conversation_id for watcher in watchers}
        seqs = await selectors.last_seqs(conversation_ids=places)
        for watcher in watchers:
            await watcher.log_has(seqs.get(watcher.conversation_id, 0))
        people = {watcher.user_id for watcher in watchers}
        overview = await overviews.look(owners=people, conversations=places)
        for watcher in watchers:
            watcher.see(overview)

    async def _watch(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(app_settings.LOG_CHECK_INTERVAL):
                    await self._rung.wait()
            self._rung.clear()
            try:
                await self.look()
            except Exception:
                logger.exception("What sockets have missed could not be asked for")
            await asyncio.sleep(QUIET)


lookout = Lookout()
