"""The statuses of a turn, the moves that are allowed between them, and how a turn ends."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from governance import Cancellation, CancelReason, IllegalTransition


class TurnStatus(StrEnum):
    """Where a turn is; the names are the wire's."""

    QUEUED = "queued"
    RUNNING = "running"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"

    @property
    def is_terminal(self) -> bool:
        return self not in ACTIVE_STATUSES


LIVE_STATUSES = (TurnStatus.RUNNING, TurnStatus.CANCELLING)
ACTIVE_STATUSES = (TurnStatus.QUEUED, *LIVE_STATUSES)
SAID_BY_PEOPLE = ("typed", "voice")  # the sources of messages that a person has written or spoken
BY_PEOPLE = tuple(reason for reason in CancelReason if reason.row.is_by_person)
_ENDED = frozenset(status for status in TurnStatus if status not in ACTIVE_STATUSES)
ALLOWED_TRANSITIONS: Mapping[TurnStatus, frozenset[TurnStatus]] = {
    TurnStatus.QUEUED: frozenset({TurnStatus.RUNNING, TurnStatus.CANCELLED, TurnStatus.FAILED}),
    TurnStatus.RUNNING: frozenset({TurnStatus.CANCELLING}) | _ENDED,
    TurnStatus.CANCELLING: _ENDED - {TurnStatus.COMPLETED},
}


def check_transition(before: TurnStatus, after: TurnStatus) -> None:
    """Raise `IllegalTransition` unless `after` may follow `before`."""
    if after not in ALLOWED_TRANSITIONS.get(before, frozenset()):
        raise IllegalTransition(f"A turn cannot go from {before!r} to {after!r}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnding:
    """How a turn ended. `error_code` and `error_message` (a sentence for the person) where it failed."""

    status: TurnStatus
    cancellation: Cancellation | None = None
    error_code: str = ""
    error_message: str = ""

    @property
    def has_lost_owner(self) -> bool:
        """Whether the turn ended because its process is gone, or could not write on."""
        return self.status is TurnStatus.INTERRUPTED and self.cancellation is None


def ending_of(cancellation: Cancellation) -> TurnEnding:
    """Return the ending of a turn that was cancelled for this reason."""
    status = TurnStatus(cancellation.reason.row.turn_status)
    return TurnEnding(status=status, cancellation=cancellation)
