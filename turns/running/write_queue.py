"""Queues the writes of a process's turns: by urgency, in groups, and again after a failure (C1).

The turns of a process make one write at a time. Work that was passed to a database thread keeps its order, but while
work waits in this queue, more urgent work can overtake it.
"""

import asyncio
import heapq
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from enum import IntEnum
from functools import partial
from itertools import count
from typing import Generic, TypeVar

from django.db import InterfaceError, InternalError, OperationalError

from turns.core.exceptions import Fenced, NotStored
from turns.processes.leases import Lease

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

FIRST_PAUSE = 0.05  # seconds
LONGEST_PAUSE = 1.0
PATIENCE = 15.0  # seconds of failures after which the database is assumed to reject a write
# Errors that may be temporary: a lost connection, a lock, a full disk, or a server that became read-only, such as a
# demoted one.
_MAY_PASS = (OperationalError, InterfaceError, InternalError)


class Urgency(IntEnum):
    """The priority of a write. The lowest number is written first."""

    ENDING = 0  # the ending of a turn or of its calls
    WORK = 1  # a write that a turn needs in order to continue
    PROGRESS = 2  # a write that can be delayed


class PriorityLock:
    """A lock that the most urgent waiter acquires first. It belongs to one event loop."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: list[tuple[Urgency, int, asyncio.Future[None]]] = []
        self._numbers = count()

    @asynccontextmanager
    async def acquired(self, urgency: Urgency) -> AsyncIterator[None]:
        """Acquire the lock by priority, and hold it during the context."""
        await self._enter(urgency)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, urgency: Urgency) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        let_in = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (urgency, next(self._numbers), let_in))
        try:
            await let_in
        except asyncio.CancelledError:
            if let_in.done() and not let_in.cancelled():  # the lock was passed on to this waiter
                self._leave()
            raise

    def _leave(self) -> None:
        """Pass the lock on to the next waiter."""
        while self._waiting:
            _urgency, _number, let_in = heapq.heappop(self._waiting)
            if not let_in.done():
                let_in.set_result(None)
                return
        self._is_taken = False


Take = Callable[[], list[T]]
"""Returns the waiting items in order; called when the database connection is free."""


class Batches(Generic[T, R]):
    """Group commit for one event loop: items that arrive during one transaction are stored together in the next.

    The calls of a step start and end concurrently, families of turns end together, and many answers stream at the same
    time. Batches keep cancels fast regardless of the number of calls.

    `store` fetches its batch as late as possible, and returns a result or an exception for each item. `most` is
    the maximum batch size, so that other writes can run in between. With `of_many_turns`, log lines and spans of a
    batch belong to no turn; otherwise they belong to the items' turn.
    """

    def __init__(
        self,
        store: Callable[[Take[T]], Awaitable[Sequence[R | Exception]]],
        *,
        name: str,
        most: int | None = None,
        of_many_turns: bool = False,
    ) -> None:
        self.waiting: list[T] = []
        self._store = store
        self._name = name
        self._most = most
        self._of_many_turns = of_many_turns
        self._results: list[asyncio.Future[R]] = []  # one per waiting item
        self._running: asyncio.Task[None] | None = None

    def add(self, item: T) -> "asyncio.Future[R]":
        """Queue an item for the next batch. Return a future for its result."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[R] = loop.create_future()
        self.waiting.append(item)
        self._results.append(result)
        if self._running is None or self._running.done():
            context = Context() if self._of_many_turns else None  # None means the caller's context
            self._running = loop.create_task(self._run(), name=self._name, context=context)
        return result

    async def _run(self) -> None:
        await asyncio.sleep(0)  # include items added in the same iteration of the loop
        while self.waiting:
            futures: list[asyncio.Future[R]] = []
            try:
                results = await self._store(partial(self._take, futures))
            except Exception as error:  # noqa: BLE001 - raised where the result is awaited
                if not futures:
                    self._take(futures)
                results = [error for _ in futures]
            for future, result in zip(futures, results, strict=True):
                _settle(future, result)

    def _take(self, futures: "list[asyncio.Future[R]]") -> list[T]:
        """Take the next batch, and move the futures of its results to `futures`."""
        items = self.waiting[: self._most]
        del self.waiting[: len(items)]
        futures += self._results[: len(items)]
        del self._results[: len(items)]
        return items


def _settle(future: "asyncio.Future[R]", result: R | Exception) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
        future.exception()  # mark as retrieved, in case the caller was cancelled
    else:
        future.set_result(result)


async def until_done(crossing: Callable[[], Awaitable[R]], *, lease: Lease | None = None) -> R:
    """Await a database call, retry it after temporary errors, and return its result.

    The confirmation of a commit may be lost, so the call must be idempotent.

    Raises: Fenced: the lease was lost. NotStored: the call kept failing although the lease is held.
    """
    loop = asyncio.get_running_loop()
    gives_up_at = loop.time() + PATIENCE
    for attempt in count():
        if lease is not None and not lease.is_held:
            raise Fenced("the owner of the turn has lost its lease")
        try:
            return await crossing()
        except _MAY_PASS as failure:
            pause = _pause_after(attempt)
            if loop.time() + pause > gives_up_at:
                raise NotStored("the database has not taken it") from failure
            logger.warning("The database is asked again: %s", type(failure).__name__)
        await asyncio.sleep(pause)
    raise AssertionError("the attempts never end")


def _pause_after(attempt: int) -> float:
    """Return a pause that grows with each attempt, with jitter."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(attempt, 10)) * random.uniform(0.5, 1)  # noqa: S311
