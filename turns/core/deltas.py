"""Streams text to whoever watches: at once, but at most twenty times a second, and stores it every second."""

import asyncio
import logging

from turns.core.ports import TurnJournal

logger = logging.getLogger(__name__)


class DeltaStream:
    """Coalesces the deltas of one message. `spacing` and `save_every` in seconds."""

    def __init__(
        self, journal: TurnJournal, *, step: int, spacing: float = 0.05, save_every: float = 1.0
    ) -> None:
        self._journal = journal
        self._step = step
        self._spacing = spacing
        self._save_every = save_every
        self._text: list[str] = []
        self._length = 0
        self._pushed = 0
        self._pushed_at = self._saved_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._push: asyncio.Task[None] | None = None
        self._error: Exception | None = None
        self._is_closed = False

    def add(self, text: str) -> None:
        """Take a piece of text; nothing is pushed after the end. Raise what the last store raised (`Fenced`)."""
        if self._error is not None:
            raise self._error
        if not self._length:
            self._saved_at = asyncio.get_running_loop().time()
        self._text.append(text)
        self._length += len(text)
        self._arm()

    async def close(self) -> None:
        """Push what is left."""
        self.discard()
        if self._push is not None:
            await asyncio.wait({self._push})
        await self._deliver()

    def discard(self) -> None:
        """Push nothing more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is None and self._push is None and not self._is_closed:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._pushed_at + self._spacing), self._due)

    def _due(self) -> None:
        self._timer = None
        self._push = asyncio.create_task(self._deliver(), name="push of a text delta")
        self._push.add_done_callback(self._pushed_on)

    def _pushed_on(self, push: asyncio.Task[None]) -> None:
        self._push = None
        if push.cancelled():
            return
        if (error := push.exception()) is not None:
            self._error = error if isinstance(error, Exception) else RuntimeError("push failed")
        elif self._pushed < self._length:
            self._arm()

    async def _deliver(self) -> None:
        text = "".join(self._text)
        self._text = [text]
        offset, self._pushed = self._pushed, len(text)
        self._pushed_at = asyncio.get_running_loop().time()
        if len(text) > offset:
            await self._journal.publish_text(text[offset:], offset)
        if self._pushed_at - self._saved_at >= self._save_every:
            self._saved_at = self._pushed_at
            await self._journal.save_text(self._step, text)
