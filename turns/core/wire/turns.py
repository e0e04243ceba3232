"""Turns and conversations as clients see them."""

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.core.wire.attachments import AttachmentContent
from turns.core.wire.calls import Call, CurrentTool, EndedBy
from turns.core.wire.fields import Limit, Milliseconds, OneOf
from turns.core.wire.messages import StoredMessage


class AnsweredCancelWord(TypedDict):
    """A cancel word and the answer to it."""

    text: str
    said: str
    source: Annotated[str, OneOf("typed", "voice")]


class RunningTool(TypedDict):
    """A tool that runs now."""

    tool_name: str
    tool_title: str


class BackgroundWork(TypedDict):
    """A sub-agent that works for this conversation while nothing there waits for it.

    `parent_turn_id` and `parent_tool_id` name the call of this conversation that has led to it.
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
    """A turn that is not over, with its calls and the text so far of its unfinished message.

    `ends_after_step`: a cancel was accepted that lets the step at work end, and no other begins.
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
    ends_after_step: bool


class TurnFacts(TypedDict):
    """What a turn is, and how it ended; `started` is false where it was cancelled before it began.

    `version` counts how often its message was edited and sent again. `replaced_by` is the turn that has taken it out of the
    history.
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
    duration_ms: Limit
    usage: dict[str, int]


class EndedTurn(TurnFacts):
    """A turn that is over; `notice` is the last thing that people were told in it."""

    acknowledgements: list[AnsweredCancelWord]
    notice: Notice | None


class TurnWithCalls(ActiveTurn, EndedTurn):
    """A turn at any time, with its calls."""

    calls: list[Call]


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
