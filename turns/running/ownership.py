"""This process as an owner of turns: it registers, renews its lease, and registers again if it loses the lease (H4).

If its connections stay cut off although the database accepts new ones, the process exits so that it can be restarted.
"""

import asyncio
import contextvars
import logging
import os
import time
from collections.abc import Awaitable, Callable

from governance.db import run_in_db_thread
from governance.threads import DaemonPool
from turns.core.supervisor import TurnSupervisor
from turns.endings import recovery
from turns.events.notifications import NotifyOwner, notify
from turns.models import Process
from turns.models.processes import ProcessEnding
from turns.processes import leases, process_registry
from turns.processes.leases import Lease

logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.25  # seconds between the first two attempts to register again
LONGEST_PAUSE = 2.0
LEAVE_AFTER = 30.0  # seconds for which only separate connections succeed before the process exits
EXIT_CUT_OFF = os.EX_TEMPFAIL

Register = Callable[[], Awaitable[Process]]
Moved = Callable[[Process], None]


class Ownership:
    """The registration of an event loop as an owner of turns, with its lease. `register` writes a new row and
    returns it.
    """

    def __init__(self, register: Register, *, notify_owner: NotifyOwner) -> None:
        self._register = register
        self._notify_owner = notify_owner
        self._lease: Lease | None = None
        self._supervisor: TurnSupervisor | None = None
        self._moved: Moved | None = None
        self._returning: asyncio.Task[None] | None = None

    @property
    def lease(self) -> Lease:
        """Return the current lease, or the last one if it was lost."""
        if self._lease is None:
            raise RuntimeError("the ownership has not begun")
        return self._lease

    @property
    def process(self) -> Process:
        """Return the row that identifies this process as an owner."""
        return self.lease.process

    async def begin(self) -> None:
        """Register, and renew the lease from now on."""
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
        """Set the supervisor whose turns the lease protects; `moved` is called with the new row after a lost lease."""
        self._supervisor, self._moved = supervisor, moved

    async def end(self) -> None:
        """Release the lease and retire the process."""
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
            return  # the lease was lost again while the task is registering, so the task retries
        self._returning = asyncio.get_running_loop().create_task(
            self._return(), name="return of a process", context=contextvars.Context()
        )

    async def _return(self) -> None:
        """Cancel the turns that other processes have taken over, then register again as soon as the database is
        available.
        """
        if self._supervisor is not None:
            await self._supervisor.fence()
        pause = FIRST_PAUSE
        answers_since: float | None = None
        while True:
            try:
                await self._come_back(self.lease)
            except Exception as failure:
                logger.warning("The process could not register again", exc_info=failure)
                if not await _retires_alone(self.process):
                    answers_since = None
                elif answers_since is None:
                    answers_since = time.monotonic()
                elif time.monotonic() - answers_since > LEAVE_AFTER:
                    _leave()
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                if self.lease.is_held:
                    return

    async def _come_back(self, lost: Lease) -> None:
        await lost.close()
        await _retire(lost.process, ProcessEnding.SILENT)
        await self.begin()
        logger.warning(
            "The process registered again",
            extra={"process_id": str(self.process.pk), "before": str(lost.process.pk)},
        )
        if self._moved is not None:
            self._moved(self.process)
        await notify(await _recover(), notify_owner=self._notify_owner)
        if self._supervisor is not None:
            self._supervisor.resume()


_retire = run_in_db_thread(process_registry.retire)
_recover = run_in_db_thread(recovery.recover)
_alone = DaemonPool(max_workers=1, name="retirement")


async def _retires_alone(process: Process) -> bool:
    """Retire the process on a separate connection in a separate thread. Return whether that succeeded."""
    loop = asyncio.get_running_loop()
    try:
        await loop.run_in_executor(_alone, leases.retire_alone, process)
    except Exception:  # noqa: BLE001 - the caller has logged why the process could not register
        return False
    return True


def _leave() -> None:
    """Exit the process, which owns no turns any more, because other processes have taken them over."""
    logger.critical(
        "The database answers, but this process has not come back for %.0f s: it leaves with exit code %d",
        LEAVE_AFTER,
        EXIT_CUT_OFF,
    )
    os._exit(EXIT_CUT_OFF)
