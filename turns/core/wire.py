"""Objects inside events and snapshots, as clients see them. The protocol's page and the page's types are made from them."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict

from governance import ApprovalRule, CallStatus
from turns.core.turns import TurnStatus

Milliseconds = Annotated[int, Field(ge=0)]
Limit = Milliseconds | None


@dataclass(frozen=True, slots=True, init=False)
class OneOf:
    """Marks a text that has one of these values, for the schema; a row of the database gives it as a plain `str`."""

    values: tuple[str, ...]

    def __init__(self, *values: str) -> None:
        object.__setattr__(self, "values", tuple(str(value) for value in values))

    def __get_pydantic_core_schema__(
        self, _source: Any, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Describe the values."""
        return core_schema.literal_schema(list(self.values))


LimitReached = Annotated[str, OneOf("total", "idle", "turn", "approval")]
Standing = Annotated[str, OneOf("asking", "parked", "working", "interrupted")]


class WaitsFor(TypedDict):
    """`call`: until the call `tool_id` has ended; `scope`: its conversation runs as many calls as it may; `slot`: so does the server."""

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
    """How a call ended; `limit_reached` is the limit that has ended it, if one did."""

    result: str
    is_error: bool
    error_type: str | None
    status: str
    limit_reached: LimitReached | None
    duration_ms: Limit
    ended_by: EndedBy | None
    disposition: str
    late: Late | None


class SubAgentReport(TypedDict):
    """What the turn of a sub-agent has come to; `html` is sanitised, and added where it is sent to a page."""

    turn_id: str
    conversation_id: str
    agent: str
    status: str
    text: str
    html: NotRequired[str]


class TextContent(TypedDict):
    """Something said in words; `sub_agent`: the report that the words pass on."""

    type: Literal["text"]
    text: str
    sub_agent: NotRequired[SubAgentReport]


class ToolUseContent(TypedDict):
    """A tool call that a model asked for; `is_complete` is false where it was cut off."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: Any
    is_complete: NotRequired[bool]


class ToolResultContent(TypedDict):
    """What a tool call came to; `is_synthetic`: repair put it in."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str
    is_error: bool
    is_synthetic: NotRequired[bool]


class QuestionTerms(TypedDict):
    """What people are asked about a call; `expires_at` null = it may take any time."""

    rule: Annotated[str, OneOf(ApprovalRule.ONCE_PER_CONVERSATION, ApprovalRule.ALWAYS)]
    requested_at: str
    expires_at: str | None
    expires_in_ms: Limit
    can_remember: bool
    host: str
    description: str


class SaidAndAnswered(TypedDict):
    """A cancel word and the answer to it."""

    text: str
    said: str
    source: Annotated[str, OneOf("typed", "voice")]


class RepairedCall(TypedDict):
    """One thing that was put right; `tool_id` is empty where it was a message."""

    tool_id: str
    kind: str
    cause: str


class AuditedRepair(RepairedCall):
    """One thing that was put right, in which turn and when."""

    turn_id: str | None
    at: str


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


class OpenCall(CurrentTool):
    """A call as far as it has come."""

    turn_id: str
    input: Any
    step: int
    position: int
    cancellable: bool
    interruptible: bool
    concurrency: str
    expected_ms: Limit
    asked_timeout_ms: Limit
    approval: Question | None
    message: str | None
    progress: float | None
    total: float | None
    sub_agent: SubAgentTurn | None


class Call(OpenCall):
    """A call; one that is over has its result, and all that `tool_result` says."""

    result: NotRequired[str]
    is_error: NotRequired[bool]
    error_type: NotRequired[str | None]
    limit_reached: NotRequired[LimitReached | None]
    duration_ms: NotRequired[Limit]
    ended_by: NotRequired[EndedBy | None]
    disposition: NotRequired[str]
    late: NotRequired[Late | None]


class Notice(TypedDict):
    """What people were told in a turn: an `error` event without its number."""

    code: str
    message: str
    reason: NotRequired[str]
    wait_ms: NotRequired[Milliseconds]


class ActiveTurn(TypedDict):
    """A turn that is not over."""

    turn_id: str
    conversation_id: str
    agent: str
    started_at: str | None
    elapsed_ms: Milliseconds
    status: Annotated[str, OneOf(*TurnStatus)]
    tool_call_count: int
    current_tools: list[CurrentTool]
    parent_turn_id: str | None
    owner: str | None


class LiveTurn(ActiveTurn):
    """A turn that is not over, with its calls and the text so far of its unfinished message."""

    user_message: str
    source: str
    client_id: str | None
    number: int
    turn_timeout_ms: Limit
    calls: list[Call]
    partial_text: str
    notice: Notice | None


class TurnFacts(TypedDict):
    """What a turn is, and how it ended; `started` is false where it was cancelled before it began."""

    turn_id: str
    number: int
    status: Annotated[str, OneOf(*TurnStatus)]
    started: bool
    user_message: str
    source: str
    ended_by: EndedBy | None
    ended_by_reason: str
    ended_by_source: str
    error_code: str | None
    error_message: str | None
    duration_ms: Limit
    usage: dict[str, int]


class EndedTurn(TurnFacts):
    """A turn that is over; `notice` is the last thing that people were told in it."""

    acknowledgements: list[SaidAndAnswered]
    notice: Notice | None


class TurnWithCalls(ActiveTurn, EndedTurn):
    """A turn at any time, with its calls."""

    calls: list[Call]


class StoredMessage(TypedDict):
    """A finished message at its place; `html` is sanitised, and added where it is sent."""

    id: int
    turn_id: str
    position: int
    step: int
    role: Annotated[str, OneOf("user", "assistant")]
    content: list[TextContent | ToolUseContent]
    interrupted: bool
    at: str
    html: NotRequired[str]


class HistoryMessage(TypedDict):
    """A message as the model reads it."""

    role: Annotated[str, OneOf("user", "assistant")]
    content: list[TextContent | ToolUseContent | ToolResultContent]


class History(TypedDict):
    """What the model reads, always valid, and what was repaired in it."""

    messages: list[HistoryMessage]
    repairs: list[AuditedRepair]


class Parked(TypedDict):
    """Since when no turn begins, and why."""

    at: str
    reason: str


class Snapshot(TypedDict):
    """The whole conversation: after `hello` without `after`, or when the log no longer reaches back to it."""

    type: Literal["snapshot"]
    seq: Annotated[int, Field(ge=0)]
    messages: list[StoredMessage]
    calls: list[Call]
    turns: list[EndedTurn]
    active_turns: list[LiveTurn]
    has_earlier: bool
    parked: Parked | None
