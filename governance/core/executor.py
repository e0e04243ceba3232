"""Runs tool calls under a deadline and a cancellation token, and gives each exactly one outcome (T1, C3, C4).

A call is checked, waits for its slot, and runs. `body_watcher` waits for the end of its body, and ends one that does
not end by itself. A result that comes after the outcome is recorded as late (T11) and never becomes the result.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from governance.core import outcomes
from governance.core.abandoned import AbandonedBodies
from governance.core.bodies import Body
from governance.core.body_watcher import BodyWatcher
from governance.core.call_tracing import traced
from governance.core.calls import CallStatus, ToolCall, ToolOutcome
from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation, CancellationToken
from governance.core.deadline import DeadlineChange
from governance.core.endings import BODY_ENDED
from governance.core.exceptions import GovernanceError
from governance.core.invokers.coroutine import CoroutineInvoker
from governance.core.limiter import Limiter, Limits, Ticket
from governance.core.live_call import LiveCall
from governance.core.masking import mask
from governance.core.notifier import Notifier
from governance.core.ports import Declared, Host, Invoker, PolicySource
from governance.core.preflight import Preflight
from governance.core.registry import ToolRegistry
from governance.core.scopes import ScopeKind, ScopeRegistry
from governance.core.tools import Concurrency, Isolation, Tool, ToolContext

Invoke = Callable[..., Coroutine[Any, Any, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The executor's own times, in seconds.

    `cancel_grace` is how long a body may take to end after a cancel. `progress_interval` is the period of progress
    events for calls older than it. `notice_interval` is the shortest time between two events of a chatty tool. A call
    that has waited for `queue_notice` reports its obstacle.
    """

    cancel_grace: float = 0.6
    progress_interval: float = 5.0
    notice_interval: float = 0.5
    queue_notice: float = 0.5


class ToolExecutor:
    """Governs tool calls on one event loop.

    `invokers` maps an isolation to the invoker of its bodies; tools of other isolations are refused. `mask` masks
    secrets in the text of an exception, if the policy lets it be read.
    """

    def __init__(
        self,
        *,
        registry: ToolRegistry,
        policies: PolicySource | None = None,
        limits: Limits | None = None,
        timing: Timing | None = None,
        invokers: Mapping[Isolation, Invoker] | None = None,
        result_limit: int = 100_000,
        mask: Callable[[str], str] = mask,
    ) -> None:
        self._registry = registry
        self._timing = timing or Timing()
        self._invokers: dict[Isolation, Invoker] = {
            Isolation.ASYNC: CoroutineInvoker(),
            **(invokers or {}),
        }
        self._preflight = Preflight(
            registry=registry, policies=policies or Declared(), isolations=self._invokers
        )
        self._limiter = Limiter(limits or Limits(), capacities=_capacities(self._invokers))
        self._result_limit = result_limit
        self._mask = mask
        self._live: dict[LiveCall, Host] = {}
        self._scopes: ScopeRegistry[LiveCall] = ScopeRegistry()
        self._abandoned = AbandonedBodies(result_limit=result_limit)
        self._notifier = Notifier(
            self._live,
            interval=self._timing.progress_interval,
            pause=self._timing.notice_interval,
            queue_notice=self._timing.queue_notice,
        )
        self._watcher = BodyWatcher(
            notifier=self._notifier, abandoned=self._abandoned, grace=self._timing.cancel_grace
        )

    @property
    def registry(self) -> ToolRegistry:
        return self._registry

    @property
    def live(self) -> Iterable[LiveCall]:
        return tuple(self._live)

    @property
    def abandoned(self) -> int:
        return len(self._abandoned)

    @property
    def limiter(self) -> Limiter:
        """Who runs and who waits."""
        return self._limiter

    def prepare(
        self, call: ToolCall, *, token: CancellationToken | None = None, tool: Tool | None = None
    ) -> LiveCall:
        """Return the live call of a request, so that it can be cancelled before it has begun to wait.

        `tool` is run instead of the registered one: a body that is made for this call alone (B8).
        """
        token = CancellationToken(parent=token)
        return LiveCall(call, token=token, own_tool=tool, prepared_at=self._scopes.stamp())

    async def run(
        self, call: ToolCall, *, token: CancellationToken | None = None, host: Host | None = None
    ) -> ToolOutcome:
        """Prepare and execute in one."""
        return await self.execute(self.prepare(call, token=token), host=host)

    @traced
    async def execute(self, live: LiveCall, *, host: Host | None = None) -> ToolOutcome:
        """Govern the call and return its one outcome, in bounded time, whatever the tool does.

        Raises:
            asyncio.CancelledError: the surrounding task was cancelled. The body was cancelled too; no outcome is recorded.
            Exception: whatever the observer raised; the body does not run, or was ended.

        In both cases the observer is notified of the body's end as of one that outlives its call.
        """
        host = host or Host()
        self._live[live] = host
        scope = live.call.scope
        self._scopes.begin(scope, ScopeKind.TOOL_CALL, live, queued_at=live.prepared_at)
        try:
            outcome = await self._govern(live, host)
            live.change_status(outcome.status)
            if self._notifier.is_sending(live):
                await self._notifier.sent(live)
            await host.observer.call_ended(live, outcome)
        except BaseException:
            if live.body is not None:
                live.body.outlives = True
            raise
        finally:
            del self._live[live]
            self._scopes.clear(scope, live)
            live.token.detach()
            if live.body is not None and live.body.outlives:
                self._abandoned.watch_settlement(live, live.body.task, host.observer)
        return outcome

    def is_active(self, scope: str) -> bool:
        return self._scopes.has(scope)

    def cancel_scope(self, scope: str, cancellation: Cancellation) -> int:
        """Cancel the calls of a scope, and those that are prepared (C7). Return how many were reached."""
        return self._scopes.cancel_all(scope, cancellation)

    def apply_policies(self) -> None:
        """Make the limits as they are now hold for the running calls too (T9)."""
        for live, host in list(self._live.items()):
            if live.tool is not None and live.limits.deadline is not None:
                self._follow_policy(live, live.tool, host)

    def set_deadline(self, live: LiveCall, timeout: float, *, by: str = "") -> bool:
        """Set another total limit (T9); a waiting call gets it at its start. Return False if the call has ended."""
        if live.status.is_terminal:
            return False
        if live.limits.deadline is None:
            live.limits.request_timeout(timeout, by=by)
            return True
        host = self._live.get(live)
        change = live.limits.set_timeout(timeout, by=by) if host else None
        return host is not None and self._notify_moved(live, host, change)

    async def aclose(self) -> None:
        """Stop watching what outlives its call, and close the invokers."""
        self._notifier.close()
        await self._abandoned.aclose(timeout=self._timing.cancel_grace)
        for invoker in self._invokers.values():
            if (close := getattr(invoker, "aclose", None)) is not None:
                await close()

    async def _govern(self, live: LiveCall, host: Host) -> ToolOutcome:
        """Check the call, queue it, run it; start over if its policy changed while it waited."""
        while not live.token.is_cancelled:
            checked = await self._preflight.check(live, host)
            if isinstance(checked, ToolOutcome):
                return checked
            tool, arguments = checked
            if tool.concurrency is Concurrency.SUPERSEDE:
                self._supersede(live, tool)
            ticket = _ticket_of(live, tool, host)
            try:
                has_slot = self._enters_at_once(live, ticket) or await self._queue(live, ticket)
            except GovernanceError as error:
                return outcomes.refused(live, error)
            if not has_slot:
                break
            try:
                if not ticket.has_waited or self._preflight.still_allows(live, tool, host):
                    return await self._run(live, tool, arguments, host)
            finally:
                self._limiter.leave(ticket)
        return outcomes.not_started(live)

    def _enters_at_once(self, live: LiveCall, ticket: Ticket) -> bool:
        return not live.token.is_cancelled and self._limiter.enter_at_once(ticket)

    async def _queue(self, live: LiveCall, ticket: Ticket) -> bool:
        """Wait for a slot. Return False if the call was cancelled."""
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        try:
            with self._notifier.waiting(live, partial(self._limiter.obstacle, ticket)):
                return await self._limiter.enter(ticket, token=live.token)
        finally:
            live.queued += loop.time() - asked_at

    def _supersede(self, live: LiveCall, tool: Tool) -> None:
        """Cancel the earlier calls that this one takes the place of (C9)."""
        for other in self._scopes.active(live.call.scope):
            # By name: a tool may be made for each of its calls.
            if other is not live and other.tool is not None and other.tool.name == tool.name:
                other.cancel(Cancellation(reason=CancelReason.SUPERSEDED))

    async def _run(
        self, live: LiveCall, tool: Tool, arguments: Mapping[str, Any], host: Host
    ) -> ToolOutcome:
        if live.token.is_cancelled:
            return outcomes.not_started(live)
        live.change_status(CallStatus.RUNNING)
        await host.observer.call_started(live)
        live.end_on_cancel()
        if live.ended_by is not None:  # asked after the registration: no request falls in between
            return outcomes.not_started(live)
        body = self._start(live, tool, arguments, host)
        # The policy may have been edited while the start was recorded.
        self._follow_policy(live, tool, host)
        if (change := live.limits.apply_request()) is not None:
            self._notify_moved(live, host, change)
        ending = await self._watcher.watch(live, body)
        if ending is not BODY_ENDED:
            ending = await self._watcher.end(live, body, ending, host)
        if ending is not BODY_ENDED:
            return outcomes.ended(live, ending, disposition=body.disposition)
        return outcomes.settled(live, body.task, result_limit=self._result_limit, mask=self._mask)

    def _start(self, live: LiveCall, tool: Tool, arguments: Mapping[str, Any], host: Host) -> Body:
        body = live.body = Body(live.limits.start(), live.ending)
        live.images.keep = host.keep_image
        context = ToolContext(
            call_id=live.id,
            tool_name=tool.name,
            scope=live.call.scope,
            token=live.token,
            report=live.progress.report,
            workspace=host.workspace,
            metadata=host.metadata,
            time_left=lambda: live.limits.time_left,
            returned=body.mark_returned,
            show=live.images.show,
            show_blocking=live.images.show_blocking,
        )
        invoke: Invoke = self._invokers[tool.isolation].invoke
        if host.make_workspace is not None and tool.context_parameter is not None:
            invoke = partial(_invoke_in_workspace, host.make_workspace, invoke)
        invocation = invoke(tool, arguments, context)
        body.start(invocation, name=f"tool {tool.name} {live.id}")
        return body

    def _follow_policy(self, live: LiveCall, tool: Tool, host: Host) -> None:
        """Apply the present policy to a running call."""
        change = live.limits.follow(self._preflight.policy_for(live, tool, host))
        self._notify_moved(live, host, change)

    def _notify_moved(self, live: LiveCall, host: Host, change: DeadlineChange | None) -> bool:
        """Notify of a change of a limit, if there is one."""
        if change is not None:
            self._notifier.send(live, host.observer.deadline_moved(live, change))
        return change is not None


def _ticket_of(live: LiveCall, tool: Tool, host: Host) -> Ticket:
    return Ticket(
        scope=live.call.scope,
        tool_name=tool.name,
        pool=tool.pool,
        concurrency=tool.concurrency,
        isolation=tool.isolation,
        max_running=live.limits.policy.max_running if live.limits.policy else None,
        max_in_scope=host.max_parallel,
        counts=not tool.only_waits,
        call_id=live.id,
    )


async def _invoke_in_workspace(
    make: Callable[[], Awaitable[object]], invoke: Invoke, *call: Any
) -> Any:
    """Run a body once its directory is there."""
    await make()
    return await invoke(*call)


def _capacities(invokers: Mapping[Isolation, Invoker]) -> dict[Isolation, int]:
    return {
        isolation: capacity
        for isolation, invoker in invokers.items()
        if (capacity := getattr(invoker, "capacity", None)) is not None
    }
