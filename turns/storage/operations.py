"""Operations: client requests with their own ids, so that a repeated request gets the same response.

The functions here use the synchronous ORM.
"""

from enum import StrEnum
from uuid import UUID

from turns.models import Operation, Turn


class OpOutcome(StrEnum):
    """The result of an operation; the names are those of the protocol."""

    ACCEPTED = "accepted"
    ALREADY_FINISHED = "already_finished"
    NOT_FOUND = "not_found"
    DENIED = "denied"
    NOT_CANCELLABLE = "not_cancellable"


def begin(turn: Turn, op_id: str | None) -> OpOutcome | None:
    """Record an operation as accepted before it takes effect. Return its outcome if it is a repeated one.

    An id that was used for another turn is ignored, because a cancel must never be reported as done without effect.
    """
    if op_id is None:
        return None
    operation, is_new = _kept(turn.conversation_id, turn.pk, op_id)
    return None if is_new or operation.turn_id != turn.pk else OpOutcome(operation.outcome)


def end(turn: Turn, op_id: str | None, outcome: OpOutcome) -> None:
    if op_id is not None and outcome is not OpOutcome.ACCEPTED:
        Operation.objects.filter(turn=turn, op_id=op_id).update(outcome=outcome.value)


def remember(conversation_id: UUID, turn_id: UUID, op_id: str | None) -> None:
    """Record an accepted operation for a turn of another conversation; an existing record is kept."""
    if op_id is not None:
        _kept(conversation_id, turn_id, op_id)


def earlier_turn(conversation_id: UUID, client_id: str) -> tuple[UUID, bool] | None:
    """Return the turn that a message with this id created or cancelled (True), because clients may resend messages;
    None if the id is new.
    """
    turn = Turn.objects.filter(conversation_id=conversation_id, client_id=client_id).first()
    if turn is not None:
        return turn.pk, False
    operation = Operation.objects.filter(
        conversation_id=conversation_id, op_id=of_message(client_id), outcome=OpOutcome.ACCEPTED
    ).first()
    return (operation.turn_id, True) if operation else None


def of_message(client_id: str) -> str:
    """Return the operation id of a cancel word, distinct from the ids of buttons."""
    return f"message:{client_id}"


def _kept(conversation_id: UUID, turn_id: UUID, op_id: str) -> tuple[Operation, bool]:
    return Operation.objects.get_or_create(
        conversation_id=conversation_id,
        op_id=op_id,
        defaults={"turn_id": turn_id, "outcome": OpOutcome.ACCEPTED.value},
    )
