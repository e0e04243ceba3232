"""Events: facts of a turn under their names on the wire (V1). One class builds an event and describes it.

The log stores an event with its number and its time. The protocol's page, the API and the types of the chat page are made
from these classes.
"""

from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, NotRequired

from typing_extensions import TypedDict

from governance import ApprovalRule, Cancellation, Verdict
from turns.core.turns import TurnStatus
from turns.core.wire import (
    EndedBy,
    Late,
    Limit,
    LimitReached,
    Milliseconds,
    OneOf,
    RepairedCall,
    SubAgentReport,
    TextContent,
    ToolUseContent,
    WaitsFor,
)

EVENTS: dict[str, type["TurnEvent"]] = {}  # by their names on the wire, in the order of a turn


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEvent:
    """A fact of a turn, without what the log adds: `seq`, `turn_id` and `at`. A field that is None by default may be left out."""

    type: ClassVar[str]
    follows_end: ClassVar[bool] = False  # whether it may come after the turn's `turn_end`
    changes_status: ClassVar[bool] = False  # whether lists may show its conversation otherwise

    def __init_subclass__(cls) -> None:
        EVENTS[cls.type] = cls

    def payload(self) -> dict[str, Any]:
        """Return the fields as the log stores them."""
        return {
            field.name: value
            for field in fields(self)
            if (value := getattr(self, field.name)) is not None or field.default is MISSING
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnQueued(TurnEvent):
    """A message was taken and waits for its turn."""

    type: ClassVar = "turn_queued"
    changes_status: ClassVar = True
    user_message: str
    client_id: str | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart(TurnEvent):
    """A turn begins to run; `reports` are those of sub-agents that its agent gets with the message."""

    type: ClassVar = "turn_start"
    changes_status: ClassVar = True
    user_message: str
    client_id: str | None
    agent: str
    parent_turn_id: str | None
    turn_timeout_ms: Limit
    source: str
    reports: list[SubAgentReport]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEvent(TurnEvent):
    """A finished message; `html` is sanitised, and added where it is sent. One that is `interrupted` was cut off."""

    type: ClassVar = "message"
    id: int
    step: int
    interrupted: bool
    role: Annotated[str, OneOf("user", "assistant")]
    content: list[TextContent | ToolUseContent]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolApproval(TurnEvent):
    """A call waits for a person's decision; `input` is whole, `expires_at` null = it may take any time."""

    type: ClassVar = "tool_approval"
    changes_status: ClassVar = True
    tool_id: str
    tool_name: str
    input: Any
    expires_at: str | None
    expires_in_ms: Limit
    rule: Annotated[str, OneOf(ApprovalRule.ONCE_PER_CONVERSATION, ApprovalRule.ALWAYS)]
    can_remember: bool
    host: str
    description: str
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
    """A tool call begins to run; `timeout_ms` null or 0 = no limit, `idle_timeout_ms` null = it may be silent for any time.

    `expected_ms` is how long it takes as a rule; `asked_timeout_ms` what it asked for above its ceiling, 0 = no limit.
    Every call is `cancellable`; where it is not `interruptible`, a cancel stops waiting for it, and its work may go on.
    """

    type: ClassVar = "tool_start"
    tool_id: str
    tool_name: str
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
    """A call is alive: every 5 s, and when the tool itself says so."""

    type: ClassVar = "tool_progress"
    tool_id: str
    tool_name: str
    elapsed_ms: Milliseconds
    status: Annotated[str, OneOf("running")]
    progress: float | None = None
    total: float | None = None
    message: str | None = None


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
    """A call is over: exactly one for every call that started; `limit_reached` is the limit that has ended it, if one did."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettled(TurnEvent):
    """A call that was given up, and might still have been running, has ended after all; its result stays as it was.

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
    """A call has set a sub-agent to work, in a turn and a conversation of its own; a detached one is not waited for."""

    type: ClassVar = "sub_agent"
    tool_id: str
    agent: str
    child_turn_id: str
    child_conversation_id: str
    is_detached: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAbort(TurnEvent):
    """The turn is being ended before its time; `turn_end` follows. `descendants` turns of sub-agents end with it."""

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
    """The turn is over; no event of it follows."""

    type: ClassVar = "turn_end"
    changes_status: ClassVar = True
    status: Annotated[str, OneOf(*(status for status in TurnStatus if status.is_terminal))]
    duration_ms: Limit
    usage: dict[str, int]
    error_code: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelAcknowledged(TurnEvent):
    """Comes after the `turn_end` of what a cancel word has ended: `said` is the word, `text` the answer to it.

    It is shown in the conversation and is no message: no model reads it. A snapshot has it with its turn.
    """

    type: ClassVar = "cancel_acknowledged"
    follows_end: ClassVar = True
    text: str
    said: str
    source: Annotated[str, OneOf("typed", "voice")]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRepaired(TurnEvent):
    """The history had calls without a result, or results without a call; it was put right."""

    type: ClassVar = "history_repaired"
    follows_end: ClassVar = True
    repairs: list[RepairedCall]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationParked(TurnEvent):
    """Too many turns have ended with their process: no turn begins until a person lets the conversation go on."""

    type: ClassVar = "conversation_parked"
    changes_status: ClassVar = True
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationResumed(TurnEvent):
    """A person has let a parked conversation go on."""

    type: ClassVar = "conversation_resumed"
    changes_status: ClassVar = True
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnError(TurnEvent):
    """Something went wrong in a turn: a stable code and a sentence; with `wait_ms` the turn tries again after that, and goes on.

    `reason` is the part of the sentence that says why. A snapshot has it as the `notice` of its turn: of a live turn
    as long as nothing else has happened in it, of one that is over the last one that did not end it.
    """

    type: ClassVar = "error"
    code: str
    message: str
    reason: str = ""
    wait_ms: Limit = None


class TextDelta(TypedDict):
    """A piece of the streaming answer, counted in code points; not in the log. `offset` 0 replaces what you have."""

    type: Literal["text_delta"]
    turn_id: str
    at: NotRequired[str]
    text: str
    offset: Milliseconds


def milliseconds(seconds: float | None) -> int | None:
    """Return whole milliseconds, as the wire has them; None stays None."""
    return None if seconds is None else round(seconds * 1000)
