"""Bodies of the HTTP API: what requests must have, and what answers look like in its OpenAPI description."""

from typing import Annotated, Any, Literal, Self

from ninja import Schema
from pydantic import ConfigDict, Field, model_validator

from turns import wire
from webchat.protocol.client_frames import (
    ClientKey,
    Decision,
    LimitMs,
    Mode,
    Reason,
    Remember,
    Text,
    check_one_limit,
)


class Request(Schema):
    """A JSON body; wrong types are refused, not converted, and unknown fields are ignored."""

    model_config = ConfigDict(strict=True)


class CancelBody(Request):
    """Why, and a key that makes a repeated request the same request."""

    reason: Annotated[Text, Field(max_length=500)] = ""
    op_id: ClientKey | None = None


class CancelTurnBody(CancelBody):
    """Also when: now, or after the step that runs."""

    mode: Mode = "now"


class DeadlineBody(Request):
    """Another limit: `timeout_ms` in all, or `extend_ms` more; exactly one of them."""

    timeout_ms: LimitMs | None = None
    extend_ms: LimitMs | None = None
    op_id: ClientKey | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        check_one_limit(self.timeout_ms, self.extend_ms)
        return self


class DecisionBody(Request):
    """A decision on a call that waits for one; `remember` lets the tool's later calls of the conversation through."""

    decision: Decision
    remember: Remember | None = None
    reason: Reason = ""
    op_id: ClientKey | None = None


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


class CancelAnswer(Schema):
    """The request is stored; again while it is cancelling: the same answer."""

    ok: Literal[True]
    turn_id: str
    status: str


class CancelToolAnswer(CancelAnswer):
    """The same for one call."""

    tool_id: str


class DeadlineAnswer(Schema):
    """The limit that is in force now; `timeout_ms` null = none."""

    ok: Literal[True]
    timeout_ms: int | None
    timeout_source: str


class DecisionAnswer(Schema):
    """The decision is stored: `status` is `approved` or `denied`."""

    ok: Literal[True]
    status: str


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


class MessageAnswer(Schema):
    """The turn that answers; `cancelled`: it was a cancel word, and this is the turn that it ended."""

    turn_id: str
    conversation_id: str
    cancelled: bool


class ResumeAnswer(Schema):
    """The conversation goes on; `resumed` false = it was not parked."""

    ok: Literal[True]
    conversation_id: str
    resumed: bool
