"""Runs plain tools, each in a thread of its own (T7).

A thread cannot be ended from outside. One that outlives its call is *abandoned*: counted, capped, and a daemon. So it
delays neither the next call nor the exit of the process.
"""

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from governance.core.containment import contain_what_follows, failure_of
from governance.core.exceptions import TooManyAbandonedThreads
from governance.core.tools import Tool, ToolContext

logger = logging.getLogger(__name__)


class ThreadInvoker:
    """Starts one daemon thread for each call. `on_exit` runs in the thread at its end (to close connections).

    `max_threads` is its `capacity`: the executor's queue keeps more calls from starting. Threads that are abandoned
    do not count against it, they have a cap of their own.
    """

    def __init__(
        self, *, max_threads: int, max_abandoned: int, on_exit: Callable[[], None] | None = None
    ) -> None:
        self.capacity = max_threads
        self._max_abandoned = max_abandoned
        self._on_exit = on_exit
        self._abandoned = 0

    @property
    def abandoned(self) -> int:
        return self._abandoned

    async def invoke(self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Run the body in a thread and return its value.

        A cancel of the surrounding task does not end the thread. The task then ends with the thread, or at once at a
        second cancel. The loop is closing then, and does not wait for threads.

        Raises:
            TooManyAbandonedThreads: the cap is reached; nothing was started.
        """
        if self._abandoned >= self._max_abandoned:
            raise TooManyAbandonedThreads(
                f"{self._abandoned} threads of earlier calls are still running and cannot be ended."
            )
        contain_what_follows()  # the thread takes a copy of this context
        settled = self._start(tool, arguments, context)
        try:
            return await asyncio.shield(settled)
        except asyncio.CancelledError:
            self._abandon(settled)
            if (task := asyncio.current_task()) is None or task.cancelling() > 1:
                raise
        return await asyncio.shield(settled)

    def _abandon(self, settled: asyncio.Future[Any]) -> None:
        """Count a thread whose call was given up until it ends."""
        self._abandoned += 1
        settled.add_done_callback(self._take_back)

    def _take_back(self, settled: asyncio.Future[Any]) -> None:
        self._abandoned -= 1
        settled.exception()  # retrieved, in case the caller is gone

    def _start(
        self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext
    ) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        settled: asyncio.Future[Any] = loop.create_future()
        keywords = dict(arguments)
        if tool.context_parameter is not None:
            keywords[tool.context_parameter] = context
        body = partial(contextvars.copy_context().run, tool.function, **keywords)
        threading.Thread(
            target=self._work,
            args=(body, loop, settled, context.returned),
            name=f"tool {tool.name} {context.call_id}",
            daemon=True,
        ).start()
        return settled

    def _work(
        self,
        body: Callable[[], Any],
        loop: asyncio.AbstractEventLoop,
        settled: asyncio.Future[Any],
        returned: Callable[[], None],
    ) -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = body()
        except BaseException as raised:  # noqa: BLE001 - handed to the waiter
            error = raised
        returned()
        self._leave()
        with suppress(RuntimeError):  # the loop is closed: no caller waits
            loop.call_soon_threadsafe(_settle, settled, result, error)

    def _leave(self) -> None:
        if self._on_exit is None:
            return
        try:
            self._on_exit()
        except Exception:
            logger.exception("A thread could not clean up at its end")


def _settle(settled: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if error is None:
        settled.set_result(result)
    elif isinstance(error, StopIteration | asyncio.CancelledError | KeyboardInterrupt | SystemExit):
        settled.set_exception(failure_of(error))
    else:
        settled.set_exception(error)
