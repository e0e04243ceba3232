"""What a client asks for: each operation is one class, for sockets and for the API. Nothing here waits for a turn."""

from dataclasses import replace
from typing import ClassVar, Literal, Self
from uuid import UUID

from django.utils.translation import gettext as _
from pydantic import model_validator
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
from webchat.protocol.client_frames import Message
from webchat.protocol.fields import CancelNote, Decision, LimitMs, Mode, Reason, Remember
from webchat.protocol.operation import Operation, Requester, Result
from webchat.protocol.server_frames import Frame, MessageResult, OpResult, Problem


class CancelAnswer(TypedDict):
    """The request is stored; again while it is cancelling: the same answer."""

    ok: Literal[True]
    turn_id: str
    status: str


class CancelTurn(Operation):
    """Cancel a turn, at once or when its running step has ended. The answer comes once the request is stored (C2).

    What is queued behind it ends with it. With the mode `queued` only this turn ends, and only while it has not begun.
    """

    name: ClassVar = "cancel_turn"
    path: ClassVar = "/turns/{turn_id}/abort"
    answers: ClassVar = {200: CancelAnswer}
    is_cancel: ClassVar = True

    mode: Mode = "now"
    reason: CancelNote = ""

    async def perform(self, requester: Requester) -> Result:
        """Store the request."""
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
    """The same for one call."""

    tool_id: str


class CancelTool(Operation):
    """Cancel one tool call; the turn goes on (C3)."""

    name: ClassVar = "cancel_tool"
    path: ClassVar = "/turns/{turn_id}/abort-tool/{tool_id}"
    answers: ClassVar = {200: CancelToolAnswer}
    is_cancel: ClassVar = True

    reason: CancelNote = ""

    async def perform(self, requester: Requester) -> Result:
        """Store the request."""
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
    """The limit that is in force now; `timeout_ms` null = none."""

    ok: Literal[True]
    timeout_ms: int | None
    timeout_source: str


class SetDeadline(Operation):
    """Give a running call another limit, up to the ceiling: `timeout_ms` in all, or `extend_ms` more. Give exactly one of them (T9)."""

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
        """Store the limit, or pass it to the owner of the turn."""
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
    """The decision is stored: `status` is `approved` or `denied`."""

    ok: Literal[True]
    status: str


class DecideTool(Operation):
    """Let a call run that waits for a person, or refuse it with a reason that the agent reads.

    A call is decided once (D2, D4).
    """

    name: ClassVar = "decide_tool"
    path: ClassVar = "/turns/{turn_id}/tools/{tool_id}/decision"
    answers: ClassVar = {200: DecisionAnswer, 409: DecidedAnswer}

    decision: Decision
    remember: Remember | None = None
    reason: Reason = ""

    async def perform(self, requester: Requester) -> Result:
        """Store the decision."""
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


class ContinueTurn(Operation):
    """Let the agent go on after its last turn, which was interrupted: begins a new turn, once (H4)."""

    name: ClassVar = "continue_turn"
    path: ClassVar = "/turns/{turn_id}/continue"
    answers: ClassVar = {202: MessageAnswer, 409: ErrorAnswer}

    async def perform(self, requester: Requester) -> Result:
        """Begin the turn, or find the one that was begun."""
        received = await services.continue_turn(turn_id=requester.turn_id, user=requester.user)
        return Result(OpOutcome.ACCEPTED, message_answer(received))


class ResumeAnswer(TypedDict):
    """The conversation goes on; `resumed` false = it was not parked."""

    ok: Literal[True]
    conversation_id: str
    resumed: bool


class ResumeConversation(Operation):
    """Let a parked conversation go on (H4)."""

    name: ClassVar = "resume_conversation"
    path: ClassVar = "/conversations/{conversation_id}/resume"
    answers: ClassVar = {200: ResumeAnswer}

    async def perform(self, requester: Requester) -> Result:
        """Let turns begin again."""
        found = requester.conversation_id
        resumed = await services.resume_conversation(conversation_id=found, user=requester.user)
        answer = {"ok": True, "conversation_id": str(found), "resumed": resumed}
        return Result(OpOutcome.ACCEPTED, answer)


async def submit_message(frame: Message, *, requester: Requester) -> Frame | None:
    """Hand over what the user typed or said; a cancel word takes effect here (C6)."""
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
            attachments=[attachment_uuid(written) for written in frame.attachments],
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
    """Perform what a frame asks for; the answer is the same for a repeated `op_id`."""
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
    """Return who asks about these ids, as clients write them. Raise `TurnNotFound`."""
    if conversation_id is not None:
        found = uuid_of(conversation_id) or requester.conversation_id
        requester = replace(requester, conversation_id=found)
    if turn_id is not None:
        if (turn := uuid_of(turn_id)) is None:
            raise TurnNotFound
        requester = replace(requester, turn_id=turn)
    return replace(requester, tool_id=tool_id)


def message_answer(received: services.Received) -> MessageAnswer:
    """Return the turn that a message began, or ended."""
    return {
        "turn_id": str(received.turn_id),
        "conversation_id": str(received.conversation_id),
        "cancelled": received.cancelled,
    }


def replaced_turn(written: str | None) -> UUID | None:
    """Return the turn that a message replaces, if it does. Raise `CannotReplace`."""
    if written is None:
        return None
    if (turn_id := uuid_of(written)) is None:
        raise CannotReplace
    return turn_id


def refusal(code: str, sentence: object, *, about: object = None) -> Problem:
    """Answer a frame that could not be used; the answer bears its id, if it has one."""
    return Problem(
        code=code,
        message=str(sentence),
        client_id=getattr(about, "client_id", None),
        op_id=getattr(about, "op_id", None),
    )


def server_error(about: object = None) -> Problem:
    """Answer a frame whose handling failed here; what went wrong is in the server's log only."""
    sentence = _("Something went wrong on the server. Please try again.")
    return refusal("server_error", sentence, about=about)


def uuid_of(text: str) -> UUID | None:
    """Return the id that a client means, or None: an id of another form is an id that nobody has."""
    try:
        return UUID(text)
    except ValueError:
        return None


def attachment_uuid(text: str) -> UUID:
    """Return the id of a file. Malformed ids are answered like unknown ones."""
    found = uuid_of(text)
    if found is None:
        raise AttachmentNotFound
    return found


async def _refuse_watcher(frame: Message, *, requester: Requester) -> Problem:
    """Answer staff who may look at the conversation; raise `ConversationNotFound` to anybody else."""
    user = await services.identify(requester.user)
    await selectors.get_conversation(conversation_id=requester.conversation_id, user=user)
    sentence = _("This is somebody else’s conversation: you may watch it, but not write in it.")
    return refusal("not_yours", sentence, about=frame)
