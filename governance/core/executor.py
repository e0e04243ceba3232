"""Start here: the executor runs tool calls under a deadline and a cancellation token.

Each call has exactly one outcome (T1, C3, C4). `ToolExecutor` takes a call from its request to its outcome: `execute`
calls `_govern`, which calls `_run`, which waits for the body in `_wait_for` and ends it in `_end_body`. Each of the
classes below it is responsible for one stage. `Preflight` checks the call and asks a person for approval, before the
call waits for its slot. `AbandonedBodies` tracks the bodies that are still running after the end of their call; a later
return value is recorded as late (T11) and does not change the result. `Notifier` sends events to the observer. The
state of a call is in `live_call.py`, and `outcomes.py` describes how it ended, as a status and as text.
"""

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Container,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from governance.core import outcomes
from governance.core.approvals import Decision, Question, Verdict
from governance.core.body_questions import BodyQuestions
from governance.core.calls import CallStatus, Disposition, ErrorType, ToolCall, ToolOutcome
from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation, CancellationToken, ScopeTokens
from governance.core.containment import contained
from governance.core.deadline import DeadlineChange, Expiry
from governance.core.exceptions import (
    ApprovalUnavailable,
    CallNotStarted,
    GovernanceError,
    InvalidToolInput,
    MayStillRun,
    ToolDisabled,
    ToolExecutionError,
    ToolForbidden,
    TooManyCalls,
    UnknownTool,
)
from governance.core.invokers.coroutine import CoroutineInvoker
from governance.core.limiter import Limiter, Limits, Obstacle, Ticket
from governance.core.live_call import Body, Ending, LiveCall
from governance.core.masking import mask
from governance.core.policy import ApprovalRule, Policy, resolve, stricter
from governance.core.ports import (
    Approver,
    Declared,
    Host,
    Invoker,
    Observer,
    PolicySource,
    PreparingInvoker,
)
from governance.core.registry import ToolRegistry
from governance.core.results import Writer
from governance.core.tools import (
    CallOwner,
    Concurrency,
    Isolation,
    Tool,
    ToolContext,
    UnknownUsers,
    Users,
)
from governance.core.tracing import OPERATION, Span

logger = logging.getLogger(__name__)

Invoke: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]
CheckedCall: TypeAlias = tuple[Tool, dict[str, Any]]

NOTIFY_AFTER = 0.05  # seconds that a body has to end before the observer is notified of the cancel
UNKNOWN = "unknown"  # replaces a tool name that the model invented, because such a name is untrusted content
_NO_FAILURES = {ErrorType.CANCELLED, ErrorType.NOT_STARTED, ErrorType.DENIED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The intervals of the executor, in seconds.

    `cancel_grace` is how long a body may take to end after a cancel. `progress_interval` is the time after which a
    running call sends a progress event even if its tool reported nothing. `notice_interval` is the shortest time
    between two progress events of a tool that reports often. A call that has waited for `queue_notice` reports the
    obstacle that it waits for.
    """

    cancel_grace: float = 0.6
    progress_interval: float = 5.0
    notice_interval: float = 0.5
    queue_notice: float = 0.5


class ToolExecutor:
    """An executor that governs tool calls on one event loop.

    `invokers` maps each isolation to the invoker that runs the bodies of its tools. Tools with any other isolation are
    refused. `mask` masks secrets in the text of an exception, if the policy allows the model to read the text.
    """

    def __init__(
        self,
        *,
        registry: ToolRegistry,
        policies: PolicySource | None = None,
        limits: Limits | None = None,
        timing: Timing | None = None,
        invokers: Mapping[Isolation, Invoker | PreparingInvoker] | None = None,
        result_limit: int = 100_000,
        mask: Callable[[str], str] = mask,
        users: Users | None = None,
    ) -> None:
        self._registry = registry
        self._users = users or UnknownUsers()
        self._timing = timing or Timing()
        self._invokers: dict[Isolation, Invoker | PreparingInvoker] = {
            Isolation.ASYNC: CoroutineInvoker(),
            **(invokers or {}),
        }
        self._preflight = Preflight(
            registry=registry,
            policies=policies or Declared(),
            isolations=self._invokers,
            users=self._users,
        )
        self._limiter = Limiter(limits or Limits(), capacities=_capacities(self._invokers))
        self._result_limit = result_limit
        self._mask = mask
        self._live: dict[LiveCall, Host] = {}
        self._scope_tokens = ScopeTokens()
        self._abandoned = AbandonedBodies(result_limit=result_limit)
        self._notifier = Notifier(self._live, self._timing)

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
        """The queue of running and waiting calls."""
        return self._limiter

    def prepare(
        self, call: ToolCall, *, token: CancellationToken | None = None, tool: Tool | None = None
    ) -> LiveCall:
        """Return the live call for a request, so that the call can be cancelled before it starts to wait.

        `tool` replaces the registered tool, for example if its function was created for this call alone (B8).
        """
        token = CancellationToken(token, self._scope_tokens.of(call.scope))
        return LiveCall(call, token=token, own_tool=tool)

    async def run(
        self, call: ToolCall, *, token: CancellationToken | None = None, host: Host | None = None
    ) -> ToolOutcome:
        """Prepare and execute a call."""
        return await self.execute(self.prepare(call, token=token), host=host)

    async def execute(self, live: LiveCall, *, host: Host | None = None) -> ToolOutcome:
        """Govern the call and return its one outcome in bounded time, even if the tool does not stop.

        Raises:
            asyncio.CancelledError: the surrounding task was cancelled. The body was cancelled too, and no outcome is
            recorded.
            Exception: the observer raised an exception. The body was not run, or was ended.

        In both cases, the observer is notified when the body ends later, as for an abandoned body.
        """
        is_known = live.own_tool is not None or live.call.tool_name in self._registry
        # The span includes the body and its requests to MCP servers.
        with _span_of(live, name=live.call.tool_name if is_known else UNKNOWN) as span:
            forget = live.token.on_cancel(span.note_request)
            try:
                outcome = await self._execute(live, host or Host())
            finally:
                forget()
            _note_outcome(span, outcome)
        return outcome

    async def _execute(self, live: LiveCall, host: Host) -> ToolOutcome:
        self._live[live] = host
        try:
            outcome = await self._govern(live, host)
            live.change_status(outcome.status)
            await self._notifier.sent(live)
            await host.observer.call_ended(live, outcome)
        except BaseException:
            if live.body is not None:
                live.body.outlives = True
            raise
        finally:
            del self._live[live]
            live.token.detach()
            if live.body is not None and live.body.outlives:
                self._abandoned.watch_settlement(live, live.body.task, host.observer)
        return outcome

    def is_active(self, scope: str) -> bool:
        return bool(self._live_in(scope))

    def cancel_scope(self, scope: str, cancellation: Cancellation) -> int:
        """Cancel the calls of a scope (C7). Return how many of them were running or waiting.

        Calls that were only prepared are not counted, and never start.
        """
        count = sum(live.cancel(cancellation) for live in self._live_in(scope))
        self._scope_tokens.cancel(scope, cancellation)
        return count

    def apply_policies(self) -> None:
        """Apply the current limits to running calls (T9)."""
        for live, host in list(self._live.items()):
            if live.tool is not None and live.limits.deadline is not None:
                self._follow_policy(live, live.tool, host)

    def set_deadline(self, live: LiveCall, timeout: float, *, by: str = "") -> bool:
        """Set a new total limit in seconds (T9). Return False if the call has ended.

        If the call is waiting, the limit takes effect when the body starts.
        """
        if live.status.is_terminal:
            return False
        if live.limits.deadline is None:
            live.limits.request_timeout(timeout, by=by)
            return True
        host = self._live.get(live)
        change = live.limits.set_timeout(timeout, by=by) if host else None
        return host is not None and self._notify_moved(live, host, change)

    async def aclose(self) -> None:
        """Stop watching abandoned bodies, and close the invokers."""
        self._notifier.close()
        await self._abandoned.aclose(timeout=self._timing.cancel_grace)
        for invoker in self._invokers.values():
            if (close := getattr(invoker, "aclose", None)) is not None:
                await close()

    async def _govern(self, live: LiveCall, host: Host) -> ToolOutcome:
        """Check, queue and run the call. Start over if its policy changed while it waited."""
        while not live.token.is_cancelled:
            checked = await self._preflight.check(live, host)
            if isinstance(checked, ToolOutcome):
                return checked
            tool, arguments = checked
            if tool.concurrency is Concurrency.SUPERSEDE:
                self._supersede(live, tool)
            ticket = _ticket_of(live, tool, host)
            try:
                has_slot = await self._queue(live, ticket)
            except GovernanceError as error:
                return outcomes.refused(live, error)
            if not has_slot:
                break
            try:
                refused = await self._preflight.check_permission(live, tool, host)
                if refused is not None:
                    return refused
                async with self._prepared(live, tool) as invoker:
                    if invoker is None:
                        break
                    if self._preflight.still_allows(live, tool, host):
                        return await self._run(live, tool, arguments, host, invoker)
            except CallNotStarted as error:
                return outcomes.refused(live, error)
            finally:
                self._limiter.leave(ticket)
        return outcomes.not_started(live)

    async def _queue(self, live: LiveCall, ticket: Ticket) -> bool:
        """Wait for a slot. Return False if the call was cancelled."""
        loop = asyncio.get_running_loop()
        waiting_since = loop.time()
        try:
            with self._notifier.waiting(live, partial(self._limiter.obstacle, ticket)):
                return await self._limiter.enter(ticket, token=live.token)
        finally:
            live.queued += loop.time() - waiting_since

    @asynccontextmanager
    async def _prepared(self, live: LiveCall, tool: Tool) -> AsyncIterator[Invoker | None]:
        """Yield the body's invoker, or `None` if the call was cancelled first.

        The time that a process takes to start is added to the call's waiting time (T5).
        """
        invoker = self._invokers[tool.isolation]
        if not isinstance(invoker, PreparingInvoker):
            yield invoker
            return
        loop = asyncio.get_running_loop()
        waiting_since = loop.time()
        try:
            started = await invoker.prepare(live.token)
        finally:
            live.queued += loop.time() - waiting_since
        try:
            yield started
        finally:
            if started is not None:
                started.release()

    def _live_in(self, scope: str) -> list[LiveCall]:
        """Return the running and waiting calls of a scope, oldest first."""
        return [live for live in tuple(self._live) if live.call.scope == scope]

    def _supersede(self, live: LiveCall, tool: Tool) -> None:
        """Cancel the earlier calls that this one supersedes (C9)."""
        for earlier in self._live_in(live.call.scope):
            # Compare the names, because a new tool object may be created for each call.
            if earlier is not live and earlier.tool is not None and earlier.tool.name == tool.name:
                earlier.cancel(Cancellation(reason=CancelReason.SUPERSEDED))

    async def _run(
        self,
        live: LiveCall,
        tool: Tool,
        arguments: Mapping[str, Any],
        host: Host,
        invoker: Invoker,
    ) -> ToolOutcome:
        if live.token.is_cancelled:
            return outcomes.not_started(live)
        live.change_status(CallStatus.RUNNING)
        await host.observer.call_started(live)
        live.end_on_cancel()
        # Check this only after the callback is registered, so that no cancel request is missed.
        if live.ended_by is not None:
            return outcomes.not_started(live)
        questions = BodyQuestions(live, approver=host.approver)
        body = self._start(live, tool, arguments, host, invoker, questions)
        # The policy may have been edited while the start was recorded.
        self._follow_policy(live, tool, host)
        self._notify_moved(live, host, live.limits.apply_request())
        try:
            ending = await self._wait_for(live, body)
            if ending is not None:
                ending = await self._end_body(live, body, ending, host)
        finally:
            await questions.aclose()
        if ending is not None:
            return outcomes.ended(live, ending, disposition=body.disposition)
        return outcomes.settled(live, body.task, result_limit=self._result_limit, mask=self._mask)

    def _start(
        self,
        live: LiveCall,
        tool: Tool,
        arguments: Mapping[str, Any],
        host: Host,
        invoker: Invoker,
        questions: BodyQuestions,
    ) -> Body:
        body = live.body = Body(live.limits.start(), live.ending)
        live.images.keep = host.keep_image
        writer = Writer(
            limit=self._result_limit, render=tool.render, stops=lambda: live.token.is_cancelled
        )
        owner = CallOwner(live.token, host.still_mine)
        context = ToolContext(
            call_id=live.id,
            tool_name=tool.name,
            scope=live.call.scope,
            token=live.token,
            report=live.progress.report,
            workspace=host.workspace,
            metadata=host.metadata,
            user_id=host.user_id,
            agent=host.agent,
            depth=host.depth,
            users=self._users,
            time_left=lambda: live.limits.time_left,
            returned=body.mark_returned,
            show=live.images.show,
            show_blocking=live.images.show_blocking,
            ask_form=questions.ask,
            ask_owner=owner.still_mine,
            ask_owner_blocking=owner.still_mine_blocking,
            writer=writer,
        )
        invoke: Invoke = invoker.invoke
        if host.make_workspace is not None and tool.context_parameter is not None:
            invoke = partial(_invoke_in_workspace, host.make_workspace, invoke)
        invocation = invoke(tool, arguments, context)
        body.start(invocation, name=f"tool {tool.name} {live.id}")
        return body

    async def _wait_for(self, live: LiveCall, body: Body) -> Ending:
        """Wait until the body ends, a limit runs out or a cancel arrives.

        Return the limit or the cancel that ended the call, or `None` if the body ended in time.
        """
        self._notifier.watch()
        try:
            ending = await live.ending
        except asyncio.CancelledError:
            # The process is shutting down (invariant 6): cancel the body without waiting.
            live.token.cancel(Cancellation(reason=CancelReason.SHUTDOWN))
            body.task.cancel()
            self._abandoned.add(body.task)
            raise
        finally:
            body.deadline.close()
        if body.returned_at is not None and not body.is_done:
            # The loop has not processed the body's return yet.
            await asyncio.wait({body.task}, timeout=self._timing.cancel_grace)
        if ending is not None and not body.has_value:
            return ending
        expiry = body.limit_reached
        if expiry is None:  # it returned in time, even if the loop noticed late (T11)
            return None
        return ending if isinstance(ending, Cancellation) else expiry

    async def _end_body(
        self, live: LiveCall, body: Body, ending: Cancellation | Expiry, host: Host
    ) -> Ending:
        """Cancel the token and the body, and wait for the body until the grace period ends.

        Return `None` if a cancelled body still returned in time (C13).
        """
        live.change_status(CallStatus.CANCELLING)
        live.token.cancel(Cancellation(reason=CancelReason.TIMEOUT))
        was_late = body.is_done
        grace = self._timing.cancel_grace
        body.task.cancel()
        try:
            _, pending = await asyncio.wait({body.task}, timeout=min(NOTIFY_AFTER, grace))
            if pending:
                self._notifier.send(live, host.observer.call_cancelling(live))
                await asyncio.wait({body.task}, timeout=max(grace - NOTIFY_AFTER, 0))
        finally:
            self._abandoned.add(body.task)
        if body.has_value and not was_late and isinstance(ending, Cancellation):
            return None
        is_unsettled = body.disposition is Disposition.INDETERMINATE
        body.outlives = body.has_value or was_late or is_unsettled
        return ending

    def _follow_policy(self, live: LiveCall, tool: Tool, host: Host) -> None:
        """Apply the current policy to a running call, if it changed."""
        change = live.limits.follow(self._preflight.policy_for(live, tool, host))
        self._notify_moved(live, host, change)

    def _notify_moved(self, live: LiveCall, host: Host, change: DeadlineChange | None) -> bool:
        """Notify the observer if a limit changed."""
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
    """Create the workspace of a body, and then run the body."""
    await make()
    return await invoke(*call)


def _capacities(invokers: Mapping[Isolation, Invoker | PreparingInvoker]) -> dict[Isolation, int]:
    return {
        isolation: capacity
        for isolation, invoker in invokers.items()
        if (capacity := getattr(invoker, "capacity", None)) is not None
    }


def _span_of(live: LiveCall, *, name: str) -> Span:
    span = Span(
        f"execute_tool {name}",
        {
            OPERATION: "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": live.id,
        },
    )
    span.show(lambda: {"gen_ai.tool.call.arguments": dict(live.call.input)})
    return span


def _note_outcome(span: Span, outcome: ToolOutcome) -> None:
    limit = outcome.limit_reached
    span.set(
        {
            "turnkeeper.call.status": outcome.status.value,
            "turnkeeper.call.disposition": outcome.disposition.value,
            "turnkeeper.call.limit": limit and limit.value,
            "turnkeeper.call.timeout": outcome.timeout,
            "turnkeeper.call.queued": outcome.queued,
        }
    )
    span.show(lambda: {"gen_ai.tool.call.result": outcome.result})
    if outcome.status is CallStatus.EXPIRED:  # no answer or cancel has ended the question
        span.event("turnkeeper.timeout")
    if outcome.error_type is not None and outcome.error_type not in _NO_FAILURES:
        span.fail(outcome.error_type.value)


class Preflight:
    """The checks of a call before it starts. Tools whose isolation is not in `isolations` are refused."""

    def __init__(
        self,
        *,
        registry: ToolRegistry,
        policies: PolicySource,
        isolations: Container[Isolation],
        users: Users,
    ) -> None:
        self._registry = registry
        self._policies = policies
        self._isolations = isolations
        self._users = users

    async def check(self, live: LiveCall, host: Host) -> CheckedCall | ToolOutcome:
        """Check the call, and request approval if its policy requires it.

        Repeat both if the tool has changed in the meantime (D4). Return the tool and its arguments, or the outcome of a
        call that must not run.

        Raises:
            Exception: the approver raised an exception.
        """
        while True:
            checked = self._checked(live, host)
            if isinstance(checked, ToolOutcome):
                return checked
            tool, policy = checked[0], live.limits.policy
            if (refused := await self.check_permission(live, tool, host)) is not None:
                return refused
            if policy is None or live.approval.clears(tool, policy.approval):
                return checked
            if host.approver is None:
                return outcomes.refused(live, ApprovalUnavailable(tool.name))
            is_about_host = self._tool_policy(live, tool, host).approval is ApprovalRule.NEVER
            decision = await _request_approval(
                live, tool, policy, approver=host.approver, is_about_host=is_about_host
            )
            if decision.verdict is not Verdict.APPROVED:
                return outcomes.not_allowed(live, decision)

    async def check_permission(self, live: LiveCall, tool: Tool, host: Host) -> ToolOutcome | None:
        """Return `None` if the call's user has the permission that the tool requires, else the outcome of the call.

        This is checked before other calls are queued behind this one or cancelled because of it, and again before the
        body starts.
        """
        if not tool.permission:
            return None
        asking = asyncio.create_task(
            self._users.has_permission(host.user_id, tool.permission), name=f"permission {live.id}"
        )
        try:
            with live.token.watched() as cancelled:  # the host's permission backends may be slow
                first: set[asyncio.Future[Any]] = {asking, cancelled}
                await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                return outcomes.not_started(live)
            if asking.result():
                return None
            logger.info("A tool call lacks a permission", extra=outcomes.log_fields(live))
            return outcomes.refused(live, ToolForbidden(tool.name, tool.permission))
        except Exception as error:
            logger.exception(
                "A permission could not be checked", extra=outcomes.log_fields(live, error=error)
            )
            return outcomes.refused(live, ToolExecutionError(tool.name, error))
        finally:
            asking.cancel()

    def still_allows(self, live: LiveCall, tool: Tool, host: Host) -> bool:
        """Apply the current policy to a call that is about to start. Return False if it needs a new check.

        While the call waited, an administrator may have disabled its tool, or required approval.
        """
        policy = self._apply_policy(live, tool, host)
        return policy.enabled and live.approval.clears(tool, policy.approval)

    def _apply_policy(self, live: LiveCall, tool: Tool, host: Host) -> Policy:
        policy = self.policy_for(live, tool, host)
        live.limits.set_policy(policy)
        return policy

    def policy_for(self, live: LiveCall, tool: Tool, host: Host) -> Policy:
        policy = self._tool_policy(live, tool, host)
        if not live.approval.unknown_host:
            return policy
        rule = stricter(policy.approval, ApprovalRule.ONCE_PER_CONVERSATION)
        return replace(policy, approval=rule)

    def _tool_policy(self, live: LiveCall, tool: Tool, host: Host) -> Policy:
        """Return the tool's policy, regardless of the web host that the call would connect to."""
        levels = self._policies.levels(tool)
        if not tool.needs_approval(live.call.input):
            levels = replace(levels, declared=replace(levels.declared, approval=None))
        return resolve(levels, hint=live.limits.hint, at_least=host.approval)

    def _checked(self, live: LiveCall, host: Host) -> CheckedCall | ToolOutcome:
        try:
            with contained():
                return self._find_tool(live, host)
        except GovernanceError as error:
            return outcomes.refused(live, error)
        except Exception as error:
            logger.exception(
                "A tool call could not be checked", extra=outcomes.log_fields(live, error=error)
            )
            return outcomes.refused(live, ToolExecutionError(live.call.tool_name, error))

    def _find_tool(self, live: LiveCall, host: Host) -> CheckedCall:
        """Find the tool, its policy and the arguments. Refuse calls that cannot run even with an approval."""
        if host.allowed is not None and live.call.tool_name not in host.allowed:
            raise UnknownTool(live.call.tool_name)
        tool = live.tool = live.own_tool or self._registry.get(live.call.tool_name)
        if reason := tool.disabled_reason():
            raise ToolDisabled(tool.name, reason)
        if live.call.most is not None and live.call.position >= live.call.most:
            raise TooManyCalls(live.call.most)
        if live.call.problem:
            raise InvalidToolInput(tool.name, live.call.problem)
        live.limits.hint = tool.hint(live.call.input)
        live.approval.unknown_host = tool.unapproved_host(live.call.input)
        if not self._apply_policy(live, tool, host).enabled:
            raise ToolDisabled(tool.name)
        if tool.isolation not in self._isolations:
            logger.warning(
                "The tool %r is refused: it runs as %r, and this ToolExecutor has no invoker for that in `invokers`",
                tool.name,
                tool.isolation.value,
                extra=outcomes.log_fields(live),
            )
            raise GovernanceError(f"The tool {tool.name!r} cannot be run here.")
        arguments = {name: value for name, value in live.call.input.items() if name != "_meta"}
        return tool, tool.validate(arguments)


async def _request_approval(
    live: LiveCall, tool: Tool, policy: Policy, *, approver: Approver, is_about_host: bool
) -> Decision:
    """Ask a person and return the decision. The approver decides which of several answers came first (D4)."""
    question = live.approval.question = Question(
        rule=policy.approval,
        timeout=policy.approval_timeout,
        definition=tool.definition,
        description=tool.description,
        host=live.approval.unknown_host,
        is_about_host=is_about_host,
    )
    earlier = await approver.ask(live)
    if earlier is not None and earlier.verdict is Verdict.APPROVED:
        live.approval.clear(tool, rule=policy.approval)
        return earlier
    live.change_status(CallStatus.AWAITING_APPROVAL)
    if earlier is not None:
        return earlier
    decision = await approver.conclude(live, await question.decided(live.token))
    if decision.verdict is Verdict.APPROVED:  # a person who approves this call satisfies any rule
        live.approval.clear(tool, rule=ApprovalRule.ALWAYS)
        live.change_status(CallStatus.PENDING)
    return decision


class AbandonedBodies:
    """The bodies of one executor that outlive their calls. `len` returns their number."""

    def __init__(self, *, result_limit: int) -> None:
        self._result_limit = result_limit
        self._bodies: set[asyncio.Task[Any]] = set()
        self._settlements: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._bodies)

    def add(self, body: asyncio.Task[Any]) -> None:
        """Keep the body until it ends, then retrieve its exception, so that asyncio does not log it."""
        if body.done():
            self._discard(body)
        else:
            self._bodies.add(body)
            body.add_done_callback(self._discard)

    def watch_settlement(self, live: LiveCall, body: asyncio.Task[Any], observer: Observer) -> None:
        """Record in a background task how the body ends."""
        logger.warning("A tool call was abandoned", extra=outcomes.log_fields(live))
        task = asyncio.create_task(
            self._settle_late(live, body, observer),
            name=f"late settlement of tool call {live.call.id}",
        )
        self._settlements.add(task)
        task.add_done_callback(self._settlements.discard)

    async def aclose(self, *, timeout: float) -> None:
        """Stop observing the bodies, which continue to run."""
        for task in self._settlements:
            task.cancel()
        if self._settlements:
            await asyncio.wait(self._settlements, timeout=timeout)

    async def _settle_late(
        self, live: LiveCall, body: asyncio.Task[Any], observer: Observer
    ) -> None:
        loop = asyncio.get_running_loop()
        ended_at = loop.time()
        work = await _wait_for_work(body)
        if work is None:
            return
        late = outcomes.late(work, after=loop.time() - ended_at, result_limit=self._result_limit)
        logger.info(
            "A tool call settled late", extra={**outcomes.log_fields(live), "kind": late.kind}
        )
        try:
            await observer.call_settled_late(live, late)
        except Exception:
            logger.exception(
                "A late settlement could not be recorded", extra=outcomes.log_fields(live)
            )

    def _discard(self, body: asyncio.Task[Any]) -> None:
        self._bodies.discard(body)
        if not body.cancelled():
            body.exception()


async def _wait_for_work(body: asyncio.Task[Any]) -> asyncio.Future[Any] | None:
    """Wait for the end of a body or of its remote work. Return its future, or None if that end cannot be observed."""
    await asyncio.wait({body})
    error = None if body.cancelled() else body.exception()
    if not isinstance(error, MayStillRun):
        return body
    if error.answer is None:
        return None
    await asyncio.wait({error.answer})
    return None if error.answer.cancelled() else error.answer


class Notifier:
    """The notifications about an executor's calls. An observer's failure is logged and does not affect the call."""

    def __init__(self, live: Mapping[LiveCall, Host], timing: Timing) -> None:
        self._live = live
        self._timing = timing
        self._sending: dict[LiveCall, asyncio.Task[None]] = {}
        self._queue_timers: dict[LiveCall, asyncio.TimerHandle] = {}
        self._timer: asyncio.TimerHandle | None = None

    def send(self, live: LiveCall, notice: Coroutine[Any, Any, None]) -> None:
        """Send a notice after the earlier notices of its call, without waiting for it."""
        task = live.ending.get_loop().create_task(
            _sent(notice, live, after=self._sending.get(live)),
            name=f"notice of tool call {live.id}",
            context=live.context,
        )
        self._sending[live] = task
        task.add_done_callback(partial(self._forget, live, notice))

    async def sent(self, live: LiveCall) -> None:
        """Wait until every notice of a call has been sent, so that none comes after the outcome."""
        if (last := self._sending.get(live)) is not None:
            await asyncio.wait({last})

    @contextmanager
    def waiting(self, live: LiveCall, obstacle: Callable[[], Obstacle | None]) -> Iterator[None]:
        """Notify the observer of a waiting call's obstacle after a delay, and again whenever it changes."""
        self._watch_queue(live, obstacle)
        try:
            yield
        finally:
            self._queue_timers.pop(live).cancel()
            live.waits_for = None

    def _watch_queue(self, live: LiveCall, obstacle: Callable[[], Obstacle | None]) -> None:
        self._queue_timers[live] = asyncio.get_running_loop().call_later(
            self._timing.queue_notice, self._poll_queue, live, obstacle
        )

    def _poll_queue(self, live: LiveCall, obstacle: Callable[[], Obstacle | None]) -> None:
        self._watch_queue(live, obstacle)
        present = obstacle()
        if present is not None and present != live.waits_for:
            live.waits_for = present
            self.send(live, self._live[live].observer.call_queued(live))

    def watch(self) -> None:
        """Poll the live calls periodically while there are any."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(
                self._timing.notice_interval, self._poll
            )

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _poll(self) -> None:
        """Notify the observer of each running call that has new progress or has been silent for an interval."""
        self._timer = None
        now = asyncio.get_running_loop().time()
        for live, host in self._live.items():
            if live.limits.deadline is None or live.status is not CallStatus.RUNNING:
                continue
            if live in self._sending:  # a slow observer receives the latest state at the next poll
                continue
            progress = live.progress
            silent_for = min(live.elapsed, now - progress.last_notified_at)
            if progress.has_pending_progress or silent_for >= self._timing.progress_interval:
                progress.has_pending_progress = False
                progress.last_notified_at = now
                self.send(live, host.observer.call_progressed(live))
        if self._live:
            self.watch()

    def _forget(
        self, live: LiveCall, notice: Coroutine[Any, Any, None], task: asyncio.Task[None]
    ) -> None:
        notice.close()  # if the loop has ended, the coroutine was never started
        if self._sending.get(live) is task:
            del self._sending[live]


async def _sent(
    notice: Coroutine[Any, Any, None], live: LiveCall, *, after: asyncio.Task[None] | None
) -> None:
    if after is not None:
        await asyncio.wait({after})
    try:
        await notice
    except Exception:
        logger.exception("An observer failed", extra=outcomes.log_fields(live))
