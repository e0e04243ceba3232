"""Frames that a client sends: their shapes, and the one function that turns text into one of them.

Pure: no socket, no database. The shapes are also the source of the JSON Schemas in `docs/protocol.md`.
"""

from typing import Annotated, Literal, Self

from django.utils.translation import gettext as _
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

from webchat.exceptions import ProtocolError
from webchat.validation_messages import validation_message

MAX_LIMIT_MS = 31_536_000_000  # a year: enough for everything, small enough for every database


def _without_nul(text: str) -> str:
    if "\x00" in text:  # PostgreSQL cannot store it
        raise PydanticCustomError("nul_character", "must not contain the character NUL")
    return text


Text = Annotated[str, AfterValidator(_without_nul)]
Id = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_without_nul)]
ClientKey = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_without_nul)]
Mode = Literal["now", "after_step"]
Decision = Literal["approve", "deny"]
Remember = Literal["conversation"]
Reason = Annotated[str, Field(max_length=500), AfterValidator(_without_nul)]
LimitMs = Annotated[int, Field(ge=1, le=MAX_LIMIT_MS)]

_CONFIG = ConfigDict(extra="ignore", strict=True, use_attribute_docstrings=True)


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Hello:
    """The first frame; `after` is the last event that the client has seen."""

    type: Literal["hello"]
    protocol: int
    after: Annotated[int, Field(ge=0, le=2**62)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Message:
    """What the user typed or said; a spoken text that is not final is ignored (C8)."""

    type: Literal["message"]
    client_id: ClientKey
    text: Text
    source: Literal["typed", "voice"] = "typed"
    is_final: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class CancelTurn:
    """Cancel a turn, at once or when its running step has ended (C2)."""

    type: Literal["cancel_turn"]
    op_id: ClientKey
    turn_id: Id
    mode: Mode = "now"


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class CancelTool:
    """Cancel one tool call; the turn goes on (C3)."""

    type: Literal["cancel_tool"]
    op_id: ClientKey
    turn_id: Id
    tool_id: Id


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class SetDeadline:
    """Give a running call another limit: `timeout_ms` in all, or `extend_ms` more; exactly one of them (T9)."""

    type: Literal["set_deadline"]
    op_id: ClientKey
    turn_id: Id
    tool_id: Id
    timeout_ms: LimitMs | None = None
    extend_ms: LimitMs | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        check_one_limit(self.timeout_ms, self.extend_ms)
        return self


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class DecideTool:
    """Let a call run that waits for a person, or refuse it with a reason that the agent reads (D2)."""

    type: Literal["decide_tool"]
    op_id: ClientKey
    turn_id: Id
    tool_id: Id
    decision: Decision
    remember: Remember | None = None
    reason: Reason = ""


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class ContinueTurn:
    """Let the agent go on after its last turn, which was interrupted: begins a new turn, once (H4)."""

    type: Literal["continue_turn"]
    op_id: ClientKey
    turn_id: Id


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class ResumeConversation:
    """Let a parked conversation go on (H4)."""

    type: Literal["resume_conversation"]
    op_id: ClientKey


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Resync:
    """Ask for the whole text so far of a running turn: a gap in `offset` was seen."""

    type: Literal["resync"]
    turn_id: Id


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Ping:
    """Ask for a `heartbeat`."""

    type: Literal["ping"]


ClientFrame = (
    Hello
    | Message
    | CancelTurn
    | CancelTool
    | SetDeadline
    | DecideTool
    | ContinueTurn
    | ResumeConversation
    | Resync
    | Ping
)
CLIENT_FRAMES = (
    Hello,
    Message,
    CancelTurn,
    CancelTool,
    SetDeadline,
    DecideTool,
    ContinueTurn,
    ResumeConversation,
    Resync,
    Ping,
)
_TYPES = tuple(frame.__dataclass_fields__["type"].type.__args__[0] for frame in CLIENT_FRAMES)
_ADAPTER: TypeAdapter[ClientFrame] = TypeAdapter(
    Annotated[ClientFrame, Field(discriminator="type")]
)


def check_one_limit(timeout_ms: int | None, extend_ms: int | None) -> None:
    """Refuse both limits at once, and neither."""
    if (timeout_ms is None) == (extend_ms is None):
        raise PydanticCustomError("one_limit", "give either timeout_ms or extend_ms")


def parse(text: str | bytes, *, max_bytes: int) -> ClientFrame:
    """Return the frame that a text is, or raise `ProtocolError` with a stable code and a sentence."""
    if isinstance(text, bytes):
        raise ProtocolError("invalid_json", _("Frames are JSON text, not bytes."))
    if len(text) > max_bytes or len(text.encode("utf-8", "surrogatepass")) > max_bytes:
        raise ProtocolError(
            "frame_too_large", _("A frame may have %(max)s bytes at most.") % {"max": max_bytes}
        )
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as error:
        raise _explain(error) from None


def _explain(error: ValidationError) -> ProtocolError:
    errors = error.errors(include_url=False, include_input=False)
    kind = errors[0]["type"]
    if kind in {"json_invalid", "string_unicode"}:
        return ProtocolError("invalid_json", _("The frame is not valid JSON."))
    if kind in {"union_tag_not_found", "union_tag_invalid"}:
        return ProtocolError(
            "unknown_type",
            _("The frame needs a known “type”: %(types)s.") % {"types": ", ".join(_TYPES)},
        )
    if kind in {"dict_type", "dataclass_type"}:
        return ProtocolError("invalid_frame", _("The frame must be a JSON object."))
    return ProtocolError("invalid_field", validation_message(errors, leave_out=_TYPES))
