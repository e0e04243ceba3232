"""Pacing: work that comes again and again, done as often as it can be without holding up everything else."""

import asyncio
from collections.abc import Awaitable, Callable

PAUSE = 4  # times what the last run took, counted from when it was due
LONGEST_PAUSE = 0.5  # seconds
CROWD = 100  # of a ticker: so many at once take turns less often
CROWDED = 1.2  # times the spacing, then


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


class Ticker:
    """Does what many want in one callback: at once after a rest, else `spacing` seconds after the last time.

    It rests at least as long as its last run took or was late. So a busy process gets to everything else. The
    work must not raise.
    """

    def __init__(self, *, spacing: float = 0.05) -> None:
        self._spacing = spacing
        self._next = float("-inf")
        self._wanted: dict[Callable[[], None], None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def request(self, work: Callable[[], None]) -> None:
        """Do it in the next round, once."""
        self._wanted[work] = None
        if self._timer is None:
            loop = asyncio.get_running_loop()
            due_at = max(loop.time(), self._next)
            self._timer = loop.call_at(due_at, self._tick, due_at)

    def withdraw(self, work: Callable[[], None]) -> None:
        """Do it no more, unless it is requested again."""
        self._wanted.pop(work, None)

    def _tick(self, due_at: float) -> None:
        self._timer = None
        wanted, self._wanted = self._wanted, {}
        for work in wanted:
            work()
        now = asyncio.get_running_loop().time()
        spacing = self._spacing * (CROWDED if len(wanted) > CROWD else 1)
        self._next = max(due_at + spacing, now + min(now - due_at, LONGEST_PAUSE))
