"""Schemas of the HTTP API: the bodies of its requests and of its answers."""

from typing import Annotated, Any

from ninja import Schema
from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from turns import wire
from webchat.protocol.fields import ClientKey, Text


class Request(Schema):
    """A JSON body. Wrong types are refused, not converted; unknown fields are ignored."""

    model_config = ConfigDict(strict=True)


class NewConversationBody(Request):
    """What a conversation is called and who answers in it."""

    title: Annotated[Text, Field(max_length=200)] = ""
    agent: Annotated[Text, Field(max_length=64)] = ""


class NewMessageBody(Request):
    """What the user says; the same `client_id` again is the same message."""

    text: Text
    client_id: ClientKey | None = None


class ErrorAnswer(Schema):
    """Every error."""

    error: str
    code: str


class DecidedAnswer(ErrorAnswer):
    """The question was decided before, by somebody or by time: `status` says how."""

    status: str


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
    """One conversation; `standing` null = it is at rest, `asked` = how many decisions it waits for."""

    conversation_id: str
    title: str
    agent: str
    updated_at: str
    is_active: bool
    standing: wire.Standing | None
    asked: int


class ConversationsAnswer(Schema):
    """Your conversations, the latest first."""

    conversations: list[ConversationAnswer]


class MessageAnswer(TypedDict):
    """The turn that answers; `cancelled`: it was a cancel word, and this is the turn that it ended."""

    turn_id: str
    conversation_id: str
    cancelled: bool
