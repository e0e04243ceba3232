"""What the executor needs from outside: policies to obey, an observer to tell, places where bodies run."""

from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from governance.core.approvals import Decision
from governance.core.calls import LateSettlement, ToolOutcome
from governance.core.deadline import DeadlineChange
from governance.core.images import KeepImage
from governance.core.live_call import LiveCall
from governance.core.policy import ApprovalRule, PolicyLevels
from governance.core.tools import Tool, ToolContext


class PolicySource(Protocol):
    """Source of the administrators' limits; answers at once, from memory."""

    def levels(self, tool: Tool) -> PolicyLevels:
        """Return the limits of every level for this tool, now."""
        ...


class Observer(Protocol):
    """Receives the events of a call, in this order; only a late settlement may follow the outcome.

    `call_started` is awaited before the body runs (the journal is written ahead): if it raises, the body never runs.
    `call_ended` is awaited before the outcome is returned. The other events are sent in the background, in order.
    """

    async def call_queued(self, call: LiveCall) -> None:
        """The call has waited for its turn for a moment, or for something else than before: `waits_for`."""

    async def call_started(self, call: LiveCall) -> None:
        """The call has a slot and is about to run."""

    async def call_progressed(self, call: LiveCall) -> None:
        """The call reported progress (`last_progress`), or has been running for another interval."""

    async def deadline_moved(self, call: LiveCall, change: DeadlineChange) -> None:
        """A limit of the running call was changed (T9)."""

    async def call_cancelling(self, call: LiveCall) -> None:
        """A stop was asked for (`ended_by`), and the body did not end at once."""

    async def call_ended(self, call: LiveCall, outcome: ToolOutcome) -> None:
        """The call has its one outcome."""

    async def call_settled_late(self, call: LiveCall, late: LateSettlement) -> None:
        """A body that was no longer waited for has ended after all (T11)."""


class Approver(Protocol):
    """Asks people to decide on calls whose policy requires it (D2). An exception ends the call before it runs."""

    async def ask(self, call: LiveCall) -> Decision | None:
        """Show `call.question` to people and give it its id.

        Return a decision at once if an earlier one covers the call. Else None, and pass the answer to `call.answer`
        when it comes.
        """
        ...

    async def conclude(self, call: LiveCall, decision: Decision) -> Decision:
        """Record how the wait ended, and return the decision that counts.

        It differs from `decision` if a person was faster than its expiry or cancel (D4).
        """
        ...


class Invoker(Protocol):
    """Runs the body of one tool in one kind of place.

    It may have a `capacity`: how many bodies it runs at once. Further calls wait in the queue, before their clocks
    start (T5). It may have an `aclose` coroutine function, called when the executor is closed.
    """

    async def invoke(self, tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Run the body and return its value."""
        ...


class Declared:
    """The policy source of a project without administrators: only what the tools declare counts."""

    def levels(self, tool: Tool) -> PolicyLevels:
        """Return the tool's own limits."""
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
    """What a call gets beside its input: observer, workspace, and facts for the tool.

    A call of a tool that is not in `allowed` (None = every tool) is refused as unknown. It waits while `max_parallel`
    calls of its scope run. Without an `approver`, a call that needs approval is refused. `approval` is the least
    strict rule that holds for every tool (D1). `keep_image` keeps what calls show, None = nothing is shown.
    `make_workspace` runs before each tool that takes the context, as a part of its body; None = the directory is there.
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
