"""The limits of one call: first those of its policy, then those of its deadline, which may move (T2, T9)."""

from governance.core.deadline import Deadline, DeadlineChange, Limit
from governance.core.endings import Ending, EndingKind
from governance.core.policy import Hint, Policy, TimeoutSource, cap
from governance.core.promises import Promise


class CallLimits:
    """Timeouts are in seconds, None = none. Nothing moves once `ending` is decided."""

    __slots__ = ("_ending", "_requested", "_source", "deadline", "hint", "policy")

    def __init__(self, ending: Promise[Ending]) -> None:
        self._ending = ending
        self.hint: Hint | None = None
        self.policy: Policy | None = None
        self.deadline: Deadline | None = None
        self._source: TimeoutSource | None = None
        self._requested: tuple[float, str] | None = None

    @property
    def elapsed(self) -> float:
        """Seconds of running so far; 0.0 before the start."""
        return self.deadline.elapsed if self.deadline else 0.0

    @property
    def time_left(self) -> float | None:
        """Seconds until the total limit; None before the start, or without a limit."""
        return self.deadline.time_left if self.deadline else None

    @property
    def timeout(self) -> float | None:
        if self.deadline is not None:
            return self.deadline.timeout
        if self._requested is not None:
            return self._capped(self._requested[0])
        return self.policy.timeout if self.policy else None

    @property
    def idle_timeout(self) -> float | None:
        if self.deadline is not None:
            return self.deadline.idle_timeout
        return self.policy.idle_timeout if self.policy else None

    @property
    def timeout_source(self) -> TimeoutSource | None:
        return TimeoutSource.MANUAL if self._requested else self._source

    def set_policy(self, policy: Policy) -> None:
        """Put a policy in force for a call that does not run yet."""
        self.policy = policy
        self._source = policy.timeout_source

    def start(self) -> Deadline:
        assert self.policy is not None  # noqa: S101 - a call without a policy never runs
        self.deadline = Deadline(
            timeout=self.policy.timeout,
            idle_timeout=self.policy.idle_timeout,
            on_expire=self._expire,
        )
        return self.deadline

    def request_timeout(self, timeout: float, *, by: str) -> None:
        """Note the total limit that the call gets as it starts."""
        self._requested = timeout, by

    def apply_request(self) -> DeadlineChange | None:
        """Put the limit in force that was asked for while the call waited."""
        if self._requested is None:
            return None
        (timeout, by), self._requested = self._requested, None
        return self.set_timeout(timeout, by=by)

    def set_timeout(self, timeout: float, *, by: str) -> DeadlineChange | None:
        """Set another total limit for the running call, capped by its ceiling; None if it no longer runs."""
        return self._move(self._capped(timeout), self.idle_timeout, TimeoutSource.MANUAL, by=by)

    def follow(self, policy: Policy) -> DeadlineChange | None:
        """Apply an edited policy to the running call; a limit set by hand stays unless the edit concerns it."""
        before, self.policy = self.policy, policy
        if before is None or before is policy:
            return None
        if before.timeout != policy.timeout:
            timeout, source = policy.timeout, policy.timeout_source
        elif before.idle_timeout != policy.idle_timeout:
            timeout, source = self.timeout, self._source or policy.timeout_source
        else:
            return None
        return self._move(timeout, policy.idle_timeout, source, by=policy.changed_by)

    def _move(
        self, timeout: float | None, idle_timeout: float | None, source: TimeoutSource, *, by: str
    ) -> DeadlineChange | None:
        if self.deadline is None or self._ending.done():
            return None
        change = DeadlineChange(
            from_timeout=self.deadline.timeout,
            to_timeout=timeout,
            source=source,
            by=by,
            from_idle_timeout=self.deadline.idle_timeout,
            to_idle_timeout=idle_timeout,
        )
        self._source = source
        self.deadline.move(timeout, idle_timeout=idle_timeout)
        return change

    def _capped(self, timeout: float) -> float | None:
        return (cap(timeout, ceiling=self.policy.ceiling) if self.policy else timeout) or None

    def _expire(self, limit: Limit, seconds: float) -> None:
        self._ending.resolve(Ending(kind=EndingKind.TIMEOUT, limit=limit, seconds=seconds))
