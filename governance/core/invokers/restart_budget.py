"""How often workers may die on a tool before its calls are refused for a while: no endless respawning (T8)."""

import time
from collections import deque
from collections.abc import Callable

_WINDOW = 60.0  # seconds


class RestartBudget:
    """Counts deaths in the last minute for each function; a failed start counts for all."""

    def __init__(self, *, deaths: int = 5, clock: Callable[[], float] = time.monotonic) -> None:
        self._allowed = deaths
        self._clock = clock
        self._deaths: deque[tuple[float, str | None]] = deque()

    def record(self, function: str | None) -> None:
        """Count a death during `function`, or None: a worker that died without a call."""
        self._deaths.append((self._clock(), function))

    def wait_for(self, function: str) -> float:
        """Return the seconds until `function` may run again; 0.0 = now."""
        return self._wait((function, None))

    def wait_for_start(self) -> float:
        """Return the seconds until a worker may be started without a call that waits for it."""
        return self._wait((None,))

    def _wait(self, counted: tuple[str | None, ...]) -> float:
        now = self._clock()
        while self._deaths and self._deaths[0][0] <= now - _WINDOW:
            self._deaths.popleft()
        recent = [at for at, function in self._deaths if function in counted]
        if len(recent) <= self._allowed:
            return 0.0
        return recent[-self._allowed - 1] + _WINDOW - now
