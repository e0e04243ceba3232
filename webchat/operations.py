"""What a client asks for: each frame is one call of a service and one answer. Nothing here waits for a turn."""

from dataclasses import dataclass
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.utils.translation import gettext as _

from governance import CancelSource
from turns import selectors, services
from turns.exceptions import (
    ConversationNotFound,
    NotAllowed,
    ToolCallNotFound,
    TurnNotFound,
    TurnsError,
)
from turns.services import OpOutcome
from webchat.protocol.client_frames import (
    CancelTool,
    CancelTurn,
    ContinueTurn,
    DecideTool,
    Message,
    ResumeConversation,
    SetDeadline,
)
from webchat.protocol.server_frames import Frame, MessageResult, OpResult, Problem

OnTurn = CancelTurn | CancelTool | SetDeadline | DecideTool | ContinueTurn
Operation = OnTurn | ResumeConversation


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """Who asks, where, and by what means."""

    user: AbstractBaseUser
    conversation_id: UUID
    source: CancelSource


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
    """Ask for a cancel or another limit, decide on a call, go on; the answer is the same for a repeated `op_id`."""
    try:
        if isinstance(frame, ResumeConversation):
            await services.resume_conversation(
                conversation_id=requester.conversation_id, user=requester.user
            )
            outcome = OpOutcome.ACCEPTED
        elif (turn_id := uuid_of(frame.turn_id)) is None:
            outcome = OpOutcome.NOT_FOUND
        else:
            outcome = await _call_service(frame, turn_id=turn_id, requester=requester)
    except (ConversationNotFound, TurnNotFound, ToolCallNotFound):
        outcome = OpOutcome.NOT_FOUND
    except NotAllowed:
        raise
    except TurnsError as error:
        return refusal(error.code, error.sentence, about=frame)
    return OpResult(op_id=frame.op_id, outcome=outcome.value)


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


async def _refuse_watcher(frame: Message, *, requester: Requester) -> Problem:
    """Answer staff who may look at the conversation; raise `ConversationNotFound` to anybody else."""
    await selectors.get_conversation(conversation_id=requester.conversation_id, user=requester.user)
    sentence = _("This is somebody else’s conversation: you may watch it, but not write in it.")
    return refusal("not_yours", sentence, about=frame)


async def _call_service(frame: OnTurn, *, turn_id: UUID, requester: Requester) -> OpOutcome:
    match frame:
        case CancelTurn():
            turn = await services.request_cancel(
                turn_id=turn_id,
                user=requester.user,
                source=requester.source,
                mode=frame.mode,
                op_id=frame.op_id,
            )
            return turn.outcome
        case CancelTool():
            call = await services.request_tool_cancel(
                turn_id=turn_id,
                tool_id=frame.tool_id,
                user=requester.user,
                source=requester.source,
                op_id=frame.op_id,
            )
            return call.outcome
        case SetDeadline():
            limit = await services.set_deadline(
                turn_id=turn_id,
                tool_id=frame.tool_id,
                user=requester.user,
                timeout_ms=frame.timeout_ms,
                extend_ms=frame.extend_ms,
                op_id=frame.op_id,
            )
            return limit.outcome
        case DecideTool():
            decided = await services.decide_tool(
                turn_id=turn_id,
                tool_id=frame.tool_id,
                user=requester.user,
                decision=frame.decision,
                remember=frame.remember,
                reason=frame.reason,
                op_id=frame.op_id,
            )
            return decided.outcome
        case ContinueTurn():
            await services.continue_turn(turn_id=turn_id, user=requester.user)
            return OpOutcome.ACCEPTED
