"""Separate threads for reading and storing attachments, so that a thread that hangs delays no other work."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ParamSpec, TypeVar

from governance import Cancellation, CancellationToken, CancelReason
from governance.threads import DaemonPool

P = ParamSpec("P")
R = TypeVar("R")

_reading = DaemonPool(max_workers=4, name="attachment reading")
_storage = DaemonPool(max_workers=8, name="attachment storage")


async def in_reading_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a function that reads a small file, such as a text file, for which no worker process is needed."""
    return await _run(_reading, partial(function, *args, **kwargs))


async def in_storage_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    return await _run(_storage, partial(function, *args, **kwargs))


async def _run(threads: DaemonPool, work: Callable[[], R]) -> R:
    in_language = copy_context().run  # the caller's language
    return await asyncio.get_running_loop().run_in_executor(threads, in_language, work)


@dataclass(slots=True)
class _Job:
    work: Callable[[], Any]
    result: "Future[Any]" = field(default_factory=Future)


class ParsingQueue:
    """Opens files in worker processes, which may take seconds. `places` limits the files held in memory and in
    workers.

    Owners take turns, and each has at most one place, so one person's files do not delay other people's.
    """

    def __init__(self, *, places: int, name: str) -> None:
        self._threads = DaemonPool(max_workers=places, name=name)
        self._lock = threading.Lock()
        self._queues: dict[Hashable, deque[_Job]] = {}
        self._busy: set[Hashable] = set()

    def count(self, owner: Hashable) -> int:
        """Return how many of an owner's files are waiting or being opened."""
        with self._lock:
            queue = self._queues.get(owner, ())
            waiting = sum(not job.result.cancelled() for job in queue)
            return waiting + (owner in self._busy)

    async def run(self, owner: Hashable, work: Callable[[CancellationToken], R]) -> R:
        """Run `work` in a thread when its owner is next. A cancel dequeues the work or cancels its token."""
        token = CancellationToken()
        job = _Job(partial(copy_context().run, work, token))  # in the caller's language
        with self._lock:
            self._queues.setdefault(owner, deque()).append(job)
        self._threads.submit(self._serve)
        try:
            result: R = await asyncio.wrap_future(job.result)
        except asyncio.CancelledError:
            token.cancel(Cancellation(reason=CancelReason.PARENT))
            raise
        return result

    def _serve(self) -> None:
        while (next_job := self._take()) is not None:
            owner, job = next_job
            try:
                if job.result.set_running_or_notify_cancel():
                    _settle(job)
            finally:
                with self._lock:
                    self._busy.discard(owner)

    def _take(self) -> tuple[Hashable, _Job] | None:
        with self._lock:
            owner = next((owner for owner in self._queues if owner not in self._busy), None)
            if owner is None:
                return None
            queue = self._queues.pop(owner)
            job = queue.popleft()
            if queue:
                self._queues[owner] = queue  # behind the other owners
            self._busy.add(owner)
            return owner, job


def _settle(job: _Job) -> None:
    try:
        result = job.work()
    except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
        job.result.set_exception(error)
    else:
        job.result.set_result(result)


uploads = ParsingQueue(places=2, name="attachment parsing")
# separate, so that turns do not wait for uploads
tool_images = ParsingQueue(places=2, name="tool image parsing")
