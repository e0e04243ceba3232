"""Schemas of the HTTP API: the bodies of its requests and responses."""

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
    """The title and agent of a new conversation. Repeating a `conversation_id` creates no second conversation."""

    title: Annotated[Text, Field(max_length=200)] = ""
    agent: Annotated[Text, Field(max_length=64)] = ""
    conversation_id: Annotated[UUID | None, Field(strict=False)] = None


class EditBody(Request):
    """The fields of a conversation to change. Omitted fields stay as they are."""

    title: Annotated[Text, Field(max_length=200)] | None = None
    is_pinned: bool | None = None
    agent: Annotated[Text, Field(max_length=64)] | None = None


class DeletionAnswer(Schema):
    """The conversation is hidden from everybody; `cancelled` is the number of turns that are being cancelled."""

    ok: bool
    conversation_id: str
    cancelled: int


class NewMessageBody(Request):
    """A message of the user. Repeating a `client_id` sends no second message. `attachments` are file ids.

    `replaces` names the turn whose message it replaces. That turn and all later ones are dropped from the history.
    """

    text: Text
    client_id: ClientKey | None = None
    replaces: Id | None = None
    attachments: AttachmentIds = Field(default_factory=list)


class ErrorAnswer(Schema):
    """The answer to a request that failed."""

    error: str
    code: str


class DecidedAnswer(ErrorAnswer):
    """The call was already decided, or its question expired; see `status`."""

    status: str


ERRORS = dict.fromkeys((401, 403, 404, 422, 429), ErrorAnswer)  # for almost every endpoint


class ActiveTurnsAnswer(Schema):
    """Your turns that have not ended. Staff who may see all turns get everybody's."""

    turns: list[wire.ActiveTurn]


class EventsAnswer(Schema):
    """Events of a turn in order. Pass `last_seq` as `after` in your next request."""

    events: list[dict[str, Any]]
    last_seq: int


class AgentAnswer(Schema):
    """An agent that you can choose. If `chat_model` is null, its name is private."""

    name: str
    description: str
    chat_model: str | None
    is_default: bool


class AgentsAnswer(Schema):
    """The enabled agents, the default one first."""

    agents: list[AgentAnswer]


class ConversationAnswer(Schema):
    """One conversation. `standing` is null if it is idle. `asked` is the number of decisions that it waits for.

    `tools_running` = the number of running calls. `is_queued` = its turns are queued and none has begun. `last_seq` = the
    number of its last event, so that you can compare it with the last event that you have seen.
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
    """The turn that the message started. `cancelled`: the message was a cancel word, and this is the turn that it
    cancelled.
    """

    turn_id: str
    conversation_id: str
    cancelled: bool
