"""This process as an owner of turns: registered, its lease kept; fenced when that is lost, then registered again (H4)."""

import asyncio
import contextvars
import logging
import time
from collections.abc import Awaitable, Callable

from governance.db import run_in_db_thread
from turns.core.supervisor import TurnSupervisor
from turns.endings import recovery
from turns.events.notifications import NotifyOwner, notify
from turns.models import Process
from turns.processes import leases, process_registry
from turns.processes.leases import Lease

logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.25  # seconds between the first two attempts to come back
LONGEST_PAUSE = 2.0

Register = Callable[[], Awaitable[Process]]
Moved = Callable[[Process], None]


class Ownership:
    """The one registration of an event loop at a time. `register` writes a new row and returns it."""

    def __init__(self, register: Register, *, notify_owner: NotifyOwner) -> None:
        self._register = register
        self._notify_owner = notify_owner
        self._lease: Lease | None = None
        self._supervisor: TurnSupervisor | None = None
        self._moved: Moved | None = None
        self._returning: asyncio.Task[None] | None = None

    @property
    def lease(self) -> Lease:
        """The lease that is kept, or was kept last."""
        if self._lease is None:
            raise RuntimeError("the ownership has not begun")
        return self._lease

    @property
    def process(self) -> Process:
        """The row that names this process as an owner now."""
        return self.lease.process

    async def begin(self) -> None:
        """Register, and keep the lease from now on."""
        registered_at = time.monotonic()
        process = await self._register()
        self._lease = Lease(
            process,
            timing=leases.timing(),
            registered_at=registered_at,
            on_lost=self._lost,
        )
        self._lease.start()

    def cover(self, supervisor: TurnSupervisor, *, moved: Moved | None = None) -> None:
        """Name whose turns the lease covers; `moved` is called with the new row after the lease was lost."""
        self._supervisor, self._moved = supervisor, moved

    async def end(self) -> None:
        """Let the lease go and retire."""
        if self._returning is not None:
            self._returning.cancel()
            await asyncio.wait({self._returning})
        await self.lease.close()
        try:
            await _retire(self.process)
        except Exception:
            logger.exception("The process could not retire; its lease runs out")

    def _lost(self) -> None:
        if self._returning is not None and not self._returning.done():
            return  # lost again on the way back: it looks itself
        self._returning = asyncio.get_running_loop().create_task(
            self._return(), name="return of a process", context=contextvars.Context()
        )

    async def _return(self) -> None:
        """Drop what another process owns now, then register under a new name as soon as the database permits."""
        if self._supervisor is not None:
            await self._supervisor.fence()
        pause = FIRST_PAUSE
        while True:
            try:
                await self._come_back(self.lease)
            except Exception as failure:
                logger.warning("The process could not register again", exc_info=failure)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                if self.lease.is_held:
                    return

    async def _come_back(self, lost: Lease) -> None:
        await lost.close()
        await _retire(lost.process)
        await self.begin()
        logger.warning(
            "The process registered again",
            extra={"process_id": str(self.process.pk), "before": str(lost.process.pk)},
        )
        if self._moved is not None:
            self._moved(self.process)
        recovered, waiting = await _recover()
        await notify(recovered, notify_owner=self._notify_owner)
        if self._supervisor is not None:
            self._supervisor.resume()
            for conversation_id in waiting:
                self._supervisor.wake(conversation_id)


_retire = run_in_db_thread(process_registry.retire)
_recover = run_in_db_thread(recovery.recover)
