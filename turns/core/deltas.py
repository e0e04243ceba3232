"""Streams text to whoever watches: at once, but at most twenty times a second, and stores it every second.

Neither waits for the other: text is not late because the database is slow.
"""

from turns.core.ports import TurnJournal
from turns.core.throttle import Throttle


class DeltaStream:
    """Coalesces the deltas of one message. `spacing` and `save_every` in seconds."""

    def __init__(
        self, journal: TurnJournal, *, step: int, spacing: float = 0.05, save_every: float = 1.0
    ) -> None:
        self._journal = journal
        self._step = step
        self._save_every = save_every
        self._pieces: list[str] = []
        self._length = 0
        self._pushed = 0
        self._pushes = Throttle(self._push, spacing=spacing, name="push of a text delta")
        self._saves = Throttle(self._save, spacing=save_every, name="save of streamed text")

    def add(self, text: str) -> None:
        """Take a piece of text; nothing is pushed after the end. Raise what the last store raised (`Fenced`)."""
        for error in (self._saves.error, self._pushes.error):
            if error is not None:
                raise error
        if not self._length:
            self._saves.wait(self._save_every)
        self._pieces.append(text)
        self._length += len(text)
        self._pushes.request()
        self._saves.request()

    async def close(self) -> None:
        """Push what is left; whoever closes stores the whole."""
        self.discard()
        await self._pushes.join()
        await self._saves.join()
        await self._push()

    def discard(self) -> None:
        """Push and store nothing more."""
        self._pushes.stop()
        self._saves.stop()

    async def _push(self) -> None:
        text, offset = self._text(), self._pushed
        self._pushed = len(text)
        if self._pushed > offset:
            await self._journal.publish_text(text[offset:], offset)

    async def _save(self) -> None:
        await self._journal.save_text(self._step, self._text())

    def _text(self) -> str:
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]
