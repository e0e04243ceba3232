"""Messages as clients see them, block by block, and the history that a chat model reads."""

from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict

from turns.core.wire.attachments import AttachmentContent
from turns.core.wire.calls import SubAgentReport
from turns.core.wire.fields import OneOf


class TextContent(TypedDict):
    """Something said in words; `sub_agent`: the report that the words pass on."""

    type: Literal["text"]
    text: str
    sub_agent: NotRequired[SubAgentReport]


class ToolUseContent(TypedDict):
    """A tool call that a model asked for. `is_complete` is false where it was cut off, `title` the tool's word for people."""

    type: Literal["tool_use"]
    id: str
    name: str
    title: NotRequired[str]
    input: Any
    is_complete: NotRequired[bool]


class ToolResultContent(TypedDict):
    """What a tool call came to; `is_synthetic`: repair put it in."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str
    is_error: bool
    is_synthetic: NotRequired[bool]


class RepairedCall(TypedDict):
    """One thing that was put right; `tool_id` is empty where it was a message."""

    tool_id: str
    kind: str
    cause: str


class AuditedRepair(RepairedCall):
    """One thing that was put right, in which turn and when."""

    turn_id: str | None
    at: str


class StoredMessage(TypedDict):
    """A finished message at its place; `html` is sanitised, and added where it is sent."""

    id: int
    turn_id: str
    position: int
    step: int
    role: Annotated[str, OneOf("user", "assistant")]
    content: list[TextContent | AttachmentContent | ToolUseContent]
    interrupted: bool
    at: str
    html: NotRequired[str]


class HistoryMessage(TypedDict):
    """A message as the model reads it."""

    role: Annotated[str, OneOf("user", "assistant")]
    content: list[TextContent | AttachmentContent | ToolUseContent | ToolResultContent]


class History(TypedDict):
    """What the model reads, always valid, and what was repaired in it."""

    messages: list[HistoryMessage]
    repairs: list[AuditedRepair]
