"""The frames that the server sends, and its close codes. The frames of events are derived from those in `turns`.

Fields may be added but never renamed.
"""

from enum import IntEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model
from typing_extensions import TypedDict

from turns import EVENTS, TextDelta, ThoughtDelta, TurnEvent, wire

PROTOCOL_VERSION = 1

Outcome = Literal["accepted", "already_finished", "not_found", "denied", "not_cancellable"]
Seq = Annotated[int, Field(ge=0)]


class CloseCode(IntEnum):
    """The codes that say why a socket is closed. A client that will reconnect immediately closes with `COMING_BACK`."""

    RESTARTING = 1012
    COMING_BACK = 4000
    RESTARTING_TOO = 4012  # sent by servers that cannot send 1012
    BAD_FIRST_FRAME = 4400
    SIGNED_OUT = 4401
    NO_SUCH_CONVERSATION = 4404
    TOO_MANY = 4429


class Frame(BaseModel):
    """The base class of the server's frames, each of which has a `type`."""

    model_config = ConfigDict(extra="allow", frozen=True)


class Welcome(Frame):
    """The reply to `hello`. `last_seq` is the number of the log's last event, and `user` is your user name.

    If you announced `acks`, send an `ack` each time you have received another `ack_bytes` bytes.
    """

    type: Literal["welcome"] = "welcome"
    protocol: int = PROTOCOL_VERSION
    server_version: str
    last_seq: Seq
    user: str
    ack_bytes: int | None = None


class MessageResult(Frame):
    """The reply to a `message`, with its turn.

    If it was a cancel word, `cancelled` is true, and this is the cancelled turn.
    """

    type: Literal["message_result"] = "message_result"
    client_id: str
    turn_id: str
    cancelled: bool


class OpResult(Frame):
    """The reply to a frame with an `op_id`. A frame with a repeated `op_id` gets the same reply."""

    type: Literal["op_result"] = "op_result"
    op_id: str
    outcome: Outcome


class Heartbeat(Frame):
    """A sign that the connection works, sent every 15 seconds and in reply to `ping`.

    It contains the number of the last event and the ids of the turns that have not ended.
    """

    type: Literal["heartbeat"] = "heartbeat"
    last_seq: Seq
    active: list[str]


class BusyConversation(TypedDict):
    """Another conversation that is not idle. `asked_in` has the ids of the conversations that ask its open questions.

    `tools_running` is the number of its running calls. `is_queued` is true if all its unfinished turns are still
    queued.
    """

    conversation_id: str
    standing: wire.Standing
    asked_in: list[str]
    tools_running: int
    is_queued: bool


class LatestConversation(TypedDict):
    """The id and title of the conversation with the latest activity."""

    conversation_id: str
    title: str


class Overview(Frame):
    """All activity outside this conversation, sent soon after each `welcome` and whenever it has changed.

    Each frame replaces the previous one. `conversations` lists your other conversations that are not idle. Their
    `standing` is `asking`, `parked`, `working` or `interrupted`. `asked_in` has the ids of the conversations that ask
    their open questions, one for each question. `tools_running` is the number of their running calls, and `is_queued`
    is true if all their unfinished turns are still queued. `questions` lists the open questions of sub-agents that work
    for this conversation. Decide one with `decide_tool` and the `turn_id` and `tool_id` of the question. `latest` is
    the conversation with the latest activity, which may be this one. If your list of conversations lacks it or shows
    another title, request the list again. Also request the list again when `edited_at` changes, which is the last time
    that you renamed, pinned or deleted a conversation. `background` lists the detached sub-agents of this conversation.
    Cancel one with `cancel_turn` and its `turn_id`. `forms` lists the open forms of sub-agents' running calls. Answer
    one with `answer_tool`.
    """

    type: Literal["overview"] = "overview"
    conversations: list[BusyConversation]
    questions: list[wire.SubAgentQuestion]
    latest: LatestConversation | None = None
    edited_at: str | None = None
    background: list[wire.BackgroundWork] = []
    forms: list[wire.SubAgentForm] = []


class Problem(Frame):
    """The server did not accept your frame.

    `code` and `message` say why, and `client_id` or `op_id` is that of the frame, if it had one.

    After `server_error` or `unavailable`, it is unknown whether the frame took effect.
    """

    type: Literal["error"] = "error"
    code: str
    message: str
    client_id: str | None = None
    op_id: str | None = None


class TextHtml(Frame):
    """Finished blocks of the streaming answer as HTML.

    They cover its characters from `offset` up to, but not including, `end`.

    This frame is not in the log, and is sent only if `hello` had `html`. It follows the text of its blocks, and is
    repeated after a `resync`. Blocks arrive in order. The `message` that completes the answer replaces all of them.
    """

    type: Literal["text_html"] = "text_html"
    turn_id: str
    offset: Seq
    end: Seq
    html: str


class Event(Frame):
    """The fields that every event has: its number in the conversation's log, its turn and its time."""

    seq: Annotated[int, Field(ge=1)]
    turn_id: str
    at: str


ANSWERS: tuple[type, ...] = (
    Welcome,
    wire.Snapshot,
    MessageResult,
    OpResult,
    Heartbeat,
    Overview,
    Problem,
    TextDelta,
    TextHtml,
    ThoughtDelta,
)
_ADDED: dict[str, dict[str, Any]] = {  # fields that are added when the event is sent
    "message": {"html": (str, ...)},
    "tool_approval": {"arguments": (list[wire.Argument], ...)},
    "tool_start": {"arguments": (list[wire.Argument], ...)},
}


def frame_of(event: type[TurnEvent]) -> type[Event]:
    """Return the frame class of an event, with its own fields and its number, turn and time."""
    name: Any = Literal[event.type]
    definitions = {"type": (name, ...), **event.field_types(), **_ADDED.get(event.type, {})}
    return create_model(event.__name__, __base__=Event, __doc__=event.__doc__, **definitions)


def event_frames() -> tuple[type[Event], ...]:
    """Return the frames of all events in the order of their declaration."""
    return tuple(frame_of(event) for event in EVENTS.values())
