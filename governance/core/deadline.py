"""The deadline of one running call: total and idle, movable while it runs, paused during a question (T5, T6, T9)."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter

from governance.core.policy import TimeoutSource

NEAR = 1.0  # seconds; a deadline that is not near has no timer of its own
LOOK_INTERVAL = 0.5  # seconds between two looks at those that are not
_TOLERANCE = 1e-4  # seconds
_of_thread = threading.local()


class Limit(StrEnum):
    """The limit that ran out: total or idle of the call, its turn's, or the time for a decision."""

    TOTAL = "total"
    IDLE = "idle"
    TURN = "turn"
    APPROVAL = "approval"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineChange:
    """A change of the limits of a running call: total, idle or both; in seconds, None = none."""

    from_timeout: float | None
    to_timeout: float | None
    source: TimeoutSource
    by: str = ""
    from_idle_timeout: float | None = None
    to_idle_timeout: float | None = None


class Deadline:
    """Calls `on_expire(limit, seconds)` once, when the total or the idle limit has run out.

    Progress only stores the time; the timer checks it when it fires, so a chatty tool costs nothing. A closed
    deadline never runs again.
    """

    __slots__ = (
        "_context",
        "_far",
        "_idle_timeout",
        "_is_closed",
        "_loop",
        "_monotonic_start",
        "_on_expire",
        "_paused_at",
        "_paused_for",
        "_started_at",
        "_timeout",
        "_timer",
        "_touched_at",
    )

    def __init__(
        self,
        *,
        timeout: float | None,
        idle_timeout: float | None,
        on_expire: Callable[[Limit, float], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._far = _FarDeadlines.of_thread(self._loop)
        self._context = copy_context()
        self._timeout = timeout
        self._idle_timeout = idle_timeout
        self._on_expire = on_expire
        self._timer: asyncio.TimerHandle | None = None
        self._started_at = self._touched_at = self._loop.time()
        self._monotonic_start = time.monotonic()
        self._paused_at: float | None = None
        self._paused_for = 0.0
        self._is_closed = False
        self._set_timer()

    @property
    def timeout(self) -> float | None:
        return self._timeout

    @property
    def idle_timeout(self) -> float | None:
        return self._idle_timeout

    @property
    def elapsed(self) -> float:
        """Seconds of running, without pauses."""
        return self._now - self._started_at - self._paused_for

    @property
    def time_left(self) -> float | None:
        """Seconds until the total limit, None without one."""
        return None if self._timeout is None else max(self._timeout - self.elapsed, 0.0)

    def loop_time(self, monotonic: float | None = None) -> float:
        """Return the time by this clock, now or at a `time.monotonic()` of this machine; from any thread.

        A loop caches its time for one iteration, so it is late while something blocks it.
        """
        counted = time.monotonic() if monotonic is None else monotonic
        at = self._started_at + counted - self._monotonic_start
        return at if monotonic is not None else max(self._loop.time(), at)

    def reached_by(self, at: float) -> tuple[Limit, float] | None:
        """Return the limit that had run out at a time of this clock, and its seconds, or None."""
        due = self._next()
        counted = at if self._paused_at is None else min(at, self._paused_at)
        return None if due is None or counted <= due[0] + _TOLERANCE else due[1:]

    def touch(self) -> None:
        self._touched_at = self._now

    def move(self, timeout: float | None, *, idle_timeout: float | None) -> None:
        """Set new limits; one that has already run out expires at once."""
        self._timeout = timeout
        self._idle_timeout = idle_timeout
        self._arm()

    def pause(self) -> None:
        if self._paused_at is None:
            self._paused_at = self._loop.time()
            self._disarm()

    def resume(self) -> None:
        """Continue both clocks from where they stopped."""
        if self._paused_at is None:
            return
        pause = self._loop.time() - self._paused_at
        self._paused_for += pause
        self._touched_at += pause
        self._paused_at = None
        self._arm()

    def close(self) -> None:
        """Close it for good; later moves and resumes do nothing."""
        self._is_closed = True
        self._on_expire = _do_nothing  # it may hold what holds the deadline
        self._disarm()

    @property
    def _now(self) -> float:
        """The time at which both clocks stand."""
        return self._loop.time() if self._paused_at is None else self._paused_at

    @property
    def due_at(self) -> float | None:
        """When a limit runs out if there is no sign of life, by the loop's clock; None without one."""
        due = self._next()
        return None if due is None else due[0]

    def come_near(self) -> None:
        """Set the timer. Expire now if the time is over, since the loop was held up: whatever comes later is too late."""
        self._disarm()
        self._context.run(self._check)

    def _arm(self) -> None:
        self._disarm()
        self._set_timer()

    def _set_timer(self) -> None:
        """Set the timer for the limit that runs out first, or have it set when that is near."""
        if self._paused_at is not None or self._is_closed or (due := self._next()) is None:
            return
        if due[0] > self._loop.time() + NEAR:
            self._far.add(self)
        else:
            self._timer = self._loop.call_at(due[0], self._check, context=self._context)

    def _disarm(self) -> None:
        if self._timer is None:
            self._far.discard(self)
        else:
            self._timer.cancel()
            self._timer = None

    def _next(self) -> tuple[float, Limit, float] | None:
        """The time, the kind and the length of the limit that runs out first."""
        total = idle = None
        if self._timeout is not None:
            total = (
                self._started_at + self._paused_for + self._timeout,
                Limit.TOTAL,
                self._timeout,
            )
        if self._idle_timeout is not None:
            idle = (self._touched_at + self._idle_timeout, Limit.IDLE, self._idle_timeout)
        if total is None or idle is None:
            return total or idle
        return idle if idle[0] < total[0] else total

    def _check(self) -> None:
        self._timer = None
        due = self._next()
        assert due is not None  # noqa: S101 - there is no timer without a limit
        if due[0] > self._loop.time() + _TOLERANCE:
            self._arm()
        else:
            self._on_expire(due[1], due[2])


class _FarDeadlines:
    """The deadlines of an event loop that are not near. It looks at them now and then, and arms those that have become so.

    Nearly every call ends long before its limit. A timer that is taken back costs a twentieth of a call, an entry here
    next to nothing. The idea is that of timing wheels (Varghese and Lauck, 1987).
    """

    __slots__ = ("_deadlines", "_is_looking", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._deadlines: dict[Deadline, None] = {}
        self._is_looking = False

    @classmethod
    def of_thread(cls, loop: asyncio.AbstractEventLoop) -> "_FarDeadlines":
        """Return those of the loop that runs in this thread; a new one has none."""
        known: _FarDeadlines | None = getattr(_of_thread, "far", None)
        if known is None or known._loop is not loop:
            known = _of_thread.far = cls(loop)
        return known

    def add(self, deadline: Deadline) -> None:
        self._deadlines[deadline] = None
        if not self._is_looking:
            self._look_later()

    def discard(self, deadline: Deadline) -> None:
        self._deadlines.pop(deadline, None)

    def _look_later(self) -> None:
        # in a context of its own: this look is nobody's
        self._loop.call_later(LOOK_INTERVAL, self._look, context=Context())
        self._is_looking = True

    def _look(self) -> None:
        self._is_looking = False
        if not self._deadlines:
            return
        self._look_later()  # first, so that what an expiry raises keeps no other from its end
        soon = self._loop.time() + NEAR
        near = [
            (due_at, deadline)
            for deadline in self._deadlines
            if (due_at := deadline.due_at) is not None and due_at <= soon
        ]
        for _, deadline in sorted(near, key=itemgetter(0)):
            if deadline in self._deadlines:  # one before it may have closed it
                deadline.come_near()


def _do_nothing(_limit: Limit, _seconds: float) -> None:
    """Take the place of what a closed deadline no longer calls."""
