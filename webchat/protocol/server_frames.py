"""Frames that the server sends: their shapes, for the code that builds them and for the JSON Schemas of the docs.

Events come from turns as plain objects; here they are described, not built. Fields may be added, never renamed.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from webchat.protocol.constants import PROTOCOL_VERSION
from webchat.protocol.frame_parts import EndedBy, Late, Limit, Milliseconds, WaitsFor

Outcome = Literal["accepted", "already_finished", "not_found", "denied", "not_cancellable"]
Seq = Annotated[int, Field(ge=0)]


class Frame(BaseModel):
    """What every frame of the server has: a `type`."""

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)


class Welcome(Frame):
    """The answer to `hello`: what the log has, and who the server takes you for."""

    type: Literal["welcome"] = "welcome"
    protocol: int = PROTOCOL_VERSION
    server_version: str
    last_seq: Seq
    user: str


class Snapshot(Frame):
    """The whole conversation: after `hello` without `after`, or when the log no longer reaches back to it."""

    type: Literal["snapshot"] = "snapshot"
    seq: Seq
    messages: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    turns: list[dict[str, Any]]
    active_turns: list[dict[str, Any]]
    has_earlier: bool
    parked: dict[str, Any] | None


class MessageResult(Frame):
    """One for every `message`: its turn; or, `cancelled`, the turn that it ended as a cancel word."""

    type: Literal["message_result"] = "message_result"
    client_id: str
    turn_id: str
    cancelled: bool


class OpResult(Frame):
    """One for every `op_id`; the same one for a repeated `op_id`."""

    type: Literal["op_result"] = "op_result"
    op_id: str
    outcome: Outcome


class Heartbeat(Frame):
    """Every 15 s, and as the answer to `ping`: the last event of the log and the turns that are not over."""

    type: Literal["heartbeat"] = "heartbeat"
    last_seq: Seq
    active: list[str]


class Overview(Frame):
    """What goes on elsewhere, whole, whenever it has changed; forget it with a new `welcome`.

    `conversations`: your other conversations that are not at rest, `standing` as `asking`, `parked`, `working` or
    `interrupted`; `asked_in` names the conversation of each of their open questions. `questions`: what sub-agents ask that
    work for this conversation; decide with `decide_tool`, the `turn_id` and the `tool_id` of the question. `latest`: the
    `conversation_id` and `title` of your conversation in which something has happened last, this one included; one that
    you do not know, or by another title, tells you to list them again.
    """

    type: Literal["overview"] = "overview"
    conversations: list[dict[str, Any]]
    questions: list[dict[str, Any]]
    latest: dict[str, Any] | None = None


class Problem(Frame):
    """Your frame had no effect: why, and which frame it was where that is known."""

    type: Literal["error"] = "error"
    code: str
    message: str
    client_id: str | None = None
    op_id: str | None = None


class TextDelta(Frame):
    """A piece of the streaming answer, counted in code points; not in the log. `offset` 0 replaces what you have."""

    type: Literal["text_delta"] = "text_delta"
    turn_id: str
    text: str
    offset: Annotated[int, Field(ge=0)]


class Event(Frame):
    """What every event has: its number in the conversation's log, its turn, its time."""

    seq: Annotated[int, Field(ge=1)]
    turn_id: str
    at: str


class TurnQueued(Event):
    """A message was taken and waits for its turn."""

    type: Literal["turn_queued"]
    user_message: str
    client_id: str | None
    source: str


class TurnStart(Event):
    """A turn begins to run; `reports` are those of sub-agents that its agent gets with the message."""

    type: Literal["turn_start"]
    user_message: str
    agent: str
    parent_turn_id: str | None
    turn_timeout_ms: Limit
    source: str
    reports: list[dict[str, Any]]


class MessageEvent(Event):
    """A finished message; `html` is sanitised. One that is `interrupted` was cut off."""

    type: Literal["message"]
    id: int
    step: int
    interrupted: bool
    role: Literal["user", "assistant"]
    content: list[dict[str, Any]]
    html: str


class ToolApproval(Event):
    """A call waits for a person's decision; `input` is whole, `expires_at` null = it may take any time."""

    type: Literal["tool_approval"]
    tool_id: str
    tool_name: str
    input: Any
    expires_at: str | None
    expires_in_ms: Limit
    rule: Literal["once_per_conversation", "always"]
    can_remember: bool
    host: str
    description: str
    requested_at: str
    position: int


class ToolDecision(Event):
    """A question was decided; `remember` = it lets the tool's later calls of this conversation through, too."""

    type: Literal["tool_decision"]
    tool_id: str
    decision: Literal["approved", "denied", "expired"]
    by: str
    reason: str
    remember: bool


class ToolQueued(Event):
    """A call has waited for half a second, and for what; again when it waits for something else. Empty names name no call.

    An exclusive call runs alone in its conversation: it waits for the others, and they wait for it.
    """

    type: Literal["tool_queued"]
    tool_id: str
    tool_name: str
    waits_for: WaitsFor
    concurrency: str


class ToolStart(Event):
    """A tool call begins to run; `timeout_ms` null or 0 = no limit, `idle_timeout_ms` null = it may be silent for any time.

    `expected_ms` is how long it takes as a rule; `asked_timeout_ms` what it asked for above its ceiling, 0 = no limit.
    Every call is `cancellable`; where it is not `interruptible`, a cancel stops waiting for it, and its work may go on.
    """

    type: Literal["tool_start"]
    tool_id: str
    tool_name: str
    input: Any
    timeout_ms: Limit
    timeout_source: str
    idle_timeout_ms: Limit
    cancellable: bool
    concurrency: str
    position: int
    expected_ms: Limit = None
    asked_timeout_ms: Limit = None
    interruptible: bool = True


class ToolProgress(Event):
    """A call is alive: every 5 s, and when the tool itself says so."""

    type: Literal["tool_progress"]
    tool_id: str
    tool_name: str
    elapsed_ms: Milliseconds
    status: Literal["running"]
    progress: float | None = None
    total: float | None = None
    message: str | None = None


class ToolDeadline(Event):
    """A running call got another limit, idle limit, or both: both as they are now."""

    type: Literal["tool_deadline"]
    tool_id: str
    timeout_ms: Limit
    timeout_source: str
    idle_timeout_ms: Limit
    changed_by: str


class ToolTimeout(Event):
    """A call reached a limit of its own; its `tool_result` follows. `timeout_ms` is the one that `limit_reached` names."""

    type: Literal["tool_timeout"]
    tool_id: str
    tool_name: str
    timeout_ms: Limit
    limit_reached: Literal["total", "idle"] | None


class ToolResult(Event):
    """A call is over: exactly one for every call that started; `limit_reached` is the limit that has ended it, if one did."""

    type: Literal["tool_result"]
    tool_id: str
    tool_name: str
    result: str
    is_error: bool
    error_type: str | None
    status: str
    limit_reached: Literal["total", "idle", "turn", "approval"] | None
    duration_ms: Limit
    ended_by: EndedBy | None
    disposition: str
    late: Late | None


class ToolSettled(Event):
    """A call that was given up, and might still have been running, has ended after all; its result stays as it was.

    `kind`: `returned`, `raised`, `cancelled`, or `process_ended`, with the process that ran it. It may come after `turn_end`.
    """

    type: Literal["tool_settled"]
    tool_id: str
    tool_name: str
    status: str
    kind: str
    after_ms: Limit


class SubAgent(Event):
    """A call has set a sub-agent to work, in a turn and a conversation of its own; a detached one is not waited for."""

    type: Literal["sub_agent"]
    tool_id: str
    agent: str
    child_turn_id: str
    child_conversation_id: str
    is_detached: bool


class TurnAbort(Event):
    """The turn is being ended before its time; `turn_end` follows. `descendants` turns of sub-agents end with it."""

    type: Literal["turn_abort"]
    reason: str
    source: str
    by: str | None
    descendants: int = 0


class TurnEnd(Event):
    """The turn is over; no event of it follows."""

    type: Literal["turn_end"]
    status: Literal["completed", "cancelled", "failed", "timed_out", "interrupted"]
    duration_ms: Limit
    usage: dict[str, Any]
    error_code: str | None


class CancelAcknowledged(Event):
    """Comes after the `turn_end` of what a cancel word has ended: `said` is the word, `text` the answer to it.

    It is shown in the conversation and is no message: no model reads it. A snapshot has it with its turn.
    """

    type: Literal["cancel_acknowledged"]
    text: str
    said: str
    source: Literal["typed", "voice"]


class HistoryRepaired(Event):
    """The history had calls without a result, or results without a call; it was put right."""

    type: Literal["history_repaired"]
    repairs: list[dict[str, Any]]


class ConversationParked(Event):
    """Too many turns have ended with their process: no turn begins until a person lets the conversation go on."""

    type: Literal["conversation_parked"]
    reason: str


class ConversationResumed(Event):
    """A person has let a parked conversation go on."""

    type: Literal["conversation_resumed"]
    by: str


class TurnError(Event):
    """Something went wrong in a turn: a stable code and a sentence; with `wait_ms` the turn tries again after that, and goes on.

    `reason` is the part of the sentence that says why. A snapshot has it as the `notice` of its turn: of a live turn
    as long as nothing else has happened in it, of one that is over the last one that did not end it.
    """

    type: Literal["error"]
    code: str
    message: str
    reason: str = ""
    wait_ms: Limit = None


ANSWERS = (Welcome, Snapshot, MessageResult, OpResult, Heartbeat, Overview, Problem, TextDelta)
EVENTS = (
    TurnQueued,
    TurnStart,
    MessageEvent,
    ToolApproval,
    ToolDecision,
    ToolQueued,
    ToolStart,
    ToolProgress,
    ToolDeadline,
    ToolTimeout,
    ToolResult,
    ToolSettled,
    SubAgent,
    TurnAbort,
    TurnEnd,
    CancelAcknowledged,
    HistoryRepaired,
    ConversationParked,
    ConversationResumed,
    TurnError,
)
SERVER_FRAMES = (*ANSWERS, *EVENTS)


def type_of(frame: type[Frame]) -> str:
    """Return the name of a frame on the wire."""
    name: str = frame.model_fields["type"].annotation.__args__[0]  # type: ignore[union-attr]  # always a Literal
    return name
