"""Watches an event loop from another thread: how far it is behind, and what it is doing instead."""

import asyncio
import sys
import threading
import time
import traceback


class LoopWatch:
    """Asks a loop for an answer and measures how long it owes it. Made on the loop, used from one other thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._asked = self._answered = 0
        self._asked_at = 0.0

    def lag(self) -> float:
        """Return for how many seconds the loop has owed an answer. Raise `RuntimeError` once it is closed."""
        if self._answered == self._asked:
            self._asked += 1
            self._asked_at = time.monotonic()
            self._loop.call_soon_threadsafe(self._answer, self._asked)
        return time.monotonic() - self._asked_at

    def restart(self) -> None:
        """Forget how long the answer was owed: the whole process was held up, not the loop."""
        self._asked_at = time.monotonic()

    def stack(self) -> str:
        """Return what the loop's thread is doing now."""
        frame = sys._current_frames().get(self._thread)
        return "".join(traceback.format_stack(frame)) if frame else ""

    def _answer(self, number: int) -> None:
        self._answered = number
