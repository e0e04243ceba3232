"""The requests that are stored for the owners of turns (C12; sync ORM). There is one table of their kinds, one read, one settle.

Each kind keeps rows of its own. A new kind is one entry here, and one case in `RunningTurn.apply`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from turns.calls import approvals, timeout_changes
from turns.cancelling import cancel_requests
from turns.core.requests import PendingCancel, PendingDecision, PendingRequest, PendingTimeout


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestKind:
    """How requests of one kind are read and settled. They are for turns, or for the open questions of calls.

    Without `settle`, their effect settles them: the end of what is cancelled, the decision itself.
    """

    read: Callable[[Sequence[UUID], Sequence[str]], Sequence[PendingRequest]]
    settle: Callable[[Sequence[Any]], None] | None = None


KINDS: Mapping[type[PendingRequest], RequestKind] = {
    PendingCancel: RequestKind(read=lambda turn_ids, _: cancel_requests.pending(turn_ids)),
    PendingTimeout: RequestKind(
        read=lambda turn_ids, _: timeout_changes.pending(turn_ids), settle=timeout_changes.settle
    ),
    PendingDecision: RequestKind(read=lambda _, questions: approvals.pending(questions)),
}


def pending(turn_ids: Sequence[UUID], questions: Sequence[str]) -> list[PendingRequest]:
    """Return what is asked of these turns and not settled, and the decisions on these questions: cancels first."""
    return [request for kind in KINDS.values() for request in kind.read(turn_ids, questions)]


def needs_settling(request: PendingRequest) -> bool:
    """Whether a request that was applied has to be settled apart from its effect."""
    return KINDS[type(request)].settle is not None


def settle(requests: Sequence[PendingRequest]) -> None:
    """Note that requests were applied, or have come too late."""
    for of_kind, kind in KINDS.items():
        applied = [request for request in requests if type(request) is of_kind]
        if applied and kind.settle is not None:
            kind.settle(applied)
