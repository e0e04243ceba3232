"""Decide which calls may run now, with limits per process, scope, tool and isolation, and a bounded queue (P2, P4)."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum

from governance.core.cancellation import CancellationToken, Promise
from governance.core.exceptions import QueueFull, QueueTimeout
from governance.core.tools import Concurrency, Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The maximum numbers of running calls (in total and per scope) and of waiting calls.

    `queue_timeout` is the maximum wait in seconds.
    """

    max_running: int = 100
    max_queued: int = 200
    max_running_per_scope: int = 16
    queue_timeout: float = 300.0


class QueueResult(Enum):
    """The way in which a call's wait in the queue ended."""

    ADMITTED = "admitted"
    CANCELLED = "cancelled"
    TOO_LATE = "too_late"


class WaitsFor(StrEnum):
    """The kind of obstacle: another call has to end, or there is no free slot in the server or in the scope."""

    CALL = "call"
    SLOT = "slot"
    SCOPE = "scope"


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """The reason why a call cannot start. If it is another call, `call_id` and `tool_name` identify that call."""

    kind: WaitsFor
    call_id: str = ""
    tool_name: str = ""


class Ticket:
    """A call in the queue. It waits until `result` is resolved, and then occupies its slot until it leaves.

    If `counts` is False, it occupies no slot of the process, because the call only waits for other calls, which need
    the slots.
    """

    __slots__ = (
        "call_id",
        "counts",
        "is_exclusive",
        "isolation",
        "max_in_scope",
        "max_running",
        "result",
        "scope",
        "slots",
        "supersedes",
        "tool_name",
    )

    def __init__(
        self,
        *,
        scope: str,
        tool_name: str,
        concurrency: Concurrency,
        isolation: Isolation = Isolation.ASYNC,
        max_running: int | None = None,
        max_in_scope: int | None = None,
        pool: str = "",
        counts: bool = True,
        call_id: str = "",
    ) -> None:
        self.scope = scope
        self.call_id = call_id
        self.tool_name = tool_name
        self.counts = counts
        self.is_exclusive = concurrency is Concurrency.EXCLUSIVE
        self.supersedes = concurrency is Concurrency.SUPERSEDE
        self.isolation = isolation
        self.max_running = max_running
        self.max_in_scope = max_in_scope
        self.result: Promise[QueueResult] | None = None
        # The keys of all counts that include the call while it runs.
        self.slots: tuple[tuple[str, ...], ...] = (
            ("scope", scope),
            ("pool", pool) if pool else ("tool", tool_name),
            ("isolation", isolation),
            ("tool in scope", scope, tool_name),
        )

    @property
    def is_resolved(self) -> bool:
        """Whether the wait has ended, even if the waiting task has not resumed yet."""
        return self.result is not None and self.result.done()


class Limiter:
    """A queue that admits calls in order of arrival.

    A call that waits only because of its tool's limit or its isolation's capacity may be overtaken. An exclusive call
    runs alone in its scope, and no call of its scope overtakes it. A superseding call never runs in parallel with
    another call of its tool in its scope. `capacities` limits the concurrent calls of an isolation, so that no call
    waits for a thread or a worker while its clock runs (T5).
    """

    def __init__(
        self, limits: Limits, *, capacities: Mapping[Isolation, int] | None = None
    ) -> None:
        self.limits = limits
        self._capacities = dict(capacities or {})
        self._running = 0
        self._counts: dict[tuple[str, ...], int] = {}
        self._exclusive: set[str] = set()
        self._inside: dict[Ticket, None] = {}
        self._waiting: dict[Ticket, None] = {}

    @property
    def running(self) -> int:
        return self._running

    @property
    def queued(self) -> int:
        return len(self._waiting)

    async def enter(self, ticket: Ticket, *, token: CancellationToken) -> bool:
        """Wait for a slot. Return False if the token was cancelled first.

        Raises:
            QueueFull: too many calls are already waiting.
            QueueTimeout: no slot became free in time.
        """
        if token.is_cancelled:
            return False
        self._waiting[ticket] = None
        self._admit()
        if ticket not in self._waiting:
            return True
        if len(self._waiting) > self.limits.max_queued:
            del self._waiting[ticket]
            raise QueueFull("Too many tool calls are running and waiting already.")
        return await self._wait(ticket, token=token)

    def obstacle(self, ticket: Ticket) -> Obstacle | None:
        """Return the reason why a waiting call cannot start now, or `None` if it is not waiting."""
        if ticket not in self._waiting or ticket.is_resolved:
            return None
        if (other := self._blocking_ticket(ticket)) is not None:
            return Obstacle(kind=WaitsFor.CALL, call_id=other.call_id, tool_name=other.tool_name)
        running = self._counts.get(ticket.slots[0], 0)
        most = min(ticket.max_in_scope or running + 1, self.limits.max_running_per_scope)
        return Obstacle(kind=WaitsFor.SCOPE if running >= most else WaitsFor.SLOT)

    def _blocking_ticket(self, ticket: Ticket) -> Ticket | None:
        """Return the call of the same scope that must end first, or an exclusive one that has waited longer."""
        scope_tickets = [other for other in self._inside if other.scope == ticket.scope]
        for other in scope_tickets:
            supersedes = ticket.supersedes and other.tool_name == ticket.tool_name
            if ticket.is_exclusive or supersedes or other.is_exclusive:
                return other
        for other in self._waiting:
            if other is ticket:
                return None
            if other.scope == ticket.scope and other.is_exclusive:
                return other
        return None

    def leave(self, ticket: Ticket) -> None:
        self._inside.pop(ticket, None)
        self._running -= ticket.counts
        counts = self._counts
        for slot in ticket.slots:
            if counts[slot] == 1:
                del counts[slot]
            else:
                counts[slot] -= 1
        if ticket.is_exclusive:
            self._exclusive.discard(ticket.scope)
        if self._waiting:
            self._admit()

    async def _wait(self, ticket: Ticket, *, token: CancellationToken) -> bool:
        loop = asyncio.get_running_loop()
        answer = ticket.result = Promise[QueueResult]()
        timer = loop.call_later(self.limits.queue_timeout, answer.resolve, QueueResult.TOO_LATE)
        forget = token.on_cancel(lambda _: answer.resolve(QueueResult.CANCELLED))
        try:
            is_admitted = await answer
        except asyncio.CancelledError:
            if not answer.cancelled() and answer.result() is QueueResult.ADMITTED:
                self.leave(ticket)
            raise
        finally:
            timer.cancel()
            forget()
            self._forget(ticket)
        if is_admitted is QueueResult.TOO_LATE:
            raise QueueTimeout(f"No slot came free within {self.limits.queue_timeout:g}s.")
        return is_admitted is QueueResult.ADMITTED

    def _forget(self, ticket: Ticket) -> None:
        if ticket in self._waiting:
            del self._waiting[ticket]
            self._admit()

    def _admit(self) -> None:
        """Admit waiting calls within the limits, in order of arrival."""
        blocked_scopes: set[str] = set()
        for ticket in list(self._waiting):
            if ticket.counts and self._running >= self.limits.max_running:
                continue
            if ticket.scope in blocked_scopes or ticket.is_resolved:
                continue
            if self._fits(ticket):
                del self._waiting[ticket]
                self._occupy(ticket)
                if ticket.result is not None:
                    ticket.result.resolve(QueueResult.ADMITTED)
            elif ticket.is_exclusive:
                blocked_scopes.add(ticket.scope)

    def _fits(self, ticket: Ticket) -> bool:
        count = self._counts.get
        of_scope, of_tool, of_isolation, of_tool_in_scope = ticket.slots
        scope = count(of_scope, 0)
        if ticket.scope in self._exclusive or (scope and ticket.is_exclusive):
            return False
        if ticket.max_running is not None and count(of_tool, 0) >= ticket.max_running:
            return False
        if ticket.max_in_scope is not None and scope >= ticket.max_in_scope:
            return False
        if ticket.supersedes and count(of_tool_in_scope, 0):
            return False
        capacity = self._capacities.get(ticket.isolation)
        if capacity is not None and count(of_isolation, 0) >= capacity:
            return False
        has_slot = not ticket.counts or self._running < self.limits.max_running
        return has_slot and scope < self.limits.max_running_per_scope

    def _occupy(self, ticket: Ticket) -> None:
        self._inside[ticket] = None
        self._running += ticket.counts
        counts = self._counts
        for slot in ticket.slots:
            counts[slot] = counts.get(slot, 0) + 1
        if ticket.is_exclusive:
            self._exclusive.add(ticket.scope)
