"""What people and rules ask of a running turn. Each request is stored first, then applied by the turn's owner (C12)."""

from dataclasses import dataclass
from uuid import UUID

from governance import Cancellation, Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCancel:
    """A request to end a turn, or one of its calls where `tool_id` is set."""

    turn_id: UUID
    cancellation: Cancellation
    tool_id: str = ""
    mode: str = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTimeout:
    """A request to give a call another limit, or to extend the one it has; in milliseconds.

    `id` tells two requests for one call apart. `is_late` says that the call has ended, or never was.
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
