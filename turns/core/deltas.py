"""Streams text to whoever watches: at once, but at most twenty times a second, and stores it every second.

Neither waits for the other: text is not late because the database is slow. Each stream has its own pace. If all were
pushed together, the last ones would wait for the others.
"""

from turns.core.ports import TurnJournal
from turns.core.throttle import CallbackThrottle, Throttle


class DeltaStream:
    """Coalesces the deltas of one message. `push_every` and `save_every` are in seconds."""

    def __init__(
        self,
        journal: TurnJournal,
        *,
        step: int,
        push_every: float = 0.05,
        save_every: float = 1.0,
    ) -> None:
        self._journal = journal
        self._step = step
        self._pushes = CallbackThrottle(self._push, spacing=push_every)
        self._save_every = save_every
        self._pieces: list[str] = []
        self._fresh: list[str] = []
        self._pushed = 0
        self._is_closed = False
        self._error: Exception | None = None
        self._saves: Throttle | None = None

    @property
    def error(self) -> Exception | None:
        """What the last store or push has raised."""
        return self._error or (self._saves.error if self._saves is not None else None)

    def add(self, text: str) -> None:
        """Take a piece of text; nothing is pushed after the end. Raise what the last store raised (`Fenced`)."""
        if (error := self.error) is not None:
            raise error
        if self._is_closed:
            return
        if self._saves is None:
            self._saves = Throttle(
                self._save, spacing=self._save_every, name="save of streamed text"
            )
            self._saves.wait(self._save_every)
        self._pieces.append(text)
        self._fresh.append(text)
        self._pushes.request()
        self._saves.request()

    async def close(self) -> None:
        """Push what is left; whoever closes stores the whole."""
        self.discard()
        if self._saves is not None:
            await self._saves.join()
        self._push()

    def discard(self) -> None:
        """Push and store nothing more."""
        self._is_closed = True
        self._pushes.withdraw()
        if self._saves is not None:
            self._saves.stop()

    def _push(self) -> None:
        if not self._fresh:
            return
        text, offset = "".join(self._fresh), self._pushed
        self._fresh.clear()
        self._pushed += len(text)
        try:
            self._journal.publish_text(text, offset, step=self._step)
        except Exception as error:  # noqa: BLE001 - whoever adds next is told
            self._error = error

    async def _save(self) -> None:
        self._pieces = ["".join(self._pieces)]
        await self._journal.save_text(self._step, self._pieces[0])
