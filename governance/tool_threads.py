"""Threads for coroutine tools: a database thread for each call, and a pool for functions passed to `asyncio.to_thread`.

By default, Django runs the ORM code of all coroutines in one thread of the process, and asyncio runs functions in one
pool of the loop. There, a slow query or a function that hangs would block every other tool and the host.
"""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connections

from governance.conf import app_settings
from governance.core.containment import current_work, settle_children
from governance.core.tools import Tool, ToolContext
from governance.db import thread_of_test
from governance.threads import DaemonPool, own_pool

P = ParamSpec("P")
R = TypeVar("R")


class ToolThreads:
    """The threads of coroutine tools on one event loop.

    `max_database_threads` limits how many connections to the database they use. A call that needs a connection beyond
    this limit waits for one, and its time limit includes this wait.
    """

    def __init__(self, *, max_threads: int, max_database_threads: int) -> None:
        self._slots = threading.Semaphore(max_database_threads)
        self._functions = DaemonPool(max_workers=max_threads, name="functions of tools")

    def take_over_functions(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the functions that tools pass to `asyncio.to_thread` in a pool that the host's functions do not use."""
        loop.set_default_executor(_DefaultExecutor(thread_of_test() or self._functions))

    @asynccontextmanager
    async def own_database_thread(
        self, tool: Tool, context: ToolContext
    ) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
        """Provide the body of a call with its own thread for the ORM, which starts at its first use.

        The end of the call does not wait for the thread. A thread that hangs in a query closes its connection when the
        query ends.
        """
        if (test := thread_of_test()) is not None:
            async with ThreadSensitiveContext(executor=_RecordingExecutor(test)):
                yield _run_in_own_thread
            return
        pool = DaemonPool(
            max_workers=1,
            name=f"database of {tool.name} {context.call_id}",
            on_exit=connections.close_all,
            slots=self._slots,
        )
        try:
            async with ThreadSensitiveContext(executor=_RecordingExecutor(pool)):
                yield _run_in_own_thread
        finally:
            pool.shutdown()


class _RecordingExecutor(Executor):
    """An executor that runs functions in a pool, and records them as work of the call that submits them."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> "Future[R]":
        future = self._pool.submit(_run_of_tool, partial(fn, *args, **kwargs))
        if (work := current_work()) is not None:
            work.note_function(future)
        return future


class _DefaultExecutor(ThreadPoolExecutor):
    """A default executor for an event loop, which passes functions of tools to another pool, and lookups of host names
    to `own_pool`.

    asyncio uses its default executor to look up a host name before it connects, for example to a chat model.
    """

    def __init__(self, of_tools: Executor) -> None:
        super().__init__(thread_name_prefix="asyncio")
        self._of_tools = _RecordingExecutor(of_tools)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> "Future[R]":
        if current_work() is not None:
            return self._of_tools.submit(fn, *args, **kwargs)
        is_lookup: bool = fn is socket.getaddrinfo
        if is_lookup:
            return own_pool.submit(fn, *args, **kwargs)
        return super().submit(fn, *args, **kwargs)


async def _run_in_own_thread(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    return await sync_to_async(function)(*args, **kwargs)


def _run_of_tool(function: Callable[[], R]) -> R:
    try:
        return function()
    finally:
        settle_children()


def make_tool_threads() -> ToolThreads:
    """Return the threads of tools on the running loop, with the sizes from the settings."""
    threads = ToolThreads(
        max_threads=app_settings.MAX_THREADS,
        max_database_threads=app_settings.MAX_DATABASE_THREADS,
    )
    threads.take_over_functions(asyncio.get_running_loop())
    return threads
