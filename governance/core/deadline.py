"""The deadline of one running call: total and idle, movable while it runs, paused during a question (T5, T6, T9)."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from governance.core.policy import TimeoutSource

_TOLERANCE = 1e-4  # seconds


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
        self._timeout = timeout
        self._idle_timeout = idle_timeout
        self._on_expire = on_expire
        self._timer: asyncio.TimerHandle | None = None
        self._started_at = self._touched_at = self._loop.time()
        self._monotonic_start = time.monotonic()
        self._paused_at: float | None = None
        self._paused_for = 0.0
        self._is_closed = False
        self._arm()

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
        if monotonic is None:
            return max(self._loop.time(), self.loop_time(time.monotonic()))
        return self._started_at + monotonic - self._monotonic_start

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
        self._disarm()

    @property
    def _now(self) -> float:
        """The time at which both clocks stand."""
        return self._loop.time() if self._paused_at is None else self._paused_at

    def _arm(self) -> None:
        self._disarm()
        is_running = self._paused_at is None and not self._is_closed
        if is_running and (due := self._next()) is not None:
            self._timer = self._loop.call_at(due[0], self._check)

    def _disarm(self) -> None:
        if self._timer is not None:
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
