"""A future that any thread may resolve, once."""

import asyncio
import threading
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class Promise(asyncio.Future[T]):
    """A future of the running loop. The first value counts; later ones are ignored."""

    def __init__(self) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._thread = threading.get_ident()

    def resolve(self, value: T) -> None:
        if threading.get_ident() != self._thread:
            with suppress(RuntimeError):  # the loop is closed: there is no waiter
                self.get_loop().call_soon_threadsafe(self.resolve, value)
        elif not self.done():
            self.set_result(value)
