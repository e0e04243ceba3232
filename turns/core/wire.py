"""Objects inside events and snapshots, as clients see them. The protocol's page and the page's types are made from them."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict

from governance import ApprovalRule

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
    limit_reached: Annotated[str, OneOf("total", "idle", "turn", "approval")] | None
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
