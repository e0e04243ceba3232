"""Events: facts of a turn under their names on the wire (V1). One class builds an event and describes it.

The log stores an event with its number and its time. The protocol's page, the API and the types of the chat page are made
from these classes. The events of tool calls are in `tool_events`.
"""

from dataclasses import MISSING, dataclass, fields
from functools import cache
from itertools import repeat
from typing import Annotated, Any, ClassVar, Literal, NotRequired

from typing_extensions import TypedDict

from governance import Cancellation
from turns.core.turns import TurnStatus
from turns.core.wire import (
    AttachmentContent,
    Limit,
    Milliseconds,
    OneOf,
    RepairedCall,
    SubAgentReport,
    TextContent,
    ToolUseContent,
)

EVENTS: dict[str, type["TurnEvent"]] = {}  # by their names on the wire


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
        names, may_be_left_out = _fields_of(type(self))  # type: ignore[arg-type]  # a class has a hash
        payload = dict(zip(names, map(getattr, repeat(self), names), strict=True))
        for name in may_be_left_out:
            if payload[name] is None:
                del payload[name]
        return payload


@cache
def _fields_of(event: type[TurnEvent]) -> tuple[list[str], list[str]]:
    """The fields of an event, and those of them that need not be there."""
    known = fields(event)
    return [field.name for field in known], [
        field.name for field in known if field.default is not MISSING
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnQueued(TurnEvent):
    """A message was taken and waits for its turn.

    With `replaces`, it takes the place of that turn's message, as this `version` of it. That turn and all behind it
    leave the history.
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
    attachments: list[AttachmentContent] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEvent(TurnEvent):
    """A finished message; `html` is sanitised, and added where it is sent. One that is `interrupted` was cut off."""

    type: ClassVar = "message"
    id: int
    step: int
    interrupted: bool
    role: Annotated[str, OneOf("user", "assistant")]
    content: list[TextContent | AttachmentContent | ToolUseContent]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEndsAfterStep(TurnEvent):
    """A cancel was accepted that lets the step at work end: no other begins. A snapshot's live turn has `ends_after_step`."""

    type: ClassVar = "turn_ends_after_step"
    reason: str
    source: str
    by: str | None


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
    """Something went wrong in a turn: a stable code and a sentence. With `wait_ms` the turn tries again after that, and goes on.

    `reason` is the part of the sentence that says why. A snapshot has it as the `notice` of its turn. A live turn has a
    notice until something else happens in it. A turn that is over has the last one that did not end it.
    """

    type: ClassVar = "error"
    code: str
    message: str
    reason: str = ""
    wait_ms: Limit = None


class TextDelta(TypedDict):
    """A piece of the streaming answer, counted in code points; not in the log. `offset` 0 replaces what you have.

    One that comes after the `message` of its `step` is late: ignore it.
    """

    type: Literal["text_delta"]
    turn_id: str
    at: NotRequired[str]
    text: str
    offset: Milliseconds
    step: NotRequired[int]


def milliseconds(seconds: float | None) -> int | None:
    """Return whole milliseconds, as the wire has them; None stays None."""
    return None if seconds is None else round(seconds * 1000)
