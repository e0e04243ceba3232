"""What each event loop has of its own, such as connections, executors and its runtime."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class PerLoop(Generic[T]):
    """At most one value for each event loop, dropped with the loop."""

    def __init__(self) -> None:
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    def get(self, loop: asyncio.AbstractEventLoop | None = None) -> T | None:
        """Return what the running loop has, or another one, which may be of another thread."""
        return self._by_loop.get(loop or asyncio.get_running_loop())

    def set(self, value: T) -> None:
        """Let the running loop have this value."""
        self._by_loop[asyncio.get_running_loop()] = value

    def get_or_make(self, make: Callable[[], T]) -> T:
        """Return what the running loop has, made now if it has nothing."""
        loop = asyncio.get_running_loop()
        if (found := self._by_loop.get(loop)) is None:
            found = self._by_loop[loop] = make()
        return found

    def pop(self) -> T | None:
        """Take away what the running loop has, and return it."""
        return self._by_loop.pop(asyncio.get_running_loop(), None)

    def call_soon(self, function: Callable[[T], object]) -> None:
        """Call the function with the value of each running loop; from any thread."""
        for loop, found in list(self._by_loop.items()):
            if loop.is_running():
                # In a context of its own: what starts there must not inherit what is bound to this thread.
                Context().run(loop.call_soon_threadsafe, function, found)

    def values(self) -> list[T]:
        """Return the values of all loops; from any thread."""
        return list(self._by_loop.values())
