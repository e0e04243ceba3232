"""Operations: what clients asked for under their own ids, so that a repeated one gets the same answer (sync ORM)."""

from enum import StrEnum
from uuid import UUID

from turns.models import Operation, Turn


class OpOutcome(StrEnum):
    """What became of an operation; the names are the wire's."""

    ACCEPTED = "accepted"
    ALREADY_FINISHED = "already_finished"
    NOT_FOUND = "not_found"
    DENIED = "denied"
    NOT_CANCELLABLE = "not_cancellable"


def begin(turn: Turn, op_id: str | None) -> OpOutcome | None:
    """Take an operation as accepted before it has its effect; return its outcome if it came before.

    An id that was used for another turn says nothing of this one. A cancel is never taken as done without effect.
    """
    if op_id is None:
        return None
    operation, is_new = _kept(turn.conversation_id, turn.pk, op_id)
    return None if is_new or operation.turn_id != turn.pk else OpOutcome(operation.outcome)


def end(turn: Turn, op_id: str | None, outcome: OpOutcome) -> None:
    """Keep the outcome of an operation that was begun."""
    if op_id is not None and outcome is not OpOutcome.ACCEPTED:
        Operation.objects.filter(turn=turn, op_id=op_id).update(outcome=outcome.value)


def remember(conversation_id: UUID, turn_id: UUID, op_id: str | None) -> None:
    """Keep that an operation was accepted for a turn of another conversation; what was kept under its id before stays."""
    if op_id is not None:
        _kept(conversation_id, turn_id, op_id)


def earlier_turn(conversation_id: UUID, client_id: str) -> tuple[UUID, bool] | None:
    """Return the turn that a message with this id has made, or has cancelled (True): it may be sent again."""
    made = Turn.objects.filter(conversation_id=conversation_id, client_id=client_id).first()
    if made is not None:
        return made.pk, False
    operation = Operation.objects.filter(
        conversation_id=conversation_id, op_id=of_message(client_id), outcome=OpOutcome.ACCEPTED
    ).first()
    return (operation.turn_id, True) if operation else None


def of_message(client_id: str) -> str:
    """Return the id under which a cancel word is remembered; apart from the ids of buttons."""
    return f"message:{client_id}"


def _kept(conversation_id: UUID, turn_id: UUID, op_id: str) -> tuple[Operation, bool]:
    return Operation.objects.get_or_create(
        conversation_id=conversation_id,
        op_id=op_id,
        defaults={"turn_id": turn_id, "outcome": OpOutcome.ACCEPTED.value},
    )
