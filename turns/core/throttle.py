"""Pacing: work that comes again and again, done as often as it can be without holding up everything else."""

import asyncio
import math
from collections.abc import Awaitable, Callable

PAUSE = 4  # times what the last run took, counted from when it was due
LONGEST_PAUSE = 0.5  # seconds
GRID = 0.025  # seconds: callbacks that wait are called at multiples of it, many in one iteration of the loop
_ROUNDING = 1e-6  # of the grid: what floats make of a moment that lies on it


class Throttle:
    """Does some work as often as it is wanted. Runs come one at a time, at least `spacing` seconds after each other.

    After a run that took long, or came late, the pause is several times that. So many throttles of a busy process run
    less often each, and do not fall behind together. `error` is what the work has raised; then it is done no more.
    """

    def __init__(self, work: Callable[[], Awaitable[None]], *, spacing: float, name: str) -> None:
        self.error: Exception | None = None
        self._work = work
        self._spacing = spacing
        self._name = name
        self._next = float("-inf")  # when it may run again
        self._is_requested = self._is_stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._run: asyncio.Task[None] | None = None

    def wait(self, seconds: float) -> None:
        """Do not run for so long."""
        self._next = asyncio.get_running_loop().time() + seconds

    def request(self) -> None:
        """Run as soon as it may, and once more if it runs now; never again once stopped."""
        self._is_requested = True
        self._arm()

    def stop(self) -> None:
        """Begin no other run."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def join(self) -> None:
        """Wait for the run that is under way, if any."""
        if self._run is not None:
            await asyncio.wait({self._run})

    def _arm(self) -> None:
        is_busy = self._timer is not None or self._run is not None
        if self._is_requested and not is_busy and not self._is_stopped and self.error is None:
            loop = asyncio.get_running_loop()
            due_at = max(loop.time(), self._next)
            self._timer = loop.call_at(due_at, self._begin, due_at)

    def _begin(self, due_at: float) -> None:
        self._timer, self._is_requested = None, False
        self._run = asyncio.get_running_loop().create_task(self._once(due_at), name=self._name)
        self._run.add_done_callback(self._done)

    async def _once(self, due_at: float) -> None:
        await self._work()
        now = asyncio.get_running_loop().time()
        pause = min(PAUSE * (now - due_at), LONGEST_PAUSE)
        self._next = max(due_at + self._spacing, now + pause)

    def _done(self, run: asyncio.Task[None]) -> None:
        self._run = None
        if run.cancelled():
            return
        if (error := run.exception()) is not None:
            self.error = error if isinstance(error, Exception) else RuntimeError(str(error))
        self._arm()


class CallbackThrottle:
    """Calls something as often as it is wanted: at once after a rest, else once `spacing` seconds are over.

    After a call that took long, or came late, it rests at least as long. So a busy process gets to everything else. What
    is called must not raise.
    """

    def __init__(self, callback: Callable[[], None], *, spacing: float) -> None:
        self._callback = callback
        self._spacing = spacing
        self._next = float("-inf")  # when it may call again
        self._timer: asyncio.TimerHandle | None = None

    def request(self) -> None:
        """Call as soon as it may, once for all that ask until then."""
        if self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        if (now := loop.time()) >= self._next:
            self._call(loop, now)
        else:
            due_at = math.ceil(self._next / GRID - _ROUNDING) * GRID
            self._timer = loop.call_at(due_at, self._call, loop, due_at)

    def withdraw(self) -> None:
        """Call no more, unless it is requested again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _call(self, loop: asyncio.AbstractEventLoop, due_at: float) -> None:
        self._timer = None
        self._callback()
        now = loop.time()
        self._next = max(due_at + self._spacing, now + min(now - due_at, LONGEST_PAUSE))
