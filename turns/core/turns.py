"""The statuses of a turn, the allowed transitions, how a turn ends, and the requests to a running one.

A request of a person or a rule is stored first, then applied by the turn's owner (C12).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from governance import CallStatus, Cancellation, CancelReason, Decision, IllegalTransition
from turns.core import texts


class TurnStatus(StrEnum):
    """The status of a turn; the names are those of the protocol."""

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
SAID_BY_PEOPLE = ("typed", "voice")  # the sources of messages from people
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
    """The ending of a turn, with `error_code` and `error_message` (a sentence for the person) if it failed.

    `error_detail` is the provider's message, for users who may see content.
    """

    status: TurnStatus
    cancellation: Cancellation | None = None
    error_code: str = ""
    error_message: str = ""
    error_detail: str = ""

    @property
    def has_lost_owner(self) -> bool:
        """Whether the turn ended because its process died or could no longer write."""
        return self.status is TurnStatus.INTERRUPTED and self.cancellation is None


def ending_of(cancellation: Cancellation) -> TurnEnding:
    """Return the ending of a turn with this cancellation."""
    status = TurnStatus(cancellation.reason.row.turn_status)
    return TurnEnding(status=status, cancellation=cancellation)


# The endings after a lost lease. Other processes know only that the process was silent, so they use the first one.
LEASE_LOST = TurnEnding(
    status=TurnStatus.INTERRUPTED, error_code="lease_lost", error_message=texts.LEASE_LOST
)
STOOD_STILL = TurnEnding(
    status=TurnStatus.INTERRUPTED, error_code="stood_still", error_message=texts.STOOD_STILL
)
DATABASE_AWAY = TurnEnding(
    status=TurnStatus.INTERRUPTED, error_code="database_away", error_message=texts.DATABASE_AWAY
)
DEADLY = ("", LEASE_LOST.error_code, STOOD_STILL.error_code)
"""Error codes of interrupted turns that may have crashed or blocked their process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCancel:
    """A request to cancel a turn, or one of its calls if `tool_id` is set."""

    turn_id: UUID
    cancellation: Cancellation
    tool_id: str = ""
    mode: str = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTimeout:
    """A request to set or extend the limit of a call, in milliseconds.

    `id` distinguishes requests for the same call. `is_late` is true if the call has ended or does not exist.
    """

    id: int
    turn_id: UUID
    tool_id: str
    timeout_ms: int | None
    extend_ms: int | None
    by: str = ""
    is_late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingDecision:
    """A decision on the question that a call waits for."""

    turn_id: UUID
    tool_id: str
    decision: Decision


PendingRequest = PendingCancel | PendingTimeout | PendingDecision


def only_waits(open_calls: Iterable[tuple[CallStatus, bool]]) -> bool:
    """Return whether a turn with these open calls only waits for people or other turns, and so needs no slot.

    `open_calls` contains the status of each call, and whether its tool only waits.
    """
    calls = list(open_calls)
    return bool(calls) and all(
        status is CallStatus.AWAITING_APPROVAL or waits for status, waits in calls
    )
