"""Runs plain tools, each in a separate thread (T7).

A thread cannot be ended from outside. A thread that outlives its call is *abandoned*, and the number of such threads is
limited. It delays neither the next call, which runs in another thread, nor the exit of the process, because it is a
daemon thread.
"""

import asyncio
import contextvars
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from governance.core.containment import Contained, begin_work, current_work, settle_children
from governance.core.exceptions import TooManyAbandonedThreads
from governance.core.results import Written
from governance.core.tools import Tool, ToolContext

logger = logging.getLogger(__name__)

MOST_PRINTED = 64_000  # characters per call, so that prints do not fill the server's log
_DROPPED = "\n[the rest of this call's output was dropped]\n"

_lock = threading.Lock()
_running = 0


def _start_thread(work: Callable[[], None], name: str) -> None:
    threading.Thread(target=work, name=name, daemon=True).start()


class ThreadInvoker:
    """An invoker that starts one daemon thread for each call.

    `on_exit` runs in the thread at its end, for example to close database connections. `start` receives the work of a
    call and a name, and runs the work, by default in a new thread with that name.

    `max_threads` is its `capacity`, so the executor's queue prevents more calls from starting. Abandoned threads have a
    separate limit, `max_abandoned`.
    """

    def __init__(
        self,
        *,
        max_threads: int,
        max_abandoned: int,
        on_exit: Callable[[], None] | None = None,
        start: Callable[[Callable[[], None], str], object] = _start_thread,
    ) -> None:
        self.capacity = max_threads
        self._max_abandoned = max_abandoned
        self._on_exit = on_exit
        self._start_work = start
        self._abandoned = 0

    @property
    def abandoned(self) -> int:
        return self._abandoned

    async def invoke(self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Run the body in a thread and return its value.

        A cancel of the surrounding task does not end the thread. The task then ends when the thread ends, or
        immediately at a second cancel, because a closing loop does not wait for threads.

        Raises:
            TooManyAbandonedThreads: the limit of abandoned threads is reached, so nothing was started.
        """
        if self._abandoned >= self._max_abandoned:
            raise TooManyAbandonedThreads(
                f"{self._abandoned} threads of earlier calls are still running and cannot be ended."
            )
        work = begin_work()  # the thread runs in a copy of this context
        settled = self._start(tool, arguments, context)
        try:
            return await asyncio.shield(settled)
        except asyncio.CancelledError:
            self._abandon(settled)
            if (task := asyncio.current_task()) is None or task.cancelling() > 1:
                raise
        result = await asyncio.shield(settled)
        await work.ended()
        return result

    def _abandon(self, settled: asyncio.Future[Any]) -> None:
        """Count the thread of an abandoned call as abandoned until the thread ends."""
        self._abandoned += 1
        settled.add_done_callback(self._take_back)

    def _take_back(self, settled: asyncio.Future[Any]) -> None:
        self._abandoned -= 1
        settled.exception()  # retrieve the exception, in case no caller does

    def _start(
        self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext
    ) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        settled: asyncio.Future[Any] = loop.create_future()
        keywords = dict(arguments)
        if tool.context_parameter is not None:
            keywords[tool.context_parameter] = context
        body = partial(contextvars.copy_context().run, tool.function, **keywords)
        work = partial(self._work, body, loop, settled, context.returned, context.writer.write)
        self._start_work(work, f"tool {tool.name} {context.call_id}")
        return settled

    def _work(
        self,
        body: Callable[[], Any],
        loop: asyncio.AbstractEventLoop,
        settled: asyncio.Future[Any],
        returned: Callable[[], None],
        write: Callable[[Any], Written],
    ) -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            with bounded_prints():
                result = write(body())
        except BaseException as raised:  # noqa: BLE001 - passed on to the caller
            error = raised
        settle_children()
        returned()
        self._leave()
        with suppress(RuntimeError):  # the loop is closed, so no caller is waiting
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
        settled.set_exception(Contained(error))
    else:
        settled.set_exception(error)


@contextmanager
def bounded_prints() -> Iterator[None]:
    """Limit what a tool prints, by replacing `sys.stdout` and `sys.stderr` while it runs.

    Output of other threads passes through, and logging handlers keep their streams. If other code replaces a stream in
    the meantime, its replacement stays.
    """
    global _running
    with _lock:
        _running += 1
        for name in ("stdout", "stderr"):
            if not isinstance(stream := getattr(sys, name), _Bounded | None):
                setattr(sys, name, _Bounded(stream))
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            for name in ("stdout", "stderr"):
                if not _running and isinstance(stream := getattr(sys, name), _Bounded):
                    setattr(sys, name, stream.stream)


class _Bounded:
    """A text stream that limits the output of each tool call."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        work = current_work()
        if work is None or work.printed + len(text) <= MOST_PRINTED:
            self.stream.write(text)
        elif work.printed <= MOST_PRINTED:
            self.stream.write(text[: MOST_PRINTED - work.printed] + _DROPPED)
        if work is not None:
            work.printed += len(text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
