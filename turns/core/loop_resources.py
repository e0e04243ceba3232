"""What an event loop holds while it serves: one object for each loop, dropped with it."""

import asyncio
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class LoopResources:
    """The resources of one event loop, one of each class. The runtime of the loop closes them."""

    def __init__(self) -> None:
        self._by_class: dict[type[Any], Any] = {}

    def get(self, kind: type[T]) -> T:
        """Return the resource of this class, made now if there is none."""
        if (found := self.find(kind)) is None:
            found = self._by_class[kind] = kind()
        return found

    def find(self, kind: type[T]) -> T | None:
        found: T | None = self._by_class.get(kind)
        return found

    def pop(self, kind: type[T]) -> T | None:
        """Take the resource of this class away, and return it."""
        found: T | None = self._by_class.pop(kind, None)
        return found


def of_running_loop() -> LoopResources:
    """Return what the running loop holds."""
    return of_loop(asyncio.get_running_loop())


def of_loop(loop: asyncio.AbstractEventLoop) -> LoopResources:
    if (found := _by_loop.get(loop)) is None:
        found = _by_loop[loop] = LoopResources()
    return found


def of_all_loops(kind: type[T]) -> list[tuple[asyncio.AbstractEventLoop, T]]:
    """Return the resources of one class, each with its loop; from any thread."""
    return [
        (loop, resource)
        for loop, resources in list(_by_loop.items())
        if (resource := resources.find(kind)) is not None
    ]


_by_loop: "WeakKeyDictionary[asyncio.AbstractEventLoop, LoopResources]" = WeakKeyDictionary()
