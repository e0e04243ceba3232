"""The growing pauses between attempts to use a server that failed, so that it is not restarted endlessly."""

import time
from collections.abc import Callable

from governance.mcp.specs import McpTiming


class Backoff:
    """Doubles the pause with every consecutive failure, up to a maximum."""

    def __init__(self, timing: McpTiming, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._timing = timing
        self._clock = clock
        self._failures = 0
        self._until = 0.0

    @property
    def wait(self) -> float:
        """The number of seconds until the next attempt, or 0.0 if it may start now."""
        return max(0.0, self._until - self._clock())

    def record_failure(self) -> None:
        pause = self._timing.first_backoff * 2 ** min(self._failures, 30)
        self._failures += 1
        self._until = self._clock() + min(pause, self._timing.longest_backoff)

    def record_uptime(self, seconds: float) -> None:
        """Reset the failures if the server has been healthy for long enough."""
        if seconds >= self._timing.steady_after:
            self._failures = 0
