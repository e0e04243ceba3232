"""The body of one call while it runs: the tool's own code, in a task of its own."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from governance.core.calls import Disposition
from governance.core.deadline import Deadline, Limit
from governance.core.endings import BODY_ENDED, Ending
from governance.core.exceptions import CallNotStarted, MayStillRun
from governance.core.promises import Promise


class Body:
    """One run of a tool. `returned_at`, by the clock of `deadline`, may precede the end of its task (T11).

    The last step of its task resolves `ending`, so whoever waits for that finds the task done.

    `outlives` = its call ends before it, or without its result.
    """

    __slots__ = ("deadline", "ending", "outlives", "returned_at", "task")

    def __init__(self, deadline: Deadline, ending: Promise[Ending]) -> None:
        self.outlives = False
        self.returned_at: float | None = None
        self.task: asyncio.Task[Any]
        self.deadline = deadline
        self.ending = ending

    def start(self, invocation: Coroutine[Any, Any, Any], *, name: str) -> None:
        """Begin to run."""
        self.task = _BodyTask(self, invocation, name=name)

    @property
    def is_done(self) -> bool:
        """Whether its task has ended."""
        return self.task.done()

    @property
    def has_value(self) -> bool:
        """Whether it has returned something."""
        return self.is_done and not self.task.cancelled() and self.task.exception() is None

    @property
    def disposition(self) -> Disposition:
        """Whether it has ended, and all that it started with it, as far as it knows (C13)."""
        if not self.is_done:
            return Disposition.INDETERMINATE
        match None if self.task.cancelled() else self.task.exception():
            case MayStillRun():
                return Disposition.INDETERMINATE
            case CallNotStarted():
                return Disposition.NOT_STARTED
        return Disposition.SETTLED

    @property
    def limit_reached(self) -> tuple[Limit, float] | None:
        """The limit that had run out when it returned, and its seconds, or None."""
        return self.deadline.reached_by(self.returned_at or self.deadline.loop_time())

    def mark_returned(self, monotonic: float | None = None) -> None:
        """Note that it returned, now or at a `time.monotonic()`; from any thread, the last one counts (T11)."""
        now = self.deadline.loop_time()
        self.returned_at = (
            now if monotonic is None else min(self.deadline.loop_time(monotonic), now)
        )

    async def run(self, invocation: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await invocation
        finally:
            if self.returned_at is None:  # else its invoker knows better when it returned
                self.mark_returned()
            self.ending.resolve(BODY_ENDED)


class _BodyTask(asyncio.Task[Any]):
    """The task of a body. One that is cancelled before its first step has no last one: its end resolves `ending` then.

    A callback for each body would do the same, for a twentieth of what a call costs.
    """

    __slots__ = ("_ending", "_invocation")

    def __init__(self, body: Body, invocation: Coroutine[Any, Any, Any], *, name: str) -> None:
        super().__init__(body.run(invocation), name=name)
        self._ending = body.ending
        self._invocation = invocation

    def cancel(self, msg: Any | None = None) -> bool:
        self.add_done_callback(_BodyTask._end)
        return super().cancel(msg)

    def _end(self) -> None:
        self._invocation.close()  # so that nothing warns of one that never began
        self._ending.resolve(BODY_ENDED)
