"""Rate limits over a sliding minute, for one socket or for one user in this process.

Processes do not share these counts, which protect the process. With three processes a user may do three times as much.
The limits over all processes are counted in the database (`turns.queueing.rate_limit`).
"""

import time
from collections import deque
from collections.abc import Callable, Hashable

WINDOW = 60.0  # seconds


class RateLimit:
    """At most `limit` events within any minute. Refused events do not count, so waiting always helps."""

    def __init__(self, limit: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._times: deque[float] = deque()

    @property
    def is_idle(self) -> bool:
        """Whether nothing has happened within the last minute."""
        return not self._times or self._times[-1] <= self._clock() - WINDOW

    def allow(self) -> bool:
        """Count one event; return False if there were too many."""
        now = self._clock()
        while self._times and self._times[0] <= now - WINDOW:
            self._times.popleft()
        if len(self._times) >= self._limit:
            return False
        self._times.append(now)
        return True


class UserRateLimits:
    """The rate limits of many users. It drops users who were idle for a minute, so it does not grow."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rates: dict[Hashable, RateLimit] = {}
        self._tidied_at = clock()

    def __len__(self) -> int:
        return len(self._rates)

    def allow(self, user_id: Hashable, what: str, *, limit: int) -> bool:
        """Count one event of a user; return False if there were more than `limit` of them in the last minute."""
        self._tidy()
        key = (user_id, what, limit)
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = RateLimit(limit, clock=self._clock)
        return rate.allow()

    def clear(self) -> None:
        self._rates.clear()

    def _tidy(self) -> None:
        if self._clock() - self._tidied_at >= WINDOW:
            self._tidied_at = self._clock()
            self._rates = {key: rate for key, rate in self._rates.items() if not rate.is_idle}


user_rate_limits = UserRateLimits()
