"""The executor's interfaces: policy source, observer, approver and invokers."""

from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from governance.core.approvals import Decision
from governance.core.calls import LateSettlement, ToolOutcome
from governance.core.cancellation import CancellationToken
from governance.core.deadline import DeadlineChange
from governance.core.images import KeepImage
from governance.core.live_call import LiveCall
from governance.core.policy import ApprovalRule, PolicyLevels
from governance.core.tools import StillMine, Tool, ToolContext, always_mine


class PolicySource(Protocol):
    """The source of administrators' limits. It must read from memory, because every call reads it on the event loop."""

    def levels(self, tool: Tool) -> PolicyLevels:
        """Return the current limits of every level for this tool."""
        ...


class Observer(Protocol):
    """A receiver of the events of calls. Only a late settlement may follow the outcome of a call.

    `call_started` is awaited before the body runs, so that the start is recorded first; if it raises, the body never
    runs. `call_ended` is awaited before the outcome is returned. The other events are sent in the background, in order.
    """

    async def call_queued(self, call: LiveCall) -> None:
        """Called when the call has waited for a while, or when its obstacle `waits_for` has changed."""

    async def call_started(self, call: LiveCall) -> None:
        """Called when the call has a slot and is about to run."""

    async def call_progressed(self, call: LiveCall) -> None:
        """Called when the call has reported progress (`last_progress`) or has been running for another interval."""

    async def deadline_moved(self, call: LiveCall, change: DeadlineChange) -> None:
        """Called when a limit of the running call was changed (T9)."""

    async def call_cancelling(self, call: LiveCall) -> None:
        """Called when a stop was requested (`ended_by`) and the body did not end immediately."""

    async def call_ended(self, call: LiveCall, outcome: ToolOutcome) -> None:
        """Called when the call has ended with this outcome."""

    async def call_settled_late(self, call: LiveCall, late: LateSettlement) -> None:
        """Called when an abandoned body has ended (T11)."""


class Approver(Protocol):
    """An approver asks people to decide on calls (D2). If it raises an exception, the call does not run."""

    async def ask(self, call: LiveCall) -> Decision | None:
        """Show `call.question` to people, and set its id.

        If an earlier decision covers the call, return that decision immediately. Otherwise return `None`, and pass the
        person's decision to `call.answer` when it arrives.
        """
        ...

    async def conclude(self, call: LiveCall, decision: Decision) -> Decision:
        """Record how the wait ended, and return the effective decision.

        The effective decision differs from `decision` if a person answered before the question expired or was cancelled
        (D4).
        """
        ...


class Invoker(Protocol):
    """An invoker runs the tool bodies of one isolation.

    It may have a `capacity`, which is the maximum number of concurrent bodies. Further calls wait in the queue, before
    their clocks start (T5). It may have a coroutine function `aclose`, which is called when the executor is closed.
    """

    async def invoke(self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Run the body and return its value."""
        ...


class Started(Invoker, Protocol):
    """A slot that is ready to run one body, such as a started worker process."""

    def release(self) -> None:
        """Release the slot, unless its body has started to run."""
        ...


@runtime_checkable
class PreparingInvoker(Protocol):
    """An invoker that prepares a slot for each body, which may take a while.

    Like any invoker, it may have a `capacity` and an `aclose`.
    """

    async def prepare(self, token: CancellationToken) -> Started | None:
        """Prepare a slot. Return `None` if `token` was cancelled first.

        Raises:
            CallNotStarted: no slot can be prepared.
        """
        ...


class Declared:
    """The policy source of a project without administrators: only the tools' declarations apply."""

    def levels(self, tool: Tool) -> PolicyLevels:
        """Return the limits that the tool declares."""
        return tool.levels


class Unobserved:
    """An observer that ignores every event."""

    async def call_queued(self, call: LiveCall) -> None: ...
    async def call_started(self, call: LiveCall) -> None: ...
    async def call_progressed(self, call: LiveCall) -> None: ...
    async def deadline_moved(self, call: LiveCall, change: DeadlineChange) -> None: ...
    async def call_cancelling(self, call: LiveCall) -> None: ...
    async def call_ended(self, call: LiveCall, outcome: ToolOutcome) -> None: ...
    async def call_settled_late(self, call: LiveCall, late: LateSettlement) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The environment of a call: its observer, its workspace, and facts for the tool.

    A call of a tool that is not in `allowed` is refused as unknown; if `allowed` is `None`, every tool is allowed. A
    call waits while `max_parallel` calls of its scope are running. Without an `approver`, a call that needs approval is
    refused. `approval` is the minimum rule for every tool (D1). `keep_image` stores an image that a call shows; if it
    is `None`, images are not shown. `still_mine` returns whether the calls still belong to this process. `user_id` is
    the id of the person for whom the call works, or `None`. `ToolContext` explains `agent` and `depth`.
    `make_workspace` runs before each tool that accepts the context, as part of its body; `None` means that the
    directory already exists.
    """

    observer: Observer = field(default_factory=Unobserved)
    workspace: Path | None = None
    make_workspace: Callable[[], Awaitable[object]] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    allowed: Container[str] | None = None
    max_parallel: int | None = None
    approver: Approver | None = None
    approval: ApprovalRule = ApprovalRule.NEVER
    keep_image: KeepImage | None = None
    still_mine: StillMine = always_mine
    user_id: Any = None
    agent: str = ""
    depth: int = 0
