"""The viewers of this process: they come, they go, and the turns that nobody comes back to are cancelled (C11)."""

import asyncio
import logging
import time
from dataclasses import dataclass
from uuid import UUID, uuid4

from governance.db import run_in_db_thread
from turns.events.notifications import Notifications, NotifyOwner, notify
from turns.models import Process
from turns.presence import viewers

logger = logging.getLogger(__name__)

SWEEP_INTERVAL = 2.0  # seconds


@dataclass(frozen=True, slots=True)
class Presence:
    """An open socket that shows a conversation to its owner."""

    key: str
    conversation_id: UUID


class PresenceTracker:
    """Counts the open sockets of one process as rows, so that every process and every tab counts.

    `notify_owner` reaches the owner of a turn, in whatever process it is.
    """

    def __init__(self, process: Process, *, notify_owner: NotifyOwner) -> None:
        self._process = process
        self._notify_owner = notify_owner
        self._present: dict[str, UUID] = {}
        self._lock = asyncio.Lock()  # the list here and the rows change together
        self._swept_at = float("-inf")

    def move(self, process: Process) -> None:
        """Write the viewers under another row of this process from now on; the next sweep puts the list right."""
        self._process = process
        self._swept_at = float("-inf")

    async def join(self, conversation_id: UUID, *, user_id: object) -> Presence | None:
        """Note that a socket shows a conversation; None if it is not its owner's."""
        presence = Presence(key=uuid4().hex, conversation_id=conversation_id)
        async with self._lock:
            is_owner = await _join(
                self._process, conversation_id, key=presence.key, user_id=user_id
            )
            if is_owner:
                self._present[presence.key] = conversation_id
        return presence if is_owner else None

    async def leave(self, presence: Presence, *, comes_back: bool = False) -> None:
        """Note that a socket has gone, and whether another one follows; what cannot be written, the next sweep writes."""
        async with self._lock:
            self._present.pop(presence.key, None)
            try:
                notifications = await _leave(presence.key, comes_back=comes_back)
            except Exception:
                facts = {"conversation_id": str(presence.conversation_id)}
                logger.exception("A viewer who has left is still on the list", extra=facts)
                return
        await notify(notifications, notify_owner=self._notify_owner)

    async def poll(self) -> None:
        """Sweep if the last time was a while ago."""
        if time.monotonic() - self._swept_at >= SWEEP_INTERVAL:
            await self.sweep()

    async def sweep(self) -> None:
        """Put the list right, and cancel what was left alone for too long."""
        self._swept_at = time.monotonic()
        async with self._lock:
            notifications = await _sweep(self._process, dict(self._present))
        await notify(notifications, notify_owner=self._notify_owner)


_join = run_in_db_thread(viewers.join)
_leave = run_in_db_thread(viewers.leave)


@run_in_db_thread
def _sweep(process: Process, present: dict[str, UUID]) -> Notifications:
    notifications = Notifications()
    if process.role != "runner":  # which nobody can come back to
        notifications.add(viewers.reconcile(process, present))
        viewers.forget_lost()
    notifications.add(viewers.end_overdue())
    return notifications
