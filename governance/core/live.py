"""A tool call while it is governed: its status, clock, progress and the one decision why it ends."""

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from governance.core.approvals import Decision, Question
from governance.core.calls import CallStatus, Progress, ToolCall, check_move
from governance.core.cancellation import Cancellation, CancellationToken
from governance.core.deadline import Deadline, DeadlineChange, Limit
from governance.core.limiter import Obstacle
from governance.core.policy import ApprovalRule, Hint, Policy, TimeoutSource, cap
from governance.core.tools import Tool

PARTIAL_HEAD = 4_000
PARTIAL_TAIL = 12_000


class EndingKind(StrEnum):
    """Why the wait for a body ends."""

    BODY = "body"
    TIMEOUT = "timeout"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The decision, taken once: the body has ended, a limit ran out, or somebody asked to stop."""

    kind: EndingKind
    cancellation: Cancellation | None = None
    limit: Limit = Limit.TOTAL
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Clearance:
    """That a call may start: what was looked at (the tool's definition), and up to which rule that is enough (D1, D4)."""

    definition: str
    rule: ApprovalRule


class PartialOutput:
    """The first and the last part of what a tool has put out: bounded, whatever it floods."""

    __slots__ = ("_head", "_left_out", "_tail")

    def __init__(self) -> None:
        self._head = ""
        self._tail = ""
        self._left_out = 0

    def append(self, text: str) -> None:
        """Add a piece."""
        room = PARTIAL_HEAD - len(self._head)
        if room > 0:
            self._head += text[:room]
            text = text[room:]
        self._tail += text
        if (surplus := len(self._tail) - PARTIAL_TAIL) > 0:
            self._left_out += surplus
            self._tail = self._tail[surplus:]

    def __str__(self) -> str:
        gap = f"\n… {self._left_out} characters left out …\n" if self._left_out else ""
        return f"{self._head}{gap}{self._tail}"


class LiveCall:
    """One governed call from proposal to outcome. Made by `ToolExecutor.prepare`; lives on one event loop.

    `cancel` and `report` may be called from any thread.
    """

    def __init__(
        self, call: ToolCall, *, token: CancellationToken, own_tool: Tool | None = None
    ) -> None:
        self.call = call
        self.token = token
        self.own_tool = own_tool
        self.tool: Tool | None = own_tool
        self.policy: Policy | None = None
        self.hint: Hint | None = None
        self.status = CallStatus.PENDING
        self.question: Question | None = None
        self.clearance: Clearance | None = None
        self.unknown_host = ""
        self.queued = 0.0
        self.waits_for: Obstacle | None = None
        self.deadline: Deadline | None = None
        self.deadline_changes: list[DeadlineChange] = []
        self.timeout_source: TimeoutSource | None = None
        self.last_progress: Progress | None = None
        self.has_news = False
        self.told_at = 0.0
        self.body: asyncio.Task[Any] | None = None
        self.outliving: asyncio.Task[Any] | None = None
        self.returned_at: float | None = None  # by the deadline's clock
        self._wish: tuple[float, str] | None = None
        self._partial = PartialOutput()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._ending: asyncio.Future[Ending] = self._loop.create_future()
        self._notices: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """The model's id of the call."""
        return self.call.id

    @property
    def elapsed(self) -> float:
        """Seconds of running so far; 0.0 before the start."""
        return self.deadline.elapsed if self.deadline else 0.0

    @property
    def timeout(self) -> float | None:
        """The total limit in force, in seconds."""
        if self.deadline is not None:
            return self.deadline.timeout
        if self._wish is not None:
            return self._capped(self._wish[0]) or None
        return self.policy.timeout if self.policy else None

    @property
    def idle_timeout(self) -> float | None:
        """The idle limit in force, in seconds."""
        if self.deadline is not None:
            return self.deadline.idle_timeout
        return self.policy.idle_timeout if self.policy else None

    @property
    def partial_output(self) -> str:
        """What the tool has reported as output so far, its middle cut out if it is long."""
        return str(self._partial)

    @property
    def ended_by(self) -> Cancellation | None:
        """The request that ended or is ending the call."""
        return self.token.cancellation

    def move(self, status: CallStatus) -> None:
        """Go to another status. Raise `IllegalTransition` if it may not follow."""
        check_move(self.status, status)
        self.status = status

    def cancel(self, cancellation: Cancellation) -> bool:
        """Ask the call to stop (C3). Return False if it was asked before or has ended."""
        has_ended = self.status.is_terminal or self._ending.done()
        return not has_ended and self.token.cancel(cancellation)

    def answer(self, decision: Decision) -> None:
        """Pass a person's decision on to the question that the call waits for; too late or for another one, it is nothing."""
        if self.question is not None:
            self.question.answer(decision)

    def set_deadline(
        self, timeout: float, *, source: TimeoutSource, by: str = ""
    ) -> DeadlineChange | None:
        """Give the running call another total limit (T9), capped by its ceiling; None if it does not run."""
        if self.deadline is None or self.policy is None:
            return None
        return self.change_limits(
            self._capped(timeout) or None, idle_timeout=self.idle_timeout, source=source, by=by
        )

    def wish_for(self, timeout: float, *, by: str = "") -> bool:
        """Note the total limit that a call that still waits shall get as it starts. False if it has ended."""
        if self.status.is_terminal:
            return False
        self._wish = timeout, by
        self.timeout_source = TimeoutSource.MANUAL
        return True

    def grant_wish(self) -> DeadlineChange | None:
        """Put the limit in force that was asked for while the call waited, if one was."""
        if self._wish is None:
            return None
        (timeout, by), self._wish = self._wish, None
        return self.set_deadline(timeout, source=TimeoutSource.MANUAL, by=by)

    def _capped(self, timeout: float) -> float:
        return cap(timeout, ceiling=self.policy.ceiling) if self.policy else timeout

    def change_limits(
        self,
        timeout: float | None,
        *,
        idle_timeout: float | None,
        source: TimeoutSource,
        by: str = "",
    ) -> DeadlineChange | None:
        """Put both limits in force at once and note the change; None if the call does not run (any more)."""
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
        self.deadline_changes.append(change)
        self.timeout_source = source
        self.deadline.move(timeout, idle_timeout=idle_timeout)
        return change

    def report(self, progress: Progress) -> None:
        """Take a sign of life from the tool, from whatever thread."""
        if threading.get_ident() == self._thread:
            self._take(progress)
        else:
            self._loop.call_soon_threadsafe(self._take, progress)

    def _take(self, progress: Progress) -> None:
        if self.deadline is None or self.status.is_terminal:
            return
        if progress.output:
            self._partial.append(progress.output)
        if not self._ending.done():
            self.deadline.touch()
            self.last_progress = progress
            self.has_news = True

    def note_return(self, monotonic: float | None = None) -> None:
        """Note that the body has returned, now or at a `time.monotonic()`; from any thread, the last word counts (T11)."""
        if (deadline := self.deadline) is not None:
            now = deadline.moment()
            self.returned_at = now if monotonic is None else min(deadline.moment(monotonic), now)

    def decide(self, ending: Ending) -> None:
        """Settle why the wait ends: the first word counts, whoever says it (invariant 4)."""
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.decide, ending)
        elif not self._ending.done():
            self._ending.set_result(ending)

    async def ending(self) -> Ending:
        """Wait for the decision."""
        return await self._ending

    def tell(self, notice: Coroutine[Any, Any, None]) -> None:
        """Send a notice to the observer after the ones before it, without waiting for it here."""
        self._notices = self._loop.create_task(
            _after(self._notices, notice), name=f"notice of tool call {self.call.id}"
        )

    @property
    def is_being_told(self) -> bool:
        """Whether a notice is under way."""
        return self._notices is not None and not self._notices.done()

    async def notices_sent(self) -> None:
        """Wait until every notice has been sent, so that none comes after the outcome."""
        if self._notices is not None:
            await asyncio.wait({self._notices})


async def _after(earlier: asyncio.Task[None] | None, notice: Coroutine[Any, Any, None]) -> None:
    if earlier is not None:
        await asyncio.wait({earlier})
    await notice
