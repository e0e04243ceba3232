"""A channel layer that loses, repeats and delays messages (and so reorders them), by seed."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from django.utils.module_loading import import_string


class FaultyLayer:
    """Passes everything to the `inner` layer, except that sending to a group fails as told.

    `drop`, `duplicate` and `late` are probabilities. A late message comes up to `delay` seconds later, after others
    that were sent behind it.
    """

    def __init__(
        self,
        *,
        inner: dict[str, Any],
        seed: int = 0,
        drop: float = 0.0,
        duplicate: float = 0.0,
        late: float = 0.0,
        delay: float = 0.2,
    ) -> None:
        self._inner = import_string(inner["BACKEND"])(**inner.get("CONFIG", {}))
        self._random = random.Random(seed)
        self._drop, self._duplicate, self._late, self._delay = drop, duplicate, late, delay
        self._sending: set[asyncio.Task[None]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        """Send the message once, never, twice or later."""
        await self._send(lambda: self._inner.group_send(group, message))

    async def send(self, channel: str, message: dict[str, Any]) -> None:
        """Send the message once, never, twice or later."""
        await self._send(lambda: self._inner.send(channel, message))

    async def _send(self, send: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._random.random() < self._drop:
            return
        for _ in range(2 if self._random.random() < self._duplicate else 1):
            if self._random.random() < self._late:
                self._send_later(send, after=self._random.uniform(0, self._delay))
            else:
                await send()

    def _send_later(self, send: Callable[[], Coroutine[Any, Any, None]], *, after: float) -> None:
        async def sleep_and_send() -> None:
            await asyncio.sleep(after)
            await send()

        task = asyncio.create_task(sleep_and_send(), name="late message of a faulty layer")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
