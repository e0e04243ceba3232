"""The frames that a client sends, and the function that parses text into one of them.

This module uses neither sockets nor the database. Operations are declared in `webchat.operations`.
"""

from functools import cache
from typing import Annotated, Any, Literal, Union, get_args

from django.utils.translation import gettext as _
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from webchat.exceptions import ProtocolError
from webchat.protocol.fields import AttachmentIds, ClientKey, Id, Text
from webchat.protocol.operation import OPERATIONS, Operation, frame_of
from webchat.validation_messages import validation_message

_CONFIG = ConfigDict(extra="ignore", strict=True)


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Hello:
    """The first frame on a socket. `after` is the number of the last event that the client has seen.

    With `html`, streaming answers are also sent as HTML. With `acks`, the client sends an `ack` each time it has
    received another `ack_bytes` bytes (the number in `welcome`), so that the server never sends faster than the client
    reads.
    """

    type: Literal["hello"]
    protocol: int
    after: Annotated[int, Field(ge=0, le=2**62)] | None = None
    html: bool = False
    acks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Message:
    """A typed or spoken message of the user. Spoken text that is not final is ignored (C8).

    `attachments` are the ids of uploaded files. `replaces` is the id of the turn whose message this one replaces. That
    turn and all later ones are removed from the history.
    """

    type: Literal["message"]
    client_id: ClientKey
    text: Text
    source: Literal["typed", "voice"] = "typed"
    is_final: bool = True
    replaces: Id | None = None
    attachments: AttachmentIds = Field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Resync:
    """Request the whole text so far of a running turn, because an `offset` showed a gap."""

    type: Literal["resync"]
    turn_id: Id


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Ping:
    """Request a `heartbeat`."""

    type: Literal["ping"]


@dataclass(frozen=True, slots=True, kw_only=True, config=_CONFIG)
class Ack:
    """Acknowledge the last event and the total number of bytes received on this socket.

    The server does not reply to it.
    """

    type: Literal["ack"]
    seq: Annotated[int, Field(ge=0, le=2**62)]
    received: Annotated[int, Field(ge=0, le=2**62)]


ClientFrame = Hello | Message | Operation | Resync | Ping | Ack


def client_frames() -> tuple[type, ...]:
    """Return all frames that a client may send."""
    operations = (frame_of(operation) for operation in OPERATIONS.values())
    return (Hello, Message, *operations, Resync, Ping, Ack)


@cache
def _adapter(frames: tuple[type, ...]) -> TypeAdapter[Any]:
    frame: Any = Union[frames]  # noqa: UP007 - the members are in a tuple
    return TypeAdapter(Annotated[frame, Field(discriminator="type")])


def _types() -> list[str]:
    return [get_args(frame.__annotations__["type"])[0] for frame in client_frames()]


def parse(text: str | bytes, *, max_bytes: int) -> ClientFrame:
    """Parse text into a frame, or raise `ProtocolError` with a stable code and a sentence."""
    if isinstance(text, bytes):
        raise ProtocolError("invalid_json", _("Frames are JSON text, not bytes."))
    if len(text) > max_bytes or len(text.encode("utf-8", "surrogatepass")) > max_bytes:
        raise ProtocolError(
            "frame_too_large", _("A frame can have at most %(max)s bytes.") % {"max": max_bytes}
        )
    try:
        frame: ClientFrame = _adapter(client_frames()).validate_json(text)
    except ValidationError as error:
        raise _explain(error) from None
    return frame


def _explain(error: ValidationError) -> ProtocolError:
    errors = error.errors(include_url=False, include_input=False)
    kind = errors[0]["type"]
    if kind in {"json_invalid", "string_unicode"}:
        return ProtocolError("invalid_json", _("The frame is not valid JSON."))
    if kind in {"union_tag_not_found", "union_tag_invalid"}:
        return ProtocolError(
            "unknown_type",
            _("The frame needs a known “type”: %(types)s.") % {"types": ", ".join(_types())},
        )
    if kind in {"dict_type", "dataclass_type"}:
        return ProtocolError("invalid_frame", _("The frame must be a JSON object."))
    return ProtocolError("invalid_field", validation_message(errors, leave_out=_types()))
