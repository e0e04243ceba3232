"""Tool calls as clients see them: open, ended, asked about, and the work of sub-agents below them."""

from typing import Annotated, Any, NotRequired

from typing_extensions import TypedDict

from governance import ApprovalRule, CallStatus
from turns.core.turns import TurnStatus
from turns.core.wire.attachments import AttachmentContent
from turns.core.wire.fields import Characters, Limit, LimitReached, Milliseconds, OneOf


class WaitsFor(TypedDict):
    """`call`: until the call `tool_id` has ended.

    `scope`: its conversation runs as many calls as it may. `slot`: so does the server.
    """

    kind: Annotated[str, OneOf("call", "slot", "scope")]
    tool_id: str
    tool_name: str


class EndedBy(TypedDict):
    """Who or what has ended a call or a turn; `by` is a name, empty for the system."""

    reason: str
    source: str
    by: str


class Late(TypedDict):
    """How the work of a call ended that had been given up."""

    kind: str
    after_ms: Limit


class CallEnd(TypedDict):
    """How a call ended; `limit_reached` is the limit that has ended it, if one did.

    `result` is the beginning of a result of `result_length` characters; the rest has an address of its own. `images`
    are what the call has shown.
    """

    result: str
    result_length: Characters
    images: list[AttachmentContent]
    is_error: bool
    error_type: str | None
    status: str
    limit_reached: LimitReached | None
    duration_ms: Limit
    ended_by: EndedBy | None
    disposition: str
    late: Late | None


class SubAgentReport(TypedDict):
    """What the turn of a sub-agent has come to. `html` is sanitised, and added where it is sent to a page."""

    turn_id: str
    conversation_id: str
    agent: str
    status: str
    text: str
    html: NotRequired[str]


class QuestionTerms(TypedDict):
    """What people are asked about a call; `expires_at` null = it may take any time.

    `question` is the tool's own, empty = whether it may run.
    """

    rule: Annotated[str, OneOf(ApprovalRule.ONCE_PER_CONVERSATION, ApprovalRule.ALWAYS)]
    requested_at: str
    expires_at: str | None
    expires_in_ms: Limit
    can_remember: bool
    host: str
    description: str
    question: str


class Question(QuestionTerms):
    """A question about a call, and how it was decided; `decision` null = nobody has decided."""

    decision: str | None
    decided_at: str | None
    by: str
    reason: str
    remember: bool


class SubAgentQuestion(Question):
    """What a sub-agent asks that works for this conversation; `parent_tool_id` is the call that has set it to work."""

    turn_id: str
    conversation_id: str
    agent: str
    parent_turn_id: str
    parent_tool_id: str
    tool_id: str
    tool_name: str
    tool_title: str
    tool_server: str
    input: Any


class SubAgentTurn(TypedDict):
    """The turn of a sub-agent that a call has set to work; nobody waits for a detached one."""

    turn_id: str
    conversation_id: str
    agent: str
    status: Annotated[str, OneOf(*TurnStatus)]
    is_detached: bool


class CurrentTool(TypedDict):
    """A call that runs now, or waits."""

    tool_id: str
    tool_name: str
    status: Annotated[str, OneOf(*CallStatus)]
    elapsed_ms: Milliseconds
    timeout_ms: Limit
    timeout_source: str
    idle_timeout_ms: Limit
    waits_for: WaitsFor | None


class LimitChange(TypedDict):
    """Another limit that a running call got; `is_idle`: the one of its silence."""

    timeout_ms: Limit
    is_idle: bool
    changed_by: str


class OpenCall(CurrentTool):
    """A call as far as it has come; its title and server as in `tool_start`, its `tail` as in `tool_progress`."""

    turn_id: str
    tool_title: str
    tool_server: str
    allowed_earlier_by: str
    input: Any
    step: int
    position: int
    cancellable: bool
    interruptible: bool
    concurrency: str
    expected_ms: Limit
    asked_timeout_ms: Limit
    limit_changes: list[LimitChange]
    approval: Question | None
    message: str | None
    progress: float | None
    total: float | None
    tail: str | None
    sub_agent: SubAgentTurn | None


class Call(OpenCall):
    """A call; one that is over has its result, and all that `tool_result` says."""

    result: NotRequired[str]
    result_length: NotRequired[Characters]
    images: NotRequired[list[AttachmentContent]]
    is_error: NotRequired[bool]
    error_type: NotRequired[str | None]
    limit_reached: NotRequired[LimitReached | None]
    duration_ms: NotRequired[Limit]
    ended_by: NotRequired[EndedBy | None]
    disposition: NotRequired[str]
    late: NotRequired[Late | None]
