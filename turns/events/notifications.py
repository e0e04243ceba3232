"""Notifications: the messages to send after a change is committed (C2, C12).

Every cancel and every end of a turn leads to events to publish, and to requests to the owners of turns. Both are hints,
because the rows are authoritative.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from turns.core.turns import PendingRequest
from turns.events import acknowledgements, log, sinks

NotifyOwner = Callable[[UUID, Sequence[PendingRequest]], Awaitable[None]]
"""Notifies a process of stored requests for its turns."""


@dataclass(slots=True)
class Notifications:
    """The notifications of a change: events by conversation, requests by owning process, and answers that may be due.

    `cancelled` is the number of cancelled turns. `has_left_out` is true if some turns were skipped because their
    conversations were locked. `reports_wait` is true if some reports of sub-agents are not delivered yet, perhaps
    because they wait for the end of a turn.
    """

    batches: list[log.Batch] = field(default_factory=list)
    requests: dict[UUID, list[PendingRequest]] = field(default_factory=dict)
    answers: list[int] = field(default_factory=list)
    cancelled: int = 0
    has_left_out: bool = False
    reports_wait: bool = False

    def ask(self, owner_id: UUID | None, request: PendingRequest) -> None:
        """Add a request to the owner of a turn; a turn without an owner is ignored."""
        if owner_id is not None:
            self.requests.setdefault(owner_id, []).append(request)

    def add(self, other: "Notifications") -> None:
        """Merge other notifications into these."""
        self.batches += other.batches
        for owner_id, requests in other.requests.items():
            self.requests.setdefault(owner_id, []).extend(requests)
        self.answers += other.answers
        self.cancelled += other.cancelled
        self.has_left_out |= other.has_left_out


async def notify(notifications: Notifications, *, notify_owner: NotifyOwner) -> None:
    """Publish the events and notify all owners concurrently, so that none waits for a broker or for another owner.

    Polls make up for lost notifications.
    """
    if not notifications.requests:
        await _publish(notifications)
        return
    notices = (
        notify_owner(owner_id, requests) for owner_id, requests in notifications.requests.items()
    )
    await asyncio.gather(_publish(notifications), *notices)


async def _publish(notifications: Notifications) -> None:
    for conversation_id, events in notifications.batches:
        await sinks.publish(conversation_id, events)
    acknowledgements.begin(notifications.answers)
