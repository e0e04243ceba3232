"""Events: facts of a turn under their names on the wire (V1). Numbered and dated by the log that stores them."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class EventType(StrEnum):
    """The names are the protocol's; `turn_queued`, `sub_agent` and those of a conversation are additions."""

    TURN_QUEUED = "turn_queued"
    TURN_START = "turn_start"
    TEXT_DELTA = "text_delta"
    MESSAGE = "message"
    TOOL_APPROVAL = "tool_approval"
    TOOL_DECISION = "tool_decision"
    TOOL_QUEUED = "tool_queued"
    TOOL_START = "tool_start"
    TOOL_PROGRESS = "tool_progress"
    TOOL_DEADLINE = "tool_deadline"
    TOOL_TIMEOUT = "tool_timeout"
    TOOL_RESULT = "tool_result"
    SUB_AGENT = "sub_agent"
    TURN_ABORT = "turn_abort"
    TURN_END = "turn_end"
    TOOL_SETTLED = "tool_settled"
    CANCEL_ACKNOWLEDGED = "cancel_acknowledged"
    HISTORY_REPAIRED = "history_repaired"
    CONVERSATION_PARKED = "conversation_parked"
    CONVERSATION_RESUMED = "conversation_resumed"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEvent:
    """One fact: its type and the fields beside `seq`, `turn_id` and `at`."""

    type: EventType
    payload: dict[str, Any] = field(default_factory=dict)


def milliseconds(seconds: float | None) -> int | None:
    """Return whole milliseconds, as the wire has them; None stays None."""
    return None if seconds is None else round(seconds * 1000)
