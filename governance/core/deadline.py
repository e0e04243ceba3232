"""The total and idle limits of a running call, which can change and which pause during a question (T5, T6, T9)."""

import asyncio
import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from governance.core.policy import TimeoutSource

_TOLERANCE = 1e-4  # seconds


class Limit(StrEnum):
    """The limit that ran out: the call's total or idle limit, the limit of its turn, or the limit for an approval."""

    TOTAL = "total"
    IDLE = "idle"
    TURN = "turn"
    APPROVAL = "approval"


class Expiry(NamedTuple):
    """A limit of a call that ran out, and its length in seconds."""

    limit: Limit
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineChange:
    """A change to the total or idle limit, or both, of a running call. Limits are in seconds; None means no limit."""

    from_timeout: float | None
    to_timeout: float | None
    source: TimeoutSource
    by: str = ""
    from_idle_timeout: float | None = None
    to_idle_timeout: float | None = None


class Deadline:
    """A timer that calls `on_expire` once, when the total or the idle limit has run out.

    A progress report only stores its time, and the timer checks that time when it fires, so frequent reports cost
    almost nothing. A closed deadline never expires.
    """

    __slots__ = (
        "_context",
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
        on_expire: Callable[[Expiry], object],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        # `on_expire` runs in this context, even if another task moves the limit.
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
        self._arm()

    @property
    def timeout(self) -> float | None:
        return self._timeout

    @property
    def idle_timeout(self) -> float | None:
        return self._idle_timeout

    @property
    def elapsed(self) -> float:
        """The number of seconds that the call has run, excluding pauses."""
        return self._now - self._started_at - self._paused_for

    @property
    def time_left(self) -> float | None:
        """The number of seconds until the total limit, or `None` if there is no such limit."""
        return None if self._timeout is None else max(self._timeout - self.elapsed, 0.0)

    def loop_time(self, monotonic: float | None = None) -> float:
        """Return the loop's time, now or at a given `time.monotonic()`. This may be called from any thread.

        It is derived from `time.monotonic()`, because a blocked loop may return a stale `loop.time()`.
        """
        monotonic_time = time.monotonic() if monotonic is None else monotonic
        at = self._started_at + monotonic_time - self._monotonic_start
        return at if monotonic is not None else max(self._loop.time(), at)

    def reached_by(self, at: float) -> Expiry | None:
        """Return the limit that had run out at the loop time `at`, or `None`."""
        next_limit = self._next()
        clock_time = at if self._paused_at is None else min(at, self._paused_at)
        if next_limit is None or clock_time <= next_limit[0] + _TOLERANCE:
            return None
        return next_limit[1]

    def touch(self) -> None:
        self._touched_at = self._now

    def move(self, timeout: float | None, *, idle_timeout: float | None) -> None:
        """Set new limits. A limit that has already run out expires immediately."""
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
        """Close the deadline. Later calls of `move` and `resume` have no effect."""
        self._is_closed = True
        # Break the reference cycle with the owner of the deadline, to which the callback may refer.
        self._on_expire = _do_nothing
        self._disarm()

    @property
    def _now(self) -> float:
        """The current time of both clocks; it does not advance during a pause."""
        return self._loop.time() if self._paused_at is None else self._paused_at

    def _arm(self) -> None:
        """Set the timer for the limit that runs out first."""
        self._disarm()
        if (
            self._paused_at is None
            and not self._is_closed
            and (next_limit := self._next()) is not None
        ):
            self._timer = self._loop.call_at(next_limit[0], self._check, context=self._context)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next(self) -> tuple[float, Expiry] | None:
        """Return the time at which the first limit runs out, and that limit, or `None` if there is no limit."""
        total = idle = None
        if self._timeout is not None:
            at = self._started_at + self._paused_for + self._timeout
            total = (at, Expiry(Limit.TOTAL, self._timeout))
        if self._idle_timeout is not None:
            at = self._touched_at + self._idle_timeout
            idle = (at, Expiry(Limit.IDLE, self._idle_timeout))
        if total is None or idle is None:
            return total or idle
        return idle if idle[0] < total[0] else total

    def _check(self) -> None:
        self._timer = None
        next_limit = self._next()
        assert next_limit is not None  # noqa: S101 - there is no timer without a limit
        at, expiry = next_limit
        if at > self._loop.time() + _TOLERANCE:
            self._arm()
        else:
            self._on_expire(expiry)


def _do_nothing(_expiry: Expiry) -> None:
    """Do nothing, as the callback of a closed deadline."""
