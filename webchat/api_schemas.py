"""Schemas of the HTTP API: the bodies of its requests and of its answers."""

from typing import Annotated, Any
from uuid import UUID

from ninja import Schema
from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from turns import wire
from webchat.protocol.fields import AttachmentIds, ClientKey, Id, Text


class Request(Schema):
    """A JSON body. Wrong types are refused, not converted; unknown fields are ignored."""

    model_config = ConfigDict(strict=True)


class NewConversationBody(Request):
    """What a conversation is called and who answers in it; the same `conversation_id` again is the same conversation."""

    title: Annotated[Text, Field(max_length=200)] = ""
    agent: Annotated[Text, Field(max_length=64)] = ""
    conversation_id: Annotated[UUID | None, Field(strict=False)] = None


class EditBody(Request):
    """What is to change of a conversation; what is left out stays."""

    title: Annotated[Text, Field(max_length=200)] | None = None
    is_pinned: bool | None = None
    agent: Annotated[Text, Field(max_length=64)] | None = None


class DeletionAnswer(Schema):
    """The conversation is gone for everybody; `cancelled` turns were asked to stop."""

    ok: bool
    conversation_id: str
    cancelled: int


class NewMessageBody(Request):
    """What the user says; the same `client_id` again is the same message. `attachments` are ids of files.

    With `replaces`, it takes the place of that turn's message: this turn and all behind it leave the history.
    """

    text: Text
    client_id: ClientKey | None = None
    replaces: Id | None = None
    attachments: AttachmentIds = Field(default_factory=list)


class ErrorAnswer(Schema):
    """Every error."""

    error: str
    code: str


class DecidedAnswer(ErrorAnswer):
    """The question was decided before, by somebody or by time: `status` says how."""

    status: str


ERRORS = dict.fromkeys((401, 403, 404, 422, 429), ErrorAnswer)  # of almost every address


class ActiveTurnsAnswer(Schema):
    """Your turns that are not over; everybody's for staff who may see all."""

    turns: list[wire.ActiveTurn]


class EventsAnswer(Schema):
    """Events of a turn in order; `last_seq` is what to ask `after` next."""

    events: list[dict[str, Any]]
    last_seq: int


class AgentAnswer(Schema):
    """Who may answer in a conversation; `chat_model` null = a name of this site's own."""

    name: str
    description: str
    chat_model: str | None
    is_default: bool


class AgentsAnswer(Schema):
    """The agents that are switched on, the default one first."""

    agents: list[AgentAnswer]


class ConversationAnswer(Schema):
    """One conversation; `standing` null = it is at rest, `asked` = how many decisions it waits for.

    `tools_running` = how many calls are at work. `is_queued` = no turn of those that wait has begun. `last_seq` = the
    number of its last event. If it is higher than the last one you have seen, something has happened since.
    """

    conversation_id: str
    title: str
    agent: str
    updated_at: str
    is_active: bool
    is_pinned: bool
    standing: wire.Standing | None
    asked: int
    tools_running: int
    is_queued: bool
    last_seq: int


class ConversationsAnswer(Schema):
    """Your conversations, the latest first."""

    conversations: list[ConversationAnswer]


class MessageAnswer(TypedDict):
    """The turn that answers; `cancelled`: it was a cancel word, and this is the turn that it ended."""

    turn_id: str
    conversation_id: str
    cancelled: bool
