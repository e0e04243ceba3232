"""The events of a turn, under their names on the wire (V1). Each class describes and builds one kind of event.

The log stores an event with its number and its time. The documentation of the protocol, the schemas of the API and the
types of the chat page are generated from these classes. The events of turns come first, followed by those of tool
calls, from the question whether a call may run to its late end.
"""

from dataclasses import MISSING, dataclass, fields
from functools import cache
from itertools import repeat
from typing import Annotated, Any, ClassVar, Literal, NotRequired, get_type_hints

from typing_extensions import TypedDict

from governance import ApprovalRule, Cancellation, Form, Verdict
from turns.core.prompt_changes import PromptChange
from turns.core.turns import TurnStatus
from turns.core.wire import (
    AttachmentContent,
    Call,
    Limit,
    Milliseconds,
    OneOf,
    RepairedCall,
    SubAgentReport,
    TextContent,
    Thoughts,
    ToolUseContent,
    WaitsFor,
    fields_of,
)

EVENTS: dict[str, type["TurnEvent"]] = {}  # the classes by the names of their events on the wire


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEvent:
    """Something that happened in a turn. The log adds `seq`, `turn_id` and `at`. Fields that are None by default are
    optional.
    """

    type: ClassVar[str]
    follows_end: ClassVar[bool] = False  # whether the event may come after the turn's `turn_end`
    changes_status: ClassVar[bool] = False  # whether lists may show its conversation differently

    def __init_subclass__(cls) -> None:
        if "type" in cls.__dict__:  # otherwise, it is a base class
            EVENTS[cls.type] = cls

    @classmethod
    def field_types(cls) -> dict[str, tuple[Any, Any]]:
        """Return the type and the default of each field, in the form that pydantic's `create_model` accepts."""
        hints = get_type_hints(cls, include_extras=True)
        return {
            field.name: (hints[field.name], ... if field.default is MISSING else field.default)
            for field in fields(cls)
        }

    def payload(self) -> dict[str, Any]:
        """Return the fields as the log stores them."""
        names, may_be_left_out = _fields_of(type(self))  # type: ignore[arg-type]  # a class has a hash
        payload = dict(zip(names, map(getattr, repeat(self), names), strict=True))
        for name in may_be_left_out:
            if payload[name] is None:
                del payload[name]
        return payload


@cache
def _fields_of(event: type[TurnEvent]) -> tuple[list[str], list[str]]:
    """Return the names of all fields of an event, and the names of the optional ones."""
    names = [field.name for field in fields(event)]
    return names, [field.name for field in fields(event) if field.default is not MISSING]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnQueued(TurnEvent):
    """A message was accepted and its turn is queued.

    With `replaces`, the message is a new `version` of the message of that turn. The replaced turn and all later ones
    are dropped from the history.
    """

    type: ClassVar = "turn_queued"
    changes_status: ClassVar = True
    user_message: str
    client_id: str | None
    source: str
    replaces: str | None = None
    version: int = 1
    attachments: list[AttachmentContent] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart(TurnEvent):
    """A turn starts; `reports` are the sub-agents' reports that its agent receives with the message."""

    type: ClassVar = "turn_start"
    changes_status: ClassVar = True
    user_message: str
    client_id: str | None
    agent: str
    parent_turn_id: str | None
    turn_timeout_ms: Limit
    source: str
    reports: list[SubAgentReport]
    attachments: list[AttachmentContent] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEvent(TurnEvent):
    """A finished message; `html` is sanitised, and added when the message is sent.

    An `interrupted` message was cut off. `thoughts` are the model's reasoning before it. A message with calls has
    the `usage` of its turn so far, in the same form as in an `EndedTurn`.
    """

    type: ClassVar = "message"
    id: int
    step: int
    interrupted: bool
    role: Annotated[str, OneOf("user", "assistant")]
    content: list[TextContent | AttachmentContent | ToolUseContent]
    thoughts: Thoughts | None = None
    usage: dict[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEndsAfterStep(TurnEvent):
    """A cancel was accepted that ends the turn after the current step.

    In a snapshot, `ends_after_step` of the live turn is then true.
    """

    type: ClassVar = "turn_ends_after_step"
    reason: str
    source: str
    by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAbort(TurnEvent):
    """The turn is being ended early; `turn_end` follows.

    `descendants` is the number of sub-agents' turns that end with it.
    """

    type: ClassVar = "turn_abort"
    changes_status: ClassVar = True
    reason: str
    source: str
    by: str | None
    descendants: int = 0

    @classmethod
    def of(cls, cancellation: Cancellation, *, descendants: int = 0) -> "TurnAbort":
        """Return the event of a turn that is cancelled for this reason."""
        return cls(
            reason=cancellation.reason.value,
            source=cancellation.source.value,
            by=cancellation.by,
            descendants=descendants,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd(TurnEvent):
    """The turn has ended. `usage` is the same as in an `EndedTurn`."""

    type: ClassVar = "turn_end"
    changes_status: ClassVar = True
    status: Annotated[str, OneOf(*(status for status in TurnStatus if status.is_terminal))]
    duration_ms: Limit
    usage: dict[str, int]
    error_code: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelAcknowledged(TurnEvent):
    """The answer to a cancel word, sent after the `turn_end` of the turn that the word ended.

    `said` is the word, `text` the answer. The conversation shows both, but they are not messages, and no model
    reads them. A snapshot lists them in the `acknowledgements` of the turn.
    """

    type: ClassVar = "cancel_acknowledged"
    follows_end: ClassVar = True
    text: str
    said: str
    source: Annotated[str, OneOf("typed", "voice")]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRepaired(TurnEvent):
    """The history had calls without a result, or results without a call, and was repaired."""

    type: ClassVar = "history_repaired"
    follows_end: ClassVar = True
    repairs: list[RepairedCall]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptChanged(TurnEvent):
    """The model reads the whole conversation again in this turn, because content that it had read before has changed.

    With the reasons `clear`, `summary` and `cut`, the model no longer reads some old results or messages, because
    they do not fit into its context window. The conversation still contains them. `summary` is the text that the
    model reads instead of the oldest messages. In a snapshot, the turn's `prompt_change` is the reason, and its
    `summary` is this text.
    """

    type: ClassVar = "prompt_changed"
    reason: Annotated[str, OneOf(*PromptChange)]
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationParked(TurnEvent):
    """Too many turns died with their process, so no turn starts until a person resumes the conversation."""

    type: ClassVar = "conversation_parked"
    changes_status: ClassVar = True
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationResumed(TurnEvent):
    """A person has resumed a parked conversation."""

    type: ClassVar = "conversation_resumed"
    changes_status: ClassVar = True
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnError(TurnEvent):
    """An error in a turn, with a stable code and a sentence.

    With `wait_ms`, the request to the chat model is repeated after that time, and the turn continues. `reason` is the
    part of the sentence that gives the reason. A snapshot shows the event as the turn's `notice`. A live turn keeps it
    until the turn's next event. An ended turn without an `error_code` shows its last `error` without `wait_ms`.
    """

    type: ClassVar = "error"
    code: str
    message: str
    reason: str = ""
    wait_ms: Limit = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEvent(TurnEvent):
    """An event with fields of a call. `call_fields` names these fields of `wire.Call`, in their order on the wire."""

    call_fields: ClassVar[tuple[str, ...]]
    call: Call

    @classmethod
    def field_types(cls) -> dict[str, tuple[Any, Any]]:
        hints = get_type_hints(Call, include_extras=True)
        return {name: (hints[name], ...) for name in cls.call_fields}

    def payload(self) -> dict[str, Any]:
        return fields_of(self.call, self.call_fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolApproval(TurnEvent):
    """A call waits for a person's decision.

    The `input` is complete. If `expires_at` is null, there is no time limit. `arguments` is the `input` for
    display; here and in `tool_start`, it is added when the event is sent.
    """

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
    """A question was decided. If `remember` is true, the tool's later calls in this conversation are allowed too."""

    type: ClassVar = "tool_decision"
    changes_status: ClassVar = True
    tool_id: str
    decision: Annotated[str, OneOf(Verdict.APPROVED, Verdict.DENIED, Verdict.EXPIRED)]
    by: str
    reason: str
    remember: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolQuestion(TurnEvent):
    """A running call asks the person to fill in a form; until then, its clocks are paused. Answer with `answer_tool`.

    The texts of the `form` come from the MCP server `tool_server`, so do not trust them.
    """

    type: ClassVar = "tool_question"
    changes_status: ClassVar = True
    tool_id: str
    tool_name: str
    tool_title: str
    tool_server: str
    question_id: str
    form: Form
    requested_at: str
    expires_at: str | None
    expires_in_ms: Limit


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer(TurnEvent):
    """A form of a running call was closed: a person accepted or declined it, or neither happened (`cancel`).

    `by` is empty if no person closed it. The event does not contain the answers.
    """

    type: ClassVar = "tool_answer"
    changes_status: ClassVar = True
    tool_id: str
    tool_name: str
    question_id: str
    action: Annotated[str, OneOf("accept", "decline", "cancel")]
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolQueued(TurnEvent):
    """A call has waited for half a second; `waits_for` is the reason. The event is sent again when the reason changes.

    In `waits_for`, `tool_id` and `tool_name` are empty unless the call waits for another call. An exclusive call
    runs alone in its conversation: it waits for the others, and they wait for it.
    """

    type: ClassVar = "tool_queued"
    tool_id: str
    tool_name: str
    waits_for: WaitsFor
    concurrency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStart(CallEvent):
    """A tool call starts.

    If `timeout_ms` is null or 0, the call has no total limit; if `idle_timeout_ms` is null, it has no idle limit.
    `tool_title` is the tool's display name, and `tool_server` is its MCP server; either may be empty.
    `allowed_earlier_by` is the person who had already allowed the tool for the conversation, so that no question was
    necessary. `expected_ms` is the usual duration of the tool. If the ceiling capped the limit that the call
    requested, `asked_timeout_ms` is the requested limit; 0 means that the call requested no limit. Every call is
    `cancellable`. If a call is not `interruptible`, a cancel only ends the wait for it, and its work may continue.
    """

    type: ClassVar = "tool_start"
    call_fields: ClassVar = (
        "tool_id", "tool_name", "tool_title", "tool_server", "allowed_earlier_by", "input", "timeout_ms",
        "timeout_source", "idle_timeout_ms", "cancellable", "concurrency", "position", "expected_ms",
        "asked_timeout_ms", "interruptible",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgress(TurnEvent):
    """A sign that a call is alive, sent every 5 s and when the tool reports progress.

    `tail` contains the last lines of the call's output so far.
    """

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
    """The total limit of a running call, its idle limit, or both were changed.

    The event contains both current values.
    """

    type: ClassVar = "tool_deadline"
    tool_id: str
    timeout_ms: Limit
    timeout_source: str
    idle_timeout_ms: Limit
    changed_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTimeout(TurnEvent):
    """A call reached one of its own limits; its `tool_result` follows.

    `timeout_ms` is the limit that `limit_reached` names.
    """

    type: ClassVar = "tool_timeout"
    tool_id: str
    tool_name: str
    timeout_ms: Limit
    limit_reached: Annotated[str, OneOf("total", "idle")] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(CallEvent):
    """A call has ended. The event is sent exactly once for each call, even if the call never started.

    `limit_reached` is the limit that ended it, if any. `timeout_source` is the source of its total limit; `hint` and
    `argument` mean that the agent requested it. `result` is the beginning of a result of `result_length` characters;
    the full result has its own address. `images` are the images that the call has shown. `effects` is `none` if the
    call never started, or if its tool has no side effects. It is `possible` if the tool has side effects, or if the
    call is not known to have ended. It is `cut` if the tool has side effects and the call was ended in the middle of
    them.
    """

    type: ClassVar = "tool_result"
    changes_status: ClassVar = True
    call_fields: ClassVar = (
        "tool_id", "tool_name", "step", "position", "result", "is_error", "error_type", "status", "limit_reached",
        "duration_ms", "ended_by", "disposition", "effects", "late", "result_length", "images", "timeout_source",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettled(TurnEvent):
    """The body of a call has ended after the call was abandoned. The call's result does not change.

    `kind` says how the body ended: it `returned`, `raised` or was `cancelled`, or it ended with its process
    (`process_ended`). This event can follow `turn_end`.
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
    """A call has started a sub-agent, in a separate turn and conversation.

    The call does not wait for a detached sub-agent.
    """

    type: ClassVar = "sub_agent"
    tool_id: str
    agent: str
    child_turn_id: str
    child_conversation_id: str
    is_detached: bool


class TextDelta(TypedDict):
    """A piece of the streaming answer; `offset` is its position in code points. The log does not contain such pieces.

    A piece with `offset` 0 replaces the text that you have. Ignore a piece that arrives after the `message` of its
    `step`, because the message contains it.
    """

    type: Literal["text_delta"]
    turn_id: str
    at: NotRequired[str]
    text: str
    offset: Milliseconds
    step: NotRequired[int]


class ThoughtDelta(TypedDict):
    """A piece of the model's reasoning; `offset` is its position in code points. The log does not contain such pieces.

    A piece with `offset` 0 replaces the reasoning that you have. The `message` of its `step` contains the whole
    reasoning. Pieces are not repeated, so a client that connects later receives only later pieces.
    """

    type: Literal["thought_delta"]
    turn_id: str
    at: NotRequired[str]
    text: str
    offset: Milliseconds
    step: int


def milliseconds(seconds: float | None) -> int | None:
    """Return the seconds as whole milliseconds, the unit of events; None stays None."""
    return None if seconds is None else round(seconds * 1000)
