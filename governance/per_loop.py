"""Values kept per event loop, such as connections, executors and the runtime."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class PerLoop(Generic[T]):
    """A container for at most one value per event loop. A value is dropped together with its loop."""

    def __init__(self) -> None:
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    def get(self, loop: asyncio.AbstractEventLoop | None = None) -> T | None:
        """Return the value of the running loop, or of the given one, which may belong to another thread."""
        return self._by_loop.get(loop or asyncio.get_running_loop())

    def set(self, value: T) -> None:
        """Set the value of the running loop."""
        self._by_loop[asyncio.get_running_loop()] = value

    def get_or_make(self, make: Callable[[], T]) -> T:
        """Return the running loop's value. If there is none, create it with `make`."""
        loop = asyncio.get_running_loop()
        if (instance := self._by_loop.get(loop)) is None:
            instance = self._by_loop[loop] = make()
        return instance

    def pop(self) -> T | None:
        """Remove and return the running loop's value. Return None if there is none."""
        return self._by_loop.pop(asyncio.get_running_loop(), None)

    def call_soon(self, function: Callable[[T], object]) -> None:
        """Call the function on each running loop, with that loop's value. May be called from any thread."""
        for loop, instance in list(self._by_loop.items()):
            if loop.is_running():
                # In a new context, so that tasks started there do not inherit this thread's context variables.
                Context().run(loop.call_soon_threadsafe, function, instance)

    def values(self) -> list[T]:
        """Return the values of all loops. May be called from any thread."""
        return list(self._by_loop.values())
