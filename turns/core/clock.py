"""The clock of a turn: runs out after `turn_timeout` seconds, and stands still while a person is asked (T5, T10)."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from governance import Deadline, Limit

ENDS_AT = "turn_ends_at"


class TurnClock:
    """Calls `on_expire` once, when the turn's time is up.

    Pauses are counted: it stands still until every `pause` has had its `resume`. Without a `timeout` it never expires.
    Starts when it is made; lives on one event loop.
    """

    def __init__(self, *, timeout: float | None, on_expire: Callable[[], object]) -> None:
        self._pauses = 0
        self._on_expire = on_expire
        self._deadline = Deadline(timeout=timeout, idle_timeout=None, on_expire=self._expire)

    @property
    def time_left(self) -> float | None:
        """Seconds until it expires, pauses left out; None = no limit."""
        return self._deadline.time_left

    @property
    def ends_at(self) -> float | None:
        """When it expires if nothing pauses it from now on, in seconds of the wall clock; None = no limit."""
        left = self.time_left
        return None if left is None else time.time() + left

    def pause(self) -> None:
        """Stand still; several waits may overlap."""
        self._pauses += 1
        if self._pauses == 1:
            self._deadline.pause()

    def resume(self) -> None:
        """Take one pause back; the clock goes on when there is none left."""
        if self._pauses == 0:
            raise RuntimeError("The clock of a turn was resumed more often than it was paused.")
        self._pauses -= 1
        if self._pauses == 0:
            self._deadline.resume()

    def close(self) -> None:
        """Take the timer away: the turn is over."""
        self._deadline.close()

    def _expire(self, _limit: Limit, _seconds: float) -> None:
        self._on_expire()


class TurnFacts(Mapping[str, Any]):
    """What the tools of a turn know of it. `turn_ends_at` is worked out at each look, so it follows the clock's pauses.

    A worker process gets a plain copy of what it is at the start of the call.
    """

    def __init__(self, facts: Mapping[str, Any], *, clock: TurnClock) -> None:
        self._facts = facts
        self._clock = clock

    def __getitem__(self, name: str) -> Any:
        return self._clock.ends_at if name == ENDS_AT else self._facts[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._facts
        yield ENDS_AT

    def __len__(self) -> int:
        return len(self._facts) + 1
