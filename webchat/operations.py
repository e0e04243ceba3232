"""What a client asks for: each frame is one call of a service and one answer. Nothing here waits for a turn."""

from dataclasses import dataclass
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.utils.translation import gettext as _

from governance import CancelSource
from turns import services
from turns.exceptions import (
    ConversationNotFound,
    NotAllowed,
    ToolCallNotFound,
    TurnNotFound,
    TurnsError,
)
from turns.services import OpOutcome
from webchat.frames import Frame, MessageResult, OpResult, Problem
from webchat.protocol import CancelTool, CancelTurn, Message, SetDeadline

Operation = CancelTurn | CancelTool | SetDeadline


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Who asks, where, and by what means."""

    user: AbstractBaseUser
    conversation_id: UUID
    source: CancelSource


async def say(frame: Message, *, asker: Asker) -> Frame | None:
    """Hand over what the user typed or said; a cancel word takes effect here (C6)."""
    if frame.source == "voice" and not frame.is_final:
        return None
    try:
        received = await services.receive_message(
            conversation_id=asker.conversation_id,
            user=asker.user,
            text=frame.text,
            client_id=frame.client_id,
            source=frame.source,
        )
    except (ConversationNotFound, NotAllowed):
        raise
    except TurnsError as error:
        return Problem(code=error.code, message=str(error.sentence), client_id=frame.client_id)
    return MessageResult(
        client_id=frame.client_id, turn_id=str(received.turn_id), cancelled=received.cancelled
    )


async def operate(frame: Operation, *, asker: Asker) -> Frame:
    """Ask for a cancel or another limit; the answer is the same for a repeated `op_id`."""
    turn_id = uuid_of(frame.turn_id)
    if turn_id is None:
        return OpResult(op_id=frame.op_id, outcome="not_found")
    try:
        outcome = await _ask(frame, turn_id=turn_id, asker=asker)
    except (TurnNotFound, ToolCallNotFound):
        outcome = OpOutcome.NOT_FOUND
    except NotAllowed:
        raise
    except TurnsError as error:
        return Problem(code=error.code, message=str(error.sentence), op_id=frame.op_id)
    return OpResult(op_id=frame.op_id, outcome=outcome.value)


def not_understood(code: str, sentence: object) -> Problem:
    """Answer a frame that could not be used."""
    return Problem(code=code, message=str(sentence))


def failed() -> Problem:
    """Answer a frame whose handling failed here; what went wrong is in the server's log only."""
    return Problem(
        code="server_error", message=_("Something went wrong on the server. Please try again.")
    )


def uuid_of(text: str) -> UUID | None:
    """Return the id that a client means, or None: an id of another form is an id that nobody has."""
    try:
        return UUID(text)
    except ValueError:
        return None


async def _ask(frame: Operation, *, turn_id: UUID, asker: Asker) -> OpOutcome:
    match frame:
        case CancelTurn():
            turn = await services.request_cancel(
                turn_id=turn_id,
                user=asker.user,
                source=asker.source,
                mode=frame.mode,
                op_id=frame.op_id,
            )
            return turn.outcome
        case CancelTool():
            call = await services.request_tool_cancel(
                turn_id=turn_id,
                tool_id=frame.tool_id,
                user=asker.user,
                source=asker.source,
                op_id=frame.op_id,
            )
            return call.outcome
        case SetDeadline():
            limit = await services.set_deadline(
                turn_id=turn_id,
                tool_id=frame.tool_id,
                user=asker.user,
                timeout_ms=frame.timeout_ms,
                extend_ms=frame.extend_ms,
                op_id=frame.op_id,
            )
            return limit.outcome
