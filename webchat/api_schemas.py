"""Schemas of the request and response bodies of the HTTP API."""

from typing import Annotated, Any
from uuid import UUID

from ninja import Schema
from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from turns import wire
from webchat.protocol.fields import AttachmentIds, ClientKey, Id, Text


class Request(Schema):
    """The base class of JSON request bodies. Values of a wrong type are refused, and unknown fields are ignored."""

    model_config = ConfigDict(strict=True)


class NewConversationBody(Request):
    """The title and agent of a new conversation.

    A repeated request with the same `conversation_id` creates no second one.
    """

    title: Annotated[Text, Field(max_length=200)] = ""
    agent: Annotated[Text, Field(max_length=64)] = ""
    conversation_id: Annotated[UUID | None, Field(strict=False)] = None


class EditBody(Request):
    """The fields of a conversation to change. Omitted fields keep their values."""

    title: Annotated[Text, Field(max_length=200)] | None = None
    is_pinned: bool | None = None
    agent: Annotated[Text, Field(max_length=64)] | None = None


class DeletionAnswer(Schema):
    """The result of a deletion.

    The conversation is now hidden, and `cancelled` is the number of its turns being cancelled.
    """

    ok: bool
    conversation_id: str
    cancelled: int


class NewMessageBody(Request):
    """A message of the user. `attachments` are the ids of uploaded files.

    A repeated request with the same `client_id` sends no second message. `replaces` is the id of the turn whose
    message this one replaces. That turn and all later ones are removed from the history.
    """

    text: Text
    client_id: ClientKey | None = None
    replaces: Id | None = None
    attachments: AttachmentIds = Field(default_factory=list)


class ErrorAnswer(Schema):
    """The response to a request that failed: a sentence for people, and a stable code for programs."""

    error: str
    code: str


class DecidedAnswer(ErrorAnswer):
    """The response if a call was already decided, or if its question expired. `status` says which."""

    status: str


ERRORS = dict.fromkeys((401, 403, 404, 422, 429), ErrorAnswer)  # of almost every endpoint


class ActiveTurnsAnswer(Schema):
    """Your turns that have not ended. Staff who may see all turns get the turns of all users."""

    turns: list[wire.ActiveTurn]


class EventsAnswer(Schema):
    """The events of a turn, in order. Pass `last_seq` as `after` in your next request."""

    events: list[dict[str, Any]]
    last_seq: int


class AgentAnswer(Schema):
    """An agent that you can choose. `chat_model` is null if the model's name is private."""

    name: str
    description: str
    chat_model: str | None
    is_default: bool


class AgentsAnswer(Schema):
    """The enabled agents, the default one first."""

    agents: list[AgentAnswer]


class ConversationAnswer(Schema):
    """A conversation. `standing` is null if it is idle, and `asked` is the number of decisions that it waits for.

    `tools_running` is the number of running calls. `is_queued` is true if its unfinished turns are all still
    queued. `last_seq` is the number of its last event, which you can compare with the last event that you have
    seen.
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
    """Your conversations: the pinned ones, then the others, newest first."""

    conversations: list[ConversationAnswer]


class MessageAnswer(TypedDict):
    """The turn that the message started. If it was a cancel word, `cancelled` is true, and this is the cancelled turn."""

    turn_id: str
    conversation_id: str
    cancelled: bool
