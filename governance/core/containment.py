"""Contains exits of a tool: they fail its own call and end nothing else (T1).

asyncio passes `SystemExit` and `KeyboardInterrupt` of a task or a callback to the runner of the loop. That ends the
process.
"""

import asyncio
import functools
import logging
import signal
import threading
import traceback
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from types import CodeType
from typing import Any

logger = logging.getLogger(__name__)

_belongs_to_tool: ContextVar[bool] = ContextVar("code of a tool", default=False)


EXITS = (SystemExit, KeyboardInterrupt)


class _Containment:
    """Turns a request to exit into a `RuntimeError`, unless a signal to this process made it."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _traceback: object
    ) -> None:
        if isinstance(error, EXITS):
            raise contained_failure(error) from error


contained = _Containment()


def contained_failure(error: BaseException) -> RuntimeError:
    """Return what takes the place of a request to exit. Raise the request itself if a signal to this process made it.

    `except EXITS` with this is `with contained` for where every call comes through: entering it costs nothing.
    """
    if _was_signalled(error):
        raise error
    failure = failure_of(error)
    failure.__cause__ = error
    return failure


def failure_of(error: BaseException) -> RuntimeError:
    """Return what a call fails with whose tool raised something that must not go further."""
    return RuntimeError(f"the tool raised {type(error).__name__}")


def contain_what_follows() -> None:
    """Contain, too, what this context hands to the loop from now on: tasks, as `gather` starts them, and callbacks."""
    _belongs_to_tool.set(True)
    loop: Any = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    if not isinstance(factory, _TaskFactory):
        loop.set_task_factory(_TaskFactory(factory))
    run_once = getattr(loop, "_run_once", None)
    if not isinstance(run_once, _Iteration | None):
        loop._run_once = _Iteration(run_once)  # there is no public way


class _TaskFactory:
    """A task factory like `before` that contains the coroutines of tools."""

    def __init__(self, before: Callable[..., Any] | None) -> None:
        self._before = before

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, /, **options: Any) -> Any:
        if _belongs_to_tool.get():
            coroutine = _Contained(coroutine)
        if self._before is not None:
            return self._before(loop, coroutine, **options)
        return asyncio.Task(coroutine, loop=loop, **options)


class _Contained(Coroutine[Any, Any, Any]):
    """A coroutine whose requests to exit are failures. No coroutine itself: one that never starts warns of nothing."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def send(self, value: Any) -> Any:
        with contained:
            return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        with contained:
            return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)  # its name and its frames, for whoever debugs


class _Iteration:
    """An iteration of a loop that survives a callback of a tool which asks to exit.

    The next iteration runs what was left.

    Each callback keeps the context that has scheduled it. So one of the host is told from one of a tool. Other loops
    than asyncio's own, such as uvloop, have no such place.
    """

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run

    def __call__(self) -> None:
        try:
            self._run()
        except EXITS as error:
            context = _context_of(error)
            if context is None or not context.get(_belongs_to_tool) or _was_signalled(error):
                raise
            context.run(
                logger.error,  # in its context, the line names the turn
                "A callback of a tool raised %s: it has ended, the process goes on",
                type(error).__name__,
                exc_info=error,
            )


def _context_of(error: BaseException) -> Context | None:
    """Return the context of the callback that raised this."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is asyncio.Handle._run.__code__:
            context: Context = frame.f_locals["self"]._context
            return context
    return None


def _was_signalled(error: BaseException) -> bool:
    """Whether the process was told to end while the tool ran.

    Python's own handler for Ctrl-C leaves no trace; where it is in force, an interrupt counts as a signal.
    """
    if threading.current_thread() is not threading.main_thread():
        return False  # signals are taken in the main thread alone
    if isinstance(error, KeyboardInterrupt) and _takes_interrupts(signal.default_int_handler):
        return True
    handlers = {_code_of(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)}
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code in handlers for frame, _ in frames)


def _takes_interrupts(handler: object) -> bool:
    return signal.getsignal(signal.SIGINT) is handler


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    return getattr(handler, "__code__", None)
