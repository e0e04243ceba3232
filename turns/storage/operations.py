"""Operations: what clients have asked for under ids of their own, so that the same one again has the same answer (sync ORM)."""

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


def known(turn: Turn, op_id: str | None) -> OpOutcome | None:
    """Return the outcome that an operation had when it came the first time; None if it did not.

    An id that was used for another turn says nothing of this one: a cancel is never taken as done without effect.
    """
    if op_id is None:
        return None
    operation = Operation.objects.filter(turn=turn, op_id=op_id).first()
    return OpOutcome(operation.outcome) if operation else None


def remember(conversation_id: UUID, turn_id: UUID, op_id: str | None, outcome: OpOutcome) -> None:
    """Keep the outcome of an operation; what was kept under its id before stays, also that of another turn."""
    if op_id is not None:
        Operation.objects.get_or_create(
            conversation_id=conversation_id,
            op_id=op_id,
            defaults={"turn_id": turn_id, "outcome": outcome.value},
        )


def begin(turn: Turn, op_id: str) -> OpOutcome | None:
    """Take an operation as accepted before it has its effect; return its outcome if it came before."""
    operation, is_new = Operation.objects.get_or_create(
        conversation_id=turn.conversation_id,
        op_id=op_id,
        defaults={"turn": turn, "outcome": OpOutcome.ACCEPTED.value},
    )
    if is_new or operation.turn_id != turn.pk:  # of another turn: it says nothing of this one
        return None
    return OpOutcome(operation.outcome)


def end(turn_id: UUID, op_id: str, outcome: OpOutcome) -> None:
    """Keep another outcome of an operation that was begun."""
    Operation.objects.filter(turn=turn_id, op_id=op_id).update(outcome=outcome.value)


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
