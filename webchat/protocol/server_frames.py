"""Frames that the server sends: its answers are declared here, its events in `turns`. Fields may be added, never renamed."""

from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from typing_extensions import TypedDict

from turns import EVENTS, TextDelta, TurnEvent, wire
from webchat.protocol.constants import PROTOCOL_VERSION

Outcome = Literal["accepted", "already_finished", "not_found", "denied", "not_cancellable"]
Seq = Annotated[int, Field(ge=0)]


class Frame(BaseModel):
    """What every frame of the server has: a `type`."""

    model_config = ConfigDict(extra="allow", frozen=True)


class Welcome(Frame):
    """The answer to `hello`: what the log has, and who the server takes you for."""

    type: Literal["welcome"] = "welcome"
    protocol: int = PROTOCOL_VERSION
    server_version: str
    last_seq: Seq
    user: str


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
    """Every 15 s, and as the answer to `ping`: the log's last event and the turns that are not over."""

    type: Literal["heartbeat"] = "heartbeat"
    last_seq: Seq
    active: list[str]


class BusyConversation(TypedDict):
    """Another conversation that is not at rest; `asked_in` names the conversation of each of its open questions.

    `tools_running` counts its calls at work; `is_queued` = no turn of those that wait has begun.
    """

    conversation_id: str
    standing: wire.Standing
    asked_in: list[str]
    tools_running: int
    is_queued: bool


class LatestConversation(TypedDict):
    """The conversation in which something has happened last."""

    conversation_id: str
    title: str


class Overview(Frame):
    """What goes on elsewhere, whole: soon after each `welcome`, and whenever it has changed. Until then the last one stands.

    `conversations`: your other conversations that are not at rest. Their `standing` is `asking`, `parked`, `working` or
    `interrupted`. `asked_in` names the conversation of each of their open questions. `tools_running` counts the calls
    at work, `is_queued` says that no turn has begun yet. `questions`: what sub-agents ask that work for this
    conversation; decide with `decide_tool`, the `turn_id` and the `tool_id` of the question. `latest`: the
    `conversation_id` and `title` of your conversation in which something has happened last, this one included. If you
    do not know it, or know another title, list your conversations again. List them again also when `edited_at` has
    changed: it is when you last renamed, pinned or deleted one. `background`: the sub-agents that work for this
    conversation while nothing here waits for them; `cancel_turn` with their `turn_id` ends one.
    """

    type: Literal["overview"] = "overview"
    conversations: list[BusyConversation]
    questions: list[wire.SubAgentQuestion]
    latest: LatestConversation | None = None
    edited_at: str | None = None
    background: list[wire.BackgroundWork] = []


class Problem(Frame):
    """Your frame had no effect: why, and which frame it was where that is known."""

    type: Literal["error"] = "error"
    code: str
    message: str
    client_id: str | None = None
    op_id: str | None = None


class TextHtml(Frame):
    """Finished blocks of the streaming answer, rendered: its characters from `offset` up to `end`. Not in the log.

    It comes if `hello` had `html`. It comes after its text, each block after the one before, and again after a `resync`.
    The `message` that follows takes the place of all of it.
    """

    type: Literal["text_html"] = "text_html"
    turn_id: str
    offset: Seq
    end: Seq
    html: str


class Event(Frame):
    """What every event has: its number in the conversation's log, its turn, its time."""

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
)
_ADDED: dict[str, dict[str, Any]] = {"message": {"html": (str, ...)}}  # where it is sent


def frame_of(event: type[TurnEvent]) -> type[Event]:
    """Return an event as it is sent: what it says, and its number, turn and time."""
    hints = get_type_hints(event, include_extras=True)
    said: dict[str, Any] = {
        field.name: (hints[field.name], ... if field.default is MISSING else field.default)
        for field in fields(event)
    }
    name: Any = Literal[event.type]
    said = {"type": (name, ...), **said, **_ADDED.get(event.type, {})}
    return create_model(event.__name__, __base__=Event, __doc__=event.__doc__, **said)


def event_frames() -> tuple[type[Event], ...]:
    """Return the frames of all events, in the order in which they are declared."""
    return tuple(frame_of(event) for event in EVENTS.values())
