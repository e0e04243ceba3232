"""Daemon threads for this package's work, which delay neither the exit of the process nor tools nor the host."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_Work = tuple["Future[Any]", Callable[[], Any], float]  # the last item is the time of submission


class DaemonPool(Executor):
    """An executor with at most `max_workers` daemon threads, which start when there is work and no idle thread.

    Unlike `ThreadPoolExecutor`, it does not wait at the exit of the process for functions that hang. `on_exit` runs at
    the end of each thread, after `shutdown`. Each thread acquires the semaphore `slots` when it starts, and releases it
    when it ends.
    """

    def __init__(
        self,
        *,
        max_workers: int,
        name: str,
        on_exit: Callable[[], object] = lambda: None,
        slots: threading.Semaphore | None = None,
    ) -> None:
        self._max_workers = max_workers
        self._name = name
        self._on_exit = on_exit
        self._slots = slots
        self._queue: deque[_Work] = deque()
        self._changed = threading.Condition()
        self._idle = 0
        self._threads = 0
        self._is_shut_down = False
        self._waited = 0.0

    @property
    def waited(self) -> float:
        """The total number of seconds for which work has waited for a thread."""
        return self._waited

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> "Future[R]":
        """Run a function in a thread, and return a future of its result."""
        future: Future[R] = Future()
        with self._changed:
            if self._is_shut_down:
                raise RuntimeError(f"the pool {self._name!r} is shut down")
            self._queue.append((future, partial(fn, *args, **kwargs), time.monotonic()))
            if len(self._queue) > self._idle and self._threads < self._max_workers:
                self._threads += 1
                name = f"{self._name} {self._threads}"
                threading.Thread(target=self._live, name=name, daemon=True).start()
            self._changed.notify()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - the signature of `Executor`
        """Accept no more work, and return immediately. The threads finish the submitted work and then end."""
        with self._changed:
            self._is_shut_down = True
            self._changed.notify_all()

    def _live(self) -> None:
        with self._slots or nullcontext():
            try:
                while (work := self._next()) is not None:
                    future, function, _at = work
                    _run(future, function)
                    del work, future, function  # so that an idle thread keeps no result
            finally:
                self._on_exit()

    def _next(self) -> _Work | None:
        """Wait for work and return it. After `shutdown`, return None once all work is done."""
        with self._changed:
            while not self._queue:
                if self._is_shut_down:
                    return None
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            work = self._queue.popleft()
            self._waited += time.monotonic() - work[-1]
            return work


def _run(future: "Future[Any]", function: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
        future.set_exception(error)
    else:
        future.set_result(result)


own_pool = DaemonPool(max_workers=16, name="turnkeeper work")


async def run_in_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a function that blocks, as `asyncio.to_thread` does, but not in the loop's default executor.

    Tools and the host use that executor, where a few functions that hang would block all others.
    """
    run = partial(copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(own_pool, run)
