"""The worker processes of a server: how many there are, which is free, and that none is left behind."""

import asyncio
import logging

from governance.core.invokers.restart_budget import RestartBudget
from governance.core.invokers.worker_connection import WorkerConnection, WorkerSettings
from governance.core.invokers.worker_errors import WorkerDied, WorkerPoolBroken, WorkerPoolClosed
from governance.core.process_groups import GroupEnding

logger = logging.getLogger(__name__)


class WorkerPool:
    """Workers for calls that are counted elsewhere: a caller of `acquire` holds one of `max_workers` slots.

    `spare` more workers stay warm, so that a call need not wait for a start after another was ended.
    """

    def __init__(
        self, settings: WorkerSettings, *, max_workers: int, spare: int, budget: RestartBudget
    ) -> None:
        self._settings = settings
        self._max_live = max_workers + spare
        self._spare = spare
        self._budget = budget
        self._idle: list[WorkerConnection] = []
        self._busy: set[WorkerConnection] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[GroupEnding]] = set()
        self._survivors: list[int] = []
        self._waiting = 0
        self._is_closed = False

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def busy(self) -> int:
        return len(self._busy)

    @property
    def live(self) -> int:
        """Workers that are idle, in a call or about to be ready."""
        return len(self._idle) + len(self._busy) + len(self._starting)

    @property
    def ending(self) -> int:
        """Workers that are being ended and are not proven gone yet."""
        return len(self._ending)

    @property
    def survivors(self) -> tuple[int, ...]:
        """Process ids of workers whose group was still there after SIGKILL (B4)."""
        return tuple(self._survivors)

    async def acquire(self, function: str) -> WorkerConnection:
        """Return an idle worker, or the first that becomes ready.

        Raises:
            WorkerPoolClosed: `aclose` was called.
            WorkerPoolBroken: workers died too often on `function`, or do not come up.
            WorkerDied: the worker did not come up this time.
        """
        self._refuse_unless_usable(function)
        self._waiting += 1
        try:
            while (worker := self._pop_idle()) is None:
                await self._await_start()
        finally:
            self._waiting -= 1
        self._busy.add(worker)
        self._replenish()
        return worker

    def release(self, worker: WorkerConnection) -> None:
        """Make the worker idle again; end it if it is in a call, dead, or spent."""
        if worker not in self._busy:
            return
        if self._is_closed or worker.is_in_call or worker.is_spent or not worker.is_alive:
            self.terminate(worker)
        else:
            self._busy.discard(worker)
            self._idle.append(worker)

    def terminate(self, worker: WorkerConnection) -> "asyncio.Task[GroupEnding]":
        """Begin to end the worker. It holds no place from now on: the next call need not wait for its end."""
        self._busy.discard(worker)
        task = worker.terminate()
        if task not in self._ending and not task.done():
            self._ending.add(task)
            task.add_done_callback(lambda ended: self._ended(ended, worker.pid))
        self._replenish()
        return task

    def record_death(self, worker: WorkerConnection, death: WorkerDied, *, function: str) -> None:
        """Count a worker that ended during a call of `function`, unless we ended it."""
        if worker.ending is not None:
            return
        self._budget.record(function)
        facts = {"call_id": death.call_id, "function": function, "description": death.description}
        logger.error("A worker process died during a call", extra=facts)
        self.terminate(worker)

    async def warm(self) -> None:
        """Start the spare workers now instead of at the first call."""
        self._replenish()
        if self._starting:
            await asyncio.wait(self._starting)

    async def aclose(self) -> None:
        """End every worker and its children. Return when all are gone."""
        self._is_closed = True
        for task in self._starting:
            task.cancel()
        if self._starting:
            await asyncio.wait(self._starting)
        for worker in [*self._idle, *self._busy]:
            self.terminate(worker)
        self._idle.clear()
        if self._ending:
            await asyncio.wait(self._ending)

    def _refuse_unless_usable(self, function: str) -> None:
        if self._is_closed:
            raise WorkerPoolClosed
        if (wait := self._budget.wait_for(function)) > 0:
            raise WorkerPoolBroken(wait)

    def _pop_idle(self) -> WorkerConnection | None:
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive:
                return worker
            self._budget.record(None)
            self.terminate(worker)
        return None

    async def _await_start(self) -> None:
        """Wait until a worker is up; each waiting caller has one starting."""
        while len(self._starting) < self._waiting:
            self._start()
        done, _ = await asyncio.wait(self._starting, return_when=asyncio.FIRST_COMPLETED)
        if self._is_closed:
            raise WorkerPoolClosed
        for task in done:
            if not self._idle and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    def _start(self) -> None:
        task = asyncio.create_task(self._start_worker(), name="start worker")
        self._starting.add(task)
        task.add_done_callback(self._started)

    async def _start_worker(self) -> None:
        worker = WorkerConnection(self._settings)
        try:
            await worker.start()
        except BaseException:
            self.terminate(worker)
            raise
        if (task := asyncio.current_task()) is not None:
            self._starting.discard(task)  # now, not in its callback: a worker counts once
        self._idle.append(worker)

    def _started(self, task: "asyncio.Task[None]") -> None:
        self._starting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._budget.record(None)
            facts = {"detail": getattr(error, "detail", "")}
            logger.error("A worker process could not be started", exc_info=error, extra=facts)

    def _replenish(self) -> None:
        """Keep the spare workers warm, unless workers do not come up at all. Idle until the first use."""
        if self._is_closed or self._budget.wait_for_start() > 0:
            return
        while len(self._idle) + len(self._starting) < self._spare and self.live < self._max_live:
            self._start()

    def _ended(self, task: "asyncio.Task[GroupEnding]", pid: int) -> None:
        self._ending.discard(task)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            logger.error("Ending a worker process failed", exc_info=error, extra={"pid": pid})
        elif task.result() is GroupEnding.SURVIVED:
            self._survivors.append(pid)
            logger.error("A worker process is still there after SIGKILL", extra={"pid": pid})
