"""The limits of a turn: its time limit, which is paused while a person is asked (T5), and its token limit (T10)."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from governance import Deadline
from turns.core.chat_model import Reply, StopReason, Usage, tokens_of
from turns.core.texts import FAMILY_LIMIT, TOKEN_LIMIT
from turns.core.turns import TurnEnding, TurnStatus

ENDS_AT = "turn_ends_at"


class TurnClock:
    """A timer that calls `on_expire` once when the turn's time is up.

    Pauses are counted: the clock stays paused until every `pause` has a `resume`. Without a `timeout`, it never
    expires. It starts when it is created, and belongs to one event loop.
    """

    def __init__(self, *, timeout: float | None, on_expire: Callable[[], object]) -> None:
        self._pauses = 0
        self._on_expire = on_expire
        self._deadline = Deadline(timeout=timeout, idle_timeout=None, on_expire=self._expire)

    @property
    def time_left(self) -> float | None:
        """Return the seconds until the clock expires, without pauses; None if there is no limit."""
        return self._deadline.time_left

    @property
    def ends_at(self) -> float | None:
        """Return the wall-clock time at which the clock expires without further pauses; None if there is no limit."""
        seconds = self.time_left
        return None if seconds is None else time.time() + seconds

    def pause(self) -> None:
        """Pause the clock; pauses may overlap."""
        self._pauses += 1
        if self._pauses == 1:
            self._deadline.pause()

    def resume(self) -> None:
        """End one pause; the clock continues after the last one."""
        if self._pauses == 0:
            raise RuntimeError("The clock of a turn was resumed more often than it was paused.")
        self._pauses -= 1
        if self._pauses == 0:
            self._deadline.resume()

    def close(self) -> None:
        """Cancel the timer, because the turn is over."""
        self._deadline.close()

    def _expire(self, _expiry: object) -> None:
        self._on_expire()


class TurnMetadata(Mapping[str, Any]):
    """Facts about the turn that its tools can read. `turn_ends_at` is computed on each access, so it reflects pauses.

    A worker process receives the value that `turn_ends_at` had when the call started.
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


class TokenBudget:
    """Adds up a turn's tokens, and checks them against its own limit and that of its family. A limit of None does not
    apply.

    `others` is the last known number of tokens used by the other turns of the family.
    """

    def __init__(self, limit: int | None = None, *, family_limit: int | None = None) -> None:
        self.limit = limit
        self.family_limit = family_limit
        self.others = 0
        self.usage: dict[str, int] = {}

    @property
    def left(self) -> int | None:
        """Return how many tokens the turn may still use; None if neither it nor its family has a limit."""
        tokens = tokens_of(self.usage)
        remainders = []
        if self.limit is not None:
            remainders.append(self.limit - tokens)
        if self.family_limit is not None:
            remainders.append(self.family_limit - tokens - self.others)
        return max(min(remainders), 0) if remainders else None

    @property
    def is_used_up(self) -> bool:
        """Whether no further request is allowed."""
        return self.left == 0

    def has_cut_off(self, reply: Reply) -> bool:
        """Return whether an answer was cut off because the tokens ran out."""
        return reply.stop_reason is StopReason.LENGTH and self.is_used_up

    def take(self, usage: Usage) -> None:
        for name, count in usage.counts.items():
            self.usage[name] = self.usage.get(name, 0) + count

    def ending(self) -> TurnEnding:
        """Return the ending of a turn that has used up its own limit or that of its family."""
        if self.limit is not None and tokens_of(self.usage) >= self.limit:
            message = TOKEN_LIMIT % {"limit": self.limit}
        else:
            message = FAMILY_LIMIT % {"limit": self.family_limit}
        return TurnEnding(
            status=TurnStatus.FAILED,
            error_code="token_limit",
            error_message=message,
        )
