"""A future that any thread may resolve, once."""

import asyncio
from asyncio.events import _get_running_loop
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class Promise(asyncio.Future[T]):
    """A future of the running loop. The first value counts; later ones are ignored."""

    def resolve(self, value: T) -> None:
        if _get_running_loop() is not self.get_loop():
            with suppress(RuntimeError):  # the loop is closed: there is no waiter
                self.get_loop().call_soon_threadsafe(self.resolve, value)
        elif not self.done():
            self.set_result(value)
