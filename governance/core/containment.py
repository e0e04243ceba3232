"""Associate everything that a tool's body starts or raises with its call (T1, C13, T7, B4).

`StartedWork` tracks the tasks, functions in threads and child processes that a body has started. A body whose task has
ended may have left such work behind, as `asyncio.to_thread` and `asyncio.shield` do when they are cancelled. Its call must not be
reported as ended while that work runs. `StartedWork` sees tasks of the loop, functions in the executors that are
reported to `note_function`, and child processes (Linux), but neither threads that a body starts directly nor processes
that its children start.

`contained` turns an exit of a tool into a failure of its own call. Otherwise, asyncio would pass a task's `SystemExit`
or `KeyboardInterrupt` to the loop's runner, which ends the process. A tool's body and the tasks that it starts are
contained. Its callbacks (`call_soon`) are not, because no public API of asyncio can catch their exceptions before the
runner does.
"""

import asyncio
import concurrent.futures
import contextvars
import functools
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import CodeType
from typing import Any

from governance.core import procfs

_POLL = 0.2  # seconds between two polls of the child processes
_FORKS = {"os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "subprocess.Popen"}

_current: ContextVar["StartedWork | None"] = ContextVar("work of a tool call", default=None)


class StartedWork:
    """The unfinished work that the body of one call has started."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()
        self._functions: set[concurrent.futures.Future[Any]] = set()
        self._children: set[int] = set()
        self.printed = 0  # number of characters

    def note_task(self, task: "asyncio.Future[Any]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def note_function(self, function: "concurrent.futures.Future[Any]") -> None:
        self._functions.add(function)
        function.add_done_callback(self._functions.discard)

    def note_child(self, pid: int) -> None:
        self._children.add(pid)

    @property
    def has_ended(self) -> bool:
        """Whether all work that the body started has ended."""
        _children.settle()
        self._children = {pid for pid in self._children if procfs.is_alive(pid)}
        return not (self._tasks or self._functions or self._children)

    async def ended(self) -> None:
        """Wait until all work has ended."""
        while not self.has_ended:
            waits = [*self._tasks, *map(asyncio.wrap_future, list(self._functions))]
            if waits:
                await asyncio.wait(waits, timeout=_POLL if self._children else None)
            else:
                await asyncio.sleep(_POLL)


def outside() -> contextvars.Context:
    """Return a copy of this context for a task that does not belong to the call that starts it."""
    context = contextvars.copy_context()
    context.run(_current.set, None)
    return context


def settle_children() -> None:
    """Assign new child processes of this thread to their call, before the thread ends or runs other work."""
    _children.settle()


def current_work(context: contextvars.Context | None = None) -> StartedWork | None:
    """Return the work of the call that `context` (by default the current one) belongs to, or `None` outside a call."""
    return _current.get() if context is None else context.get(_current)


class _Children(threading.local):
    """The search for child processes that calls start in this thread.

    The audit hook runs before the fork, so a child is found at the thread's next fork or at the next `settle`.
    """

    owner: StartedWork | None = None
    before: frozenset[int] = frozenset()

    def hear(self, event: str, _arguments: Any) -> None:
        if event in _FORKS:
            self.settle()
            self.owner = _current.get()
            if self.owner is not None:
                self.before = procfs.children_of_thread()

    def settle(self) -> None:
        """Assign the children of the last fork to the call that forked."""
        owner, self.owner = self.owner, None
        if owner is not None:
            for pid in procfs.children_of_thread() - self.before:
                owner.note_child(pid)


_children = _Children()
_is_listening = False


@contextmanager
def contained() -> Iterator[None]:
    """Convert a request to exit to a `RuntimeError`, unless a signal to this process caused it."""
    try:
        yield
    except (SystemExit, KeyboardInterrupt) as error:
        if _was_signalled(error):
            raise
        raise Contained(error) from error


class Contained(RuntimeError):
    """The error of a call whose tool raised an exception that must not propagate, such as `SystemExit`."""

    def __init__(self, error: BaseException) -> None:
        self.kind = type(error).__name__
        super().__init__(f"the tool raised {self.kind}")


def begin_work() -> StartedWork:
    """Contain and track the tasks that this context starts from now on, for example with `gather`.

    Return the tracked work.
    """
    loop: Any = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    if not isinstance(factory, _TaskFactory):
        # The factory stays installed, because later factories of the loop may wrap it.
        loop.set_task_factory(_TaskFactory(factory))
    global _is_listening
    if not _is_listening:
        _is_listening = True
        # No other public API reports child processes. An audit hook cannot be removed, so this one is kept cheap.
        sys.addaudithook(_children.hear)
    work = StartedWork()
    _current.set(work)
    return work


class _TaskFactory:
    """A task factory that contains the tasks of tools.

    It creates tasks with `before`, which is the loop's previous factory, or with asyncio's default. A task is contained
    if the code that starts it runs in a call. A task with its own context (`context=Context()`) is contained, but is
    not part of the call's work; connections that later calls share are created this way.
    """

    def __init__(self, before: Callable[..., Any] | None) -> None:
        self._before = before

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, /, **options: Any) -> Any:
        make = self._before or _make_task
        if current_work() is None or not asyncio.iscoroutine(coroutine):
            return make(loop, coroutine, **options)
        task = make(loop, _contain(coroutine), **options)
        # A task cancelled before its first step never awaits its coroutine; closing it avoids Python's warning.
        task.add_done_callback(lambda _: coroutine.close())
        if (work := current_work(options.get("context"))) is not None:
            work.note_task(task)
        return task


def _make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, /, **options: Any) -> Any:
    return asyncio.Task(coroutine, loop=loop, **options)


async def _contain(coroutine: Coroutine[Any, Any, Any]) -> Any:
    with contained():
        return await coroutine


def _was_signalled(error: BaseException) -> bool:
    """Return whether the process received a signal to end while the tool ran.

    Python's own handler for Ctrl-C leaves no trace, so every interrupt is treated as a signal if that handler is set.
    """
    if threading.current_thread() is not threading.main_thread():
        return False  # only the main thread handles signals
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
