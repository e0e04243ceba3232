"""Events of tool calls: from the question whether a call may run to its late end."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from governance import ApprovalRule, Verdict
from turns.core.events import TurnEvent
from turns.core.wire import (
    AttachmentContent,
    Characters,
    EndedBy,
    Late,
    Limit,
    LimitReached,
    Milliseconds,
    OneOf,
    WaitsFor,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolApproval(TurnEvent):
    """A call waits for a person's decision; `input` is whole, `expires_at` null = it may take any time."""

    type: ClassVar = "tool_approval"
    changes_status: ClassVar = True
    tool_id: str
    tool_name: str
    tool_title: str = ""
    tool_server: str = ""
    input: Any
    expires_at: str | None
    expires_in_ms: Limit
    rule: Annotated[str, OneOf(ApprovalRule.ONCE_PER_CONVERSATION, ApprovalRule.ALWAYS)]
    can_remember: bool
    host: str
    description: str
    question: str = ""
    requested_at: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDecision(TurnEvent):
    """A question was decided; `remember` = it lets the tool's later calls of this conversation through, too."""

    type: ClassVar = "tool_decision"
    changes_status: ClassVar = True
    tool_id: str
    decision: Annotated[str, OneOf(Verdict.APPROVED, Verdict.DENIED, Verdict.EXPIRED)]
    by: str
    reason: str
    remember: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolQueued(TurnEvent):
    """A call has waited for half a second, and for what; again when it waits for something else. Empty names name no call.

    An exclusive call runs alone in its conversation: it waits for the others, and they wait for it.
    """

    type: ClassVar = "tool_queued"
    tool_id: str
    tool_name: str
    waits_for: WaitsFor
    concurrency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStart(TurnEvent):
    """A tool call begins to run. `timeout_ms` null or 0 = no limit, `idle_timeout_ms` null = it may be silent for any time.

    `tool_title` is the tool's own word for people, `tool_server` the MCP server that it belongs to; empty = none.
    `allowed_earlier_by` is who had allowed the tool for the conversation before, so that nobody was asked.

    `expected_ms` is how long it takes as a rule; `asked_timeout_ms` what it asked for above its ceiling, 0 = no limit.
    Every call is `cancellable`. Where it is not `interruptible`, a cancel stops waiting for it, and its work may go on.
    """

    type: ClassVar = "tool_start"
    tool_id: str
    tool_name: str
    tool_title: str = ""
    tool_server: str = ""
    allowed_earlier_by: str = ""
    input: Any
    timeout_ms: Limit
    timeout_source: str
    idle_timeout_ms: Limit
    cancellable: bool
    concurrency: str
    position: int
    expected_ms: Limit
    asked_timeout_ms: Limit
    interruptible: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgress(TurnEvent):
    """A call is alive: every 5 s, and when the tool itself says so. `tail` is the last lines of its output so far."""

    type: ClassVar = "tool_progress"
    tool_id: str
    tool_name: str
    elapsed_ms: Milliseconds
    status: Annotated[str, OneOf("running")]
    progress: float | None = None
    total: float | None = None
    message: str | None = None
    tail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDeadline(TurnEvent):
    """A running call got another limit, idle limit, or both: both as they are now."""

    type: ClassVar = "tool_deadline"
    tool_id: str
    timeout_ms: Limit
    timeout_source: str
    idle_timeout_ms: Limit
    changed_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTimeout(TurnEvent):
    """A call reached a limit of its own; its `tool_result` follows. `timeout_ms` is the one that `limit_reached` names."""

    type: ClassVar = "tool_timeout"
    tool_id: str
    tool_name: str
    timeout_ms: Limit
    limit_reached: Annotated[str, OneOf("total", "idle")] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(TurnEvent):
    """A call is over: exactly one for every call that started. `limit_reached` is the limit that has ended it, if one did.

    `result` is the beginning of a result of `result_length` characters; the rest has an address of its own. `images`
    are what the call has shown.
    """

    type: ClassVar = "tool_result"
    changes_status: ClassVar = True
    tool_id: str
    tool_name: str
    step: int
    position: int
    result: str
    is_error: bool
    error_type: str | None
    status: str
    limit_reached: LimitReached | None
    duration_ms: Limit
    ended_by: EndedBy | None
    disposition: str
    late: Late | None
    result_length: Characters
    images: list[AttachmentContent]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettled(TurnEvent):
    """A call that was given up, and might still have been running, has ended after all. Its result stays as it was.

    `kind`: `returned`, `raised`, `cancelled`, or `process_ended`, with the process that ran it. It may come after `turn_end`.
    """

    type: ClassVar = "tool_settled"
    follows_end: ClassVar = True
    tool_id: str
    tool_name: str
    status: str
    kind: str
    after_ms: Limit


@dataclass(frozen=True, slots=True, kw_only=True)
class SubAgent(TurnEvent):
    """A call has set a sub-agent to work, in a turn and a conversation of its own. A detached one is not waited for."""

    type: ClassVar = "sub_agent"
    tool_id: str
    agent: str
    child_turn_id: str
    child_conversation_id: str
    is_detached: bool
