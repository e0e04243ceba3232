"""The operations that clients can request through sockets and the API, one class each. None of them waits for a turn."""

from dataclasses import replace
from typing import ClassVar, Literal, Self
from uuid import UUID

from django.utils.translation import gettext as _
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from turns import selectors, services
from turns.exceptions import (
    AttachmentNotFound,
    CannotReplace,
    ConversationNotFound,
    NotAllowed,
    ToolCallNotFound,
    TurnNotFound,
    TurnsError,
)
from turns.services import OpOutcome
from webchat.api_schemas import DecidedAnswer, ErrorAnswer, MessageAnswer
from webchat.exceptions import DATABASE_IS_AWAY
from webchat.protocol.client_frames import Message
from webchat.protocol.fields import (
    Action,
    Answers,
    CancelNote,
    Decision,
    LimitMs,
    Mode,
    QuestionId,
    Reason,
    Remember,
)
from webchat.protocol.operation import Operation, Requester, Result
from webchat.protocol.server_frames import Frame, MessageResult, OpResult, Problem


class CancelAnswer(TypedDict):
    """The cancel is stored. A repeated request gets the same response while the turn is being cancelled."""

    ok: Literal[True]
    turn_id: str
    status: str


class CancelTurn(Operation):
    """Cancel a turn, immediately or after its current step.

    The server replies as soon as the request is stored (C2). Messages that are queued behind the turn are cancelled
    too. With the mode `queued`, only this turn is cancelled, and only if it has not started.
    """

    name: ClassVar = "cancel_turn"
    path: ClassVar = "/turns/{turn_id}/abort"
    answers: ClassVar = {200: CancelAnswer}
    is_cancel: ClassVar = True

    mode: Mode = "now"
    reason: CancelNote = ""

    async def perform(self, requester: Requester) -> Result:
        receipt = await services.request_cancel(
            turn_id=requester.turn_id,
            user=requester.user,
            source=requester.source,
            note=self.reason,
            mode=self.mode,
            op_id=self.op_id,
        )
        answer = {"ok": True, "turn_id": str(receipt.turn_id), "status": receipt.status}
        return Result(receipt.outcome, answer)


class CancelToolAnswer(CancelAnswer):
    """The cancel of one call is stored."""

    tool_id: str


class CancelTool(Operation):
    """Cancel one tool call. The turn continues (C3)."""

    name: ClassVar = "cancel_tool"
    path: ClassVar = "/turns/{turn_id}/abort-tool/{tool_id}"
    answers: ClassVar = {200: CancelToolAnswer}
    is_cancel: ClassVar = True

    reason: CancelNote = ""

    async def perform(self, requester: Requester) -> Result:
        receipt = await services.request_tool_cancel(
            turn_id=requester.turn_id,
            tool_id=requester.tool_id,
            user=requester.user,
            source=requester.source,
            note=self.reason,
            op_id=self.op_id,
        )
        answer = {
            "ok": True,
            "turn_id": str(receipt.turn_id),
            "tool_id": requester.tool_id,
            "status": receipt.status,
        }
        return Result(receipt.outcome, answer)


class DeadlineAnswer(TypedDict):
    """The call's limit after the change. `timeout_ms` is null if the call has no limit."""

    ok: Literal[True]
    timeout_ms: int | None
    timeout_source: str


class SetDeadline(Operation):
    """Change the limit of a waiting or running call, up to the ceiling (T9).

    Send either `timeout_ms` (the new limit) or `extend_ms` (additional time), but not both.
    """

    name: ClassVar = "set_deadline"
    path: ClassVar = "/turns/{turn_id}/tools/{tool_id}/deadline"
    answers: ClassVar = {200: DeadlineAnswer}

    timeout_ms: LimitMs | None = None
    extend_ms: LimitMs | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.timeout_ms is None) == (self.extend_ms is None):
            raise PydanticCustomError("one_limit", "give either timeout_ms or extend_ms")
        return self

    async def perform(self, requester: Requester) -> Result:
        """Store the new limit, and notify the process that runs the turn."""
        receipt = await services.set_deadline(
            turn_id=requester.turn_id,
            tool_id=requester.tool_id,
            user=requester.user,
            timeout_ms=self.timeout_ms,
            extend_ms=self.extend_ms,
            op_id=self.op_id,
        )
        answer = {
            "ok": True,
            "timeout_ms": receipt.timeout_ms,
            "timeout_source": receipt.timeout_source,
        }
        return Result(receipt.outcome, answer)


class DecisionAnswer(TypedDict):
    """The decision or the answer is stored. `status` is `approved`, `denied` or `cancelled`."""

    ok: Literal[True]
    status: str


class DecideTool(Operation):
    """Allow a call that waits for approval to run, or deny it with a reason that the agent will read.

    Only the first decision takes effect (D2, D4).
    """

    name: ClassVar = "decide_tool"
    path: ClassVar = "/turns/{turn_id}/tools/{tool_id}/decision"
    answers: ClassVar = {200: DecisionAnswer, 409: DecidedAnswer}

    decision: Decision
    remember: Remember | None = None
    reason: Reason = ""

    async def perform(self, requester: Requester) -> Result:
        receipt = await services.decide_tool(
            turn_id=requester.turn_id,
            tool_id=requester.tool_id,
            user=requester.user,
            decision=self.decision,
            remember=self.remember,
            reason=self.reason,
            op_id=self.op_id,
        )
        return Result(receipt.outcome, {"ok": True, "status": receipt.status})


class AnswerTool(Operation):
    """Answer the form of a running call (`tool_question`).

    `accept` sends the answers in `content`, keyed by the names of the form's fields. `decline` means that the person
    does not want to answer, and `cancel` dismisses the form. If the answers do not fit the form, the server refuses
    them with `invalid_answer`, and the form stays open. A form can be answered only once. Without `question_id`, the
    answer is for the open form of the call.
    """

    name: ClassVar = "answer_tool"
    path: ClassVar = "/turns/{turn_id}/tools/{tool_id}/answer"
    answers: ClassVar = {200: DecisionAnswer, 409: DecidedAnswer}

    action: Action
    content: Answers = Field(default_factory=dict)
    question_id: QuestionId = ""

    async def perform(self, requester: Requester) -> Result:
        receipt = await services.answer_tool(
            turn_id=requester.turn_id,
            tool_id=requester.tool_id,
            user=requester.user,
            action=self.action,
            answers=self.content,
            question=self.question_id,
            op_id=self.op_id,
        )
        return Result(receipt.outcome, {"ok": True, "status": receipt.status})


class ContinueTurn(Operation):
    """Continue the conversation's last turn in a new turn, if the last one was interrupted.

    A repeated request does not start a second new turn (H4).
    """

    name: ClassVar = "continue_turn"
    path: ClassVar = "/turns/{turn_id}/continue"
    answers: ClassVar = {202: MessageAnswer, 409: ErrorAnswer}

    async def perform(self, requester: Requester) -> Result:
        """Start the new turn, or return the one that was already started."""
        received = await services.continue_turn(turn_id=requester.turn_id, user=requester.user)
        return Result(OpOutcome.ACCEPTED, message_answer(received))


class ResumeAnswer(TypedDict):
    """The conversation is not parked any more. `resumed` is false if it was not parked before the request."""

    ok: Literal[True]
    conversation_id: str
    resumed: bool


class ResumeConversation(Operation):
    """Resume a parked conversation, so that its turns start again (H4)."""

    name: ClassVar = "resume_conversation"
    path: ClassVar = "/conversations/{conversation_id}/resume"
    answers: ClassVar = {200: ResumeAnswer}

    async def perform(self, requester: Requester) -> Result:
        conversation_id = requester.conversation_id
        resumed = await services.resume_conversation(
            conversation_id=conversation_id, user=requester.user
        )
        answer = {"ok": True, "conversation_id": str(conversation_id), "resumed": resumed}
        return Result(OpOutcome.ACCEPTED, answer)


async def submit_message(frame: Message, *, requester: Requester) -> Frame | None:
    """Submit a typed or spoken message, and return the reply. A cancel word takes effect here (C6)."""
    if frame.source == "voice" and not frame.is_final:
        return None
    try:
        received = await services.receive_message(
            conversation_id=requester.conversation_id,
            user=requester.user,
            text=frame.text,
            client_id=frame.client_id,
            source=frame.source,
            replaces=replaced_turn(frame.replaces),
            attachments=[attachment_uuid(raw_id) for raw_id in frame.attachments],
        )
    except ConversationNotFound:
        return await _refuse_watcher(frame, requester=requester)
    except NotAllowed:
        raise
    except TurnsError as error:
        return refusal(error.code, error.sentence, about=frame)
    return MessageResult(
        client_id=frame.client_id, turn_id=str(received.turn_id), cancelled=received.cancelled
    )


async def run_operation(frame: Operation, *, requester: Requester) -> Frame:
    """Perform the operation of a frame, and return the reply. A repeated `op_id` gets the same reply."""
    ids = {name: getattr(frame, name) for name in frame.frame_ids()}
    try:
        result = await frame.perform(with_ids(requester, **ids))
        outcome = result.outcome
    except (ConversationNotFound, TurnNotFound, ToolCallNotFound):
        outcome = OpOutcome.NOT_FOUND
    except NotAllowed:
        raise
    except TurnsError as error:
        return refusal(error.code, error.sentence, about=frame)
    return OpResult.model_validate({"op_id": frame.op_id, "outcome": str(outcome)})


def with_ids(
    requester: Requester,
    *,
    conversation_id: str | None = None,
    turn_id: str | None = None,
    tool_id: str = "",
) -> Requester:
    """Return a copy of the requester with these ids, parsed from text. Raise `TurnNotFound` for a malformed turn id."""
    if conversation_id is not None:
        parsed_id = uuid_of(conversation_id) or requester.conversation_id
        requester = replace(requester, conversation_id=parsed_id)
    if turn_id is not None:
        if (turn := uuid_of(turn_id)) is None:
            raise TurnNotFound
        requester = replace(requester, turn_id=turn)
    return replace(requester, tool_id=tool_id)


def message_answer(received: services.Received) -> MessageAnswer:
    """Return the body of the response to a message: the turn that it started or cancelled."""
    return {
        "turn_id": str(received.turn_id),
        "conversation_id": str(received.conversation_id),
        "cancelled": received.cancelled,
    }


def replaced_turn(raw_id: str | None) -> UUID | None:
    """Return the parsed id of the turn that a message replaces, or None. Raise `CannotReplace` for a malformed id."""
    if raw_id is None:
        return None
    if (turn_id := uuid_of(raw_id)) is None:
        raise CannotReplace
    return turn_id


def refusal(code: str, sentence: object, *, about: object = None) -> Problem:
    """Return the error frame for a refused frame, with that frame's id if it has one."""
    return Problem(
        code=code,
        message=str(sentence),
        client_id=getattr(about, "client_id", None),
        op_id=getattr(about, "op_id", None),
    )


def server_error(about: object = None) -> Problem:
    """Return the error frame for a frame whose handling failed. The cause is only in the server's log."""
    sentence = _("Something went wrong on the server. Please try again.")
    return refusal("server_error", sentence, about=about)


def unavailable(about: object = None) -> Problem:
    """Return the error frame for a frame that arrived during a database outage.

    The client can send that frame again later.
    """
    return refusal("unavailable", DATABASE_IS_AWAY, about=about)


def uuid_of(text: str) -> UUID | None:
    """Return the parsed id, or None if it is malformed."""
    try:
        return UUID(text)
    except ValueError:
        return None


def attachment_uuid(text: str) -> UUID:
    """Return the parsed id of a file. Raise `AttachmentNotFound` for a malformed id, as for an unknown one."""
    attachment_id = uuid_of(text)
    if attachment_id is None:
        raise AttachmentNotFound
    return attachment_id


async def _refuse_watcher(frame: Message, *, requester: Requester) -> Problem:
    """Return the error frame for staff who may only view the conversation.

    Raise `ConversationNotFound` for all other users.
    """
    user = await services.identify(requester.user)
    await selectors.get_conversation(conversation_id=requester.conversation_id, user=user)
    sentence = _(
        "This conversation belongs to somebody else. You can watch it, but not write in it."
    )
    return refusal("not_yours", sentence, about=frame)
