"""How often somebody may do something: a sliding window for one socket, a shared counter for HTTP."""

import time
from collections import deque
from collections.abc import Callable

from django.core.cache import cache

WINDOW = 60.0


class RateLimit:
    """At most `limit` events within any minute. Refused events do not count, so waiting always helps."""

    def __init__(self, limit: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._times: deque[float] = deque()

    def allow(self) -> bool:
        """Count one event; return False if there were too many."""
        now = self._clock()
        while self._times and self._times[0] <= now - WINDOW:
            self._times.popleft()
        if len(self._times) >= self._limit:
            return False
        self._times.append(now)
        return True


async def allow_in_minute(key: str, *, limit: int) -> bool:
    """Count one event of `key` in this minute, for all processes that share the cache."""
    name = f"webchat.limit.{key}.{int(time.time() // WINDOW)}"
    if await cache.aadd(name, 1, timeout=2 * WINDOW):
        return True
    try:
        count: int = await cache.aincr(name)
    except ValueError:  # it expired in between
        return True
    return count <= limit
