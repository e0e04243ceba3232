"""A tool call while it is governed, with its status, its limits, its progress, its body and the reason why it ends."""

import asyncio
import threading
from collections.abc import Coroutine
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from governance.core.approvals import CallApproval, Decision, Question
from governance.core.calls import CallStatus, Disposition, Progress, ToolCall, check_transition
from governance.core.cancellation import Cancellation, CancellationToken, Promise, is_running_here
from governance.core.deadline import Deadline, DeadlineChange, Expiry
from governance.core.exceptions import CallNotStarted, MayStillRun
from governance.core.excerpts import Excerpt, as_displayed, shortened
from governance.core.images import CallImages
from governance.core.limiter import Obstacle
from governance.core.policy import Hint, Policy, TimeoutSource, cap
from governance.core.tools import Tool

Ending: TypeAlias = Cancellation | Expiry | None
"""The reason why the wait for a body ends: a cancel, a limit that ran out, or `None` if the body ended by itself.

Only the first reason is kept (invariant 4).
"""

OUTPUT_HEAD = 4_000
OUTPUT_TAIL = 12_000
_LONGEST_MESSAGE = 2_000


class LiveCall:
    """A governed call from its request to its outcome. `ToolExecutor.prepare` creates it for one event loop.

    `own_tool` replaces the registered tool. `queued` is the number of seconds that the call waited for a slot, and
    `waits_for` is its current obstacle. `cancel` may be called from any thread.
    """

    def __init__(
        self,
        call: ToolCall,
        *,
        token: CancellationToken,
        own_tool: Tool | None = None,
    ) -> None:
        self.call = call
        self.id = call.id  # the id that the model gave the call
        self.token = token
        self.own_tool = own_tool
        self.tool: Tool | None = own_tool
        self.status = CallStatus.PENDING
        self.queued = 0.0
        self.waits_for: Obstacle | None = None
        self.ending: Promise[Ending] = Promise()
        self.limits = CallLimits(self.ending)
        self.progress = CallProgress(self.limits, self.ending)
        self.approval = CallApproval()
        self.images = CallImages(token)
        self.body: Body | None = None
        # Notifications run in this context, because they continue after the end of the request that made the call.
        self.context = copy_context()

    @property
    def has_policy(self) -> bool:
        """Whether the call's limits are known, so that they can be changed."""
        return self.limits.policy is not None

    @property
    def elapsed(self) -> float:
        """The number of seconds that the call has run so far, which is 0.0 before it starts."""
        return self.limits.elapsed

    @property
    def timeout(self) -> float | None:
        return self.limits.timeout

    @property
    def idle_timeout(self) -> float | None:
        return self.limits.idle_timeout

    @property
    def timeout_source(self) -> TimeoutSource | None:
        return self.limits.timeout_source

    @property
    def last_progress(self) -> Progress | None:
        return self.progress.last

    @property
    def partial_output(self) -> str:
        """The output that the tool has reported so far, as a terminal displays it, without its middle if it is long."""
        return as_displayed(self.progress.output)

    @property
    def question(self) -> Question | None:
        """The question that a person was asked about the call, whether open or decided, or `None`."""
        return self.approval.question

    @property
    def ended_by(self) -> Cancellation | None:
        return self.token.cancellation

    def change_status(self, status: CallStatus) -> None:
        """Change the status. Raise `IllegalTransition` if the change is not allowed."""
        check_transition(self.status, status)
        self.status = status
        if status.is_terminal:
            self.progress.close()
            self.images.close()

    def cancel(self, cancellation: Cancellation) -> bool:
        """Request that the call stops (C3). Return False if it was already cancelled or has ended."""
        has_ended = self.status.is_terminal or self.ending.done()
        return not has_ended and self.token.cancel(cancellation)

    def end_on_cancel(self) -> None:
        """From now on, end the wait for the body when the call is cancelled."""
        # The callback is not a method of the call, because such a reference would keep the call in memory until the
        # next garbage collection.
        self.token.on_cancel(self.ending.resolve)

    def answer(self, decision: Decision) -> None:
        """Pass a person's decision to the call's open question.

        A late decision, or a decision on another question, is ignored.
        """
        if self.question is not None:
            self.question.answer(decision)


class CallLimits:
    """The limits of one call in seconds, where `None` means no limit. Once `ending` is resolved, they do not change."""

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
        """The number of seconds that the call has run so far, which is 0.0 before it starts."""
        return self.deadline.elapsed if self.deadline else 0.0

    @property
    def time_left(self) -> float | None:
        """The number of seconds until the total limit, or `None` before the start or without a limit."""
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
        """Set the policy of a call that has not started yet."""
        self.policy = policy
        self._source = policy.timeout_source

    def start(self) -> Deadline:
        assert self.policy is not None  # noqa: S101 - a call without a policy never runs
        self.deadline = Deadline(
            timeout=self.policy.timeout,
            idle_timeout=self.policy.idle_timeout,
            on_expire=self._ending.resolve,
        )
        return self.deadline

    def request_timeout(self, timeout: float, *, by: str) -> None:
        """Store a total limit, which is applied when the call starts."""
        self._requested = timeout, by

    def apply_request(self) -> DeadlineChange | None:
        """Apply the limit that was requested while the call was waiting."""
        if self._requested is None:
            return None
        (timeout, by), self._requested = self._requested, None
        return self.set_timeout(timeout, by=by)

    def set_timeout(self, timeout: float, *, by: str) -> DeadlineChange | None:
        """Set a new total limit for the running call, in seconds and capped by its ceiling.

        Return the change, or `None` if the call is no longer running.
        """
        return self._move(self._capped(timeout), self.idle_timeout, TimeoutSource.MANUAL, by=by)

    def follow(self, policy: Policy) -> DeadlineChange | None:
        """Apply an edited policy to the running call, and return the change, if any.

        A total limit that a person has set for this call stays, unless the edit changes the total limit.
        """
        old_policy, self.policy = self.policy, policy
        if old_policy is None or old_policy is policy:
            return None
        if old_policy.timeout != policy.timeout:
            timeout, source = policy.timeout, policy.timeout_source
        elif old_policy.idle_timeout != policy.idle_timeout:
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


class CallProgress:
    """The progress of one call.

    It consists of the `last` report, whether the observer has yet to be notified of it, and the time of the last
    notification.
    """

    __slots__ = (
        "_ending",
        "_is_closed",
        "_limits",
        "_lock",
        "_newest",
        "_output",
        "has_pending_progress",
        "last",
        "last_notified_at",
    )

    def __init__(self, limits: CallLimits, ending: Promise[Ending]) -> None:
        self.last: Progress | None = None
        self.has_pending_progress = False
        self.last_notified_at = 0.0
        self._limits = limits
        self._ending = ending
        self._lock = threading.Lock()
        self._newest: Progress | None = None
        self._output: Excerpt | None = None
        self._is_closed = False

    @property
    def output(self) -> str:
        """The output so far, without its middle if it is long."""
        with self._lock:
            return "" if self._output is None else str(self._output)

    def close(self) -> None:
        """Ignore further reports, because the call has its outcome."""
        self._is_closed = True

    def report(self, progress: Progress) -> None:
        """Accept a progress report from any thread.

        The loop is woken only once for all pending reports, so that a flood of reports costs it little memory and time.
        """
        if self._limits.deadline is None or self._is_closed:
            return
        with self._lock:
            if progress.output:
                self._output = self._output or Excerpt(head=OUTPUT_HEAD, tail=OUTPUT_TAIL)
                self._output.add(str(progress.output))
            message = shortened(str(progress.message), limit=_LONGEST_MESSAGE)
            is_first = self._newest is None
            self._newest = replace(progress, message=message, output="")
        loop = self._ending.get_loop()
        if is_running_here(loop):
            self._take_newest()
        elif is_first:
            loop.call_soon_threadsafe(self._take_newest)

    def _take_newest(self) -> None:
        with self._lock:
            progress, self._newest = self._newest, None
        deadline = self._limits.deadline
        if progress is None or deadline is None or self._is_closed or self._ending.done():
            return
        deadline.touch()
        self.last = progress
        self.has_pending_progress = True


class Body:
    """A run of the tool's code in a separate task.

    `returned_at` is measured by the clock of `deadline`, and may precede the end of the task (T11). The last step of
    the task resolves `ending`, so code that awaits `ending` finds the task done. `outlives` means that the call ends
    before its body, or without the body's result.
    """

    __slots__ = ("deadline", "ending", "outlives", "returned_at", "task")

    def __init__(self, deadline: Deadline, ending: Promise[Ending]) -> None:
        self.outlives = False
        self.returned_at: float | None = None
        self.task: asyncio.Task[Any]
        self.deadline = deadline
        self.ending = ending

    def start(self, invocation: Coroutine[Any, Any, Any], *, name: str) -> None:
        self.task = asyncio.create_task(self.run(invocation), name=name)
        self.task.add_done_callback(partial(self._end, invocation))

    @property
    def is_done(self) -> bool:
        """Whether the task of the body has ended."""
        return self.task.done()

    @property
    def has_value(self) -> bool:
        """Whether the body has returned a value."""
        return self.is_done and not self.task.cancelled() and self.task.exception() is None

    @property
    def disposition(self) -> Disposition:
        """What is known about the end of the body and of the work that it started (C13)."""
        if not self.is_done:
            return Disposition.INDETERMINATE
        match None if self.task.cancelled() else self.task.exception():
            case MayStillRun():
                return Disposition.INDETERMINATE
            case CallNotStarted():
                return Disposition.NOT_STARTED
        return Disposition.SETTLED

    @property
    def limit_reached(self) -> Expiry | None:
        """The limit that had run out when the body returned, or None."""
        return self.deadline.reached_by(self.returned_at or self.deadline.loop_time())

    def mark_returned(self, monotonic: float | None = None) -> None:
        """Record that the body returned, now or at the given `time.monotonic()`.

        This may be called from any thread. The last recorded time replaces earlier ones (T11).
        """
        now = self.deadline.loop_time()
        self.returned_at = (
            now if monotonic is None else min(self.deadline.loop_time(monotonic), now)
        )

    async def run(self, invocation: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await invocation
        finally:
            if self.returned_at is None:  # otherwise, its invoker has recorded a more exact time
                self.mark_returned()
            self.ending.resolve(None)

    def _end(self, invocation: Coroutine[Any, Any, Any], _task: "asyncio.Task[Any]") -> None:
        """Resolve `ending` for a body that was cancelled before its first step, because `run` never started."""
        invocation.close()  # avoids Python's warning that the coroutine was never awaited
        self.ending.resolve(None)
