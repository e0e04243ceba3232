"""The objects inside events and snapshots, as clients receive them. The documentation of the protocol and the types of
the chat page are generated from them.

The fields of a call are declared only here. Pydantic derives the schemas of snapshots and of the API from `Call`, and
the events of calls name the fields that they contain (`turns.core.events`). `turns.calls.serializers` fills a `Call`
from its row. The objects are typed dictionaries, because they are only rendered and never parsed, so that rows of older
versions can always be rendered.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict

from governance import ApprovalRule, CallStatus, Effects, Form
from turns.core.turns import ACTIVE_STATUSES, TurnStatus

Milliseconds = Annotated[int, Field(ge=0)]
Limit = Milliseconds | None
Characters = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True, init=False)
class OneOf:
    """Restricts a string to these values in the schema. Its type stays `str`, as in the database."""

    values: tuple[str, ...]

    def __init__(self, *values: str) -> None:
        object.__setattr__(self, "values", tuple(str(value) for value in values))

    def __get_pydantic_core_schema__(
        self, _source: Any, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.literal_schema(list(self.values))


LimitReached = Annotated[str, OneOf("total", "idle", "turn", "approval")]
Standing = Annotated[str, OneOf("asking", "parked", "working", "interrupted")]


class Argument(TypedDict):
    """An argument of a call, for display.

    A string is unchanged (`is_text`); any other value is JSON, with every digit that the tool receives.
    """

    name: str
    value: str
    is_text: bool


def arguments_of(input: Any) -> list[Argument]:
    """Return the arguments of a call, one by one. An input that is not an object is one argument without a name."""
    pairs = input.items() if isinstance(input, dict) else [("", input)]
    return [
        {"name": name, "value": value, "is_text": True}
        if isinstance(value, str)
        else {
            "name": name,
            "value": json.dumps(value, indent=2, ensure_ascii=False),
            "is_text": False,
        }
        for name, value in pairs
    ]


class AttachmentContent(TypedDict):
    """A file that a person has attached, or an image that the call `tool_use_id` has shown. Images include their size
    in pixels.
    """

    type: Annotated[str, OneOf("image", "document")]
    attachment_id: str
    name: str
    media_type: str
    size: Characters
    width: NotRequired[int]
    height: NotRequired[int]
    tool_use_id: NotRequired[str]


class WaitsFor(TypedDict):
    """The reason that a call waits. With the kind `call`, it waits for the end of the call `tool_id`. With `scope`, it
    waits for a free slot in its conversation, which has reached its limit of simultaneous calls. With `slot`, it waits
    for a free slot of the server, which has reached its own limit.
    """

    kind: Annotated[str, OneOf("call", "slot", "scope")]
    tool_id: str
    tool_name: str


class EndedBy(TypedDict):
    """Why a call or a turn ended. `by` is the name of the person who ended it, or empty if the
    system did.
    """

    reason: str
    source: str
    by: str


class Late(TypedDict):
    """The end of the body of an abandoned call: its `kind`, and the time since the call's result (`after_ms`)."""

    kind: str
    after_ms: Limit


class SubAgentReport(TypedDict):
    """The result of a sub-agent's turn. `html` is sanitised, and added when it is sent to a page."""

    turn_id: str
    conversation_id: str
    agent: str
    status: str
    text: str
    html: NotRequired[str]


class QuestionTerms(TypedDict):
    """A question to people about a call. If `expires_at` is null, there is no time limit. `question` is the tool's own
    text; if it is empty, the question is whether the call may run.
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
    """A question about a call, and its decision. `decision` is null until a person decides or the question ends."""

    decision: str | None
    decided_at: str | None
    by: str
    reason: str
    remember: bool


class SubAgentQuestion(Question):
    """A question of a sub-agent that works for this conversation.

    `parent_tool_id` is the call that started the sub-agent. `arguments` is the `input` for display.
    """

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
    arguments: list[Argument]


class CallForm(TypedDict):
    """A form that a running call shows the person, as its MCP server words it. If `expires_at` is null, there is no
    time limit.
    """

    question_id: str
    tool_title: str
    tool_server: str
    form: Form
    requested_at: str
    expires_at: str | None
    expires_in_ms: Limit


class SubAgentForm(CallForm):
    """A form of a sub-agent that works for this conversation; `parent_tool_id` is the call that started the sub-agent."""

    turn_id: str
    conversation_id: str
    agent: str
    parent_turn_id: str
    parent_tool_id: str
    tool_id: str
    tool_name: str


class SubAgentTurn(TypedDict):
    """The turn of a sub-agent that a call started. `is_detached` is true if the call does not wait for it."""

    turn_id: str
    conversation_id: str
    agent: str
    status: Annotated[str, OneOf(*TurnStatus)]
    is_detached: bool


class CurrentTool(TypedDict):
    """A call that is running or waiting."""

    tool_id: str
    tool_name: str
    status: Annotated[str, OneOf(*CallStatus)]
    elapsed_ms: Milliseconds
    timeout_ms: Limit
    timeout_source: str
    idle_timeout_ms: Limit
    waits_for: WaitsFor | None


class LimitChange(TypedDict):
    """A change to a running call's limit: to its idle limit if `is_idle`, otherwise to its total limit."""

    timeout_ms: Limit
    is_idle: bool
    changed_by: str


class OpenCall(CurrentTool):
    """A call that may still be open. `tool_title` and `tool_server` are as in `tool_start`, `tail` as in
    `tool_progress`.

    `arguments` is the `input` for display.
    """

    turn_id: str
    tool_title: str
    tool_server: str
    allowed_earlier_by: str
    input: Any
    arguments: list[Argument]
    step: int
    position: int
    cancellable: bool
    interruptible: bool
    concurrency: str
    expected_ms: Limit
    asked_timeout_ms: Limit
    limit_changes: list[LimitChange]
    approval: Question | None
    form: NotRequired[CallForm | None]
    message: str | None
    progress: float | None
    total: float | None
    tail: str | None
    sub_agent: SubAgentTurn | None


class CallEnd(TypedDict, total=False):
    """The fields that describe how a call ended; an open call lacks them.

    `result` is the beginning of a result of `result_length` characters; the full result has its own address. `images`
    are the images that the call has shown. `limit_reached` is the limit that ended it, if any.

    `effects` is `none` if the call never started, or if its tool has no side effects. It is `possible` if the tool has
    side effects, or if the call is not known to have ended. It is `cut` if the tool has side effects and the call was
    ended in the middle of them.
    """

    result: str
    result_length: Characters
    images: list[AttachmentContent]
    is_error: bool
    error_type: str | None
    limit_reached: LimitReached | None
    duration_ms: Limit
    ended_by: EndedBy | None
    disposition: str
    effects: Annotated[str, OneOf(*Effects)]
    late: Late | None


class Call(OpenCall, CallEnd):
    """A call; if it has ended, it includes its result and all fields of `tool_result`."""


def fields_of(call: Call, names: Iterable[str]) -> dict[str, Any]:
    """Return these fields of a call, in this order."""
    values = cast("Mapping[str, Any]", call)
    return {name: values[name] for name in names}


class TextContent(TypedDict):
    """Text; `sub_agent` is the report that it contains, if any."""

    type: Literal["text"]
    text: str
    sub_agent: NotRequired[SubAgentReport]


class Thoughts(TypedDict):
    """The model's reasoning before its answer, to the extent that the provider reveals it, and how long the reasoning
    took.
    """

    text: str
    duration_ms: Milliseconds


class ToolUseContent(TypedDict):
    """A tool call in a model's answer.

    `is_complete` is false if it was cut off; `title` is the tool's display name. `arguments` is the `input` for
    display, added when the message is sent.
    """

    type: Literal["tool_use"]
    id: str
    name: str
    title: NotRequired[str]
    input: Any
    arguments: NotRequired[list[Argument]]
    is_complete: NotRequired[bool]


class ToolResultContent(TypedDict):
    """The result of a tool call. `is_synthetic` is true if a repair added it."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str
    is_error: bool
    is_synthetic: NotRequired[bool]


class RepairedCall(TypedDict):
    """One repair; `tool_id` is empty if a message was repaired."""

    tool_id: str
    kind: str
    cause: str


class AuditedRepair(RepairedCall):
    """One repair, with its turn and time; `tool_id` is empty if a message was repaired."""

    turn_id: str | None
    at: str


class StoredMessage(TypedDict):
    """A finished message at its position; `html` is sanitised, and added when the message is sent.

    `thoughts` are the model's reasoning before it.
    """

    id: int
    turn_id: str
    position: int
    step: int
    role: Annotated[str, OneOf("user", "assistant")]
    content: list[TextContent | AttachmentContent | ToolUseContent]
    interrupted: bool
    at: str
    thoughts: NotRequired[Thoughts | None]
    html: NotRequired[str]


class HistoryMessage(TypedDict):
    """A message as the model reads it."""

    role: Annotated[str, OneOf("user", "assistant")]
    content: list[TextContent | AttachmentContent | ToolUseContent | ToolResultContent]


class History(TypedDict):
    """The history as the model reads it, which is always valid, and the repairs made in it."""

    messages: list[HistoryMessage]
    repairs: list[AuditedRepair]


class AnsweredCancelWord(TypedDict):
    """A cancel word (`said`) and the answer to it."""

    text: str
    said: str
    source: Annotated[str, OneOf("typed", "voice")]


class RunningTool(TypedDict):
    """A tool that a detached sub-agent is running."""

    tool_name: str
    tool_title: str


class BackgroundWork(TypedDict):
    """A detached sub-agent of this conversation; the conversation does not wait for it.

    `parent_turn_id` and `parent_tool_id` name the call of this conversation that led to it.
    """

    turn_id: str
    conversation_id: str
    agent: str
    status: Annotated[str, OneOf(*ACTIVE_STATUSES)]
    parent_turn_id: str
    parent_tool_id: str
    elapsed_ms: Milliseconds
    tools: list[RunningTool]


class Notice(TypedDict):
    """A notice in a turn: an `error` event without its number."""

    code: str
    message: str
    reason: NotRequired[str]
    wait_ms: NotRequired[Milliseconds]


class ActiveTurn(TypedDict):
    """A turn that has not ended."""

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
    """A turn that has not ended, with its calls.

    `partial_text` is the text of its unfinished message so far. If `ends_after_step` is true, a cancel was accepted
    that ends the turn after the current step. `usage` covers its steps so far.
    """

    user_message: str
    attachments: list[AttachmentContent]
    source: str
    client_id: str | None
    number: int
    version: int
    turn_timeout_ms: Limit
    calls: list[Call]
    partial_text: str
    notice: Notice | None
    prompt_change: str | None
    summary: str
    ends_after_step: bool
    usage: dict[str, int]


class TurnFacts(TypedDict):
    """A turn, and how it ended; `started` is false if it was cancelled before it began.

    `version` is the version of its message, which increases when the message is edited and sent again. `replaced_by` is
    the turn that replaced it in the history. `summary` is the text that the model read in it instead of the oldest
    messages. In `usage`, `context_tokens` is the number of tokens of the `context_window` that its last step used; both
    are missing if the model's window is unknown.
    """

    turn_id: str
    number: int
    version: int
    replaced_by: str | None
    agent: str
    status: Annotated[str, OneOf(*TurnStatus)]
    started: bool
    user_message: str
    attachments: list[AttachmentContent]
    source: str
    ended_by: EndedBy | None
    ended_by_reason: str
    ended_by_source: str
    error_code: str | None
    error_message: str | None
    prompt_change: str | None
    summary: str
    duration_ms: Limit
    usage: dict[str, int]


class EndedTurn(TurnFacts):
    """A turn that has ended; `notice` is the last notice that it showed.

    In `usage`, `context_tokens` is the number of tokens of the `context_window` that its last step used.
    """

    acknowledgements: list[AnsweredCancelWord]
    notice: Notice | None


class TurnWithCalls(ActiveTurn, EndedTurn):
    """An active or ended turn, with its calls."""

    calls: list[Call]


class Parked(TypedDict):
    """The time at which the conversation was parked, and the reason."""

    at: str
    reason: str


class Snapshot(TypedDict):
    """The conversation up to the event `seq`.

    It is sent after a `hello` without `after`, or if the log no longer reaches back to `after`. If `has_earlier` is
    true, `messages` does not begin with the first message; request earlier ones over HTTP.
    """

    type: Literal["snapshot"]
    seq: Annotated[int, Field(ge=0)]
    messages: list[StoredMessage]
    calls: list[Call]
    turns: list[EndedTurn]
    active_turns: list[LiveTurn]
    has_earlier: bool
    parked: Parked | None
