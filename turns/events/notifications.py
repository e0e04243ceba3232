"""News: what is to be told of a change once it is committed, by whatever it was caused (C2, C12).

Every cancel and every end of a turn has the same two things to tell. These are events, and the requests to the owners
of turns. Both are hints: the rows are the truth.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from turns.core.requests import PendingRequest
from turns.events import acknowledgements, log, sinks

NotifyOwner = Callable[[UUID, Sequence[PendingRequest]], Awaitable[None]]
"""Tells a process what was stored for its turns."""


@dataclass(slots=True)
class Notifications:
    """Events to publish by conversation, requests by the process that owns their turns, answers that may be due.

    `cancelled` is how many turns were asked to stop. `has_left_out` says that some were not, since somebody was writing
    their conversations.
    """

    batches: list[log.Batch] = field(default_factory=list)
    requests: dict[UUID, list[PendingRequest]] = field(default_factory=dict)
    answers: list[int] = field(default_factory=list)
    cancelled: int = 0
    has_left_out: bool = False

    def ask(self, owner_id: UUID | None, request: PendingRequest) -> None:
        """Take in what the owner of a turn is asked for. Nobody can be told of a turn that has none."""
        if owner_id is not None:
            self.requests.setdefault(owner_id, []).append(request)

    def add(self, other: "Notifications") -> None:
        """Take in what there is to tell of others."""
        self.batches += other.batches
        for owner_id, requests in other.requests.items():
            self.requests.setdefault(owner_id, []).extend(requests)
        self.answers += other.answers
        self.cancelled += other.cancelled
        self.has_left_out |= other.has_left_out


async def notify(notifications: Notifications, *, notify_owner: NotifyOwner) -> None:
    """Publish the events, and tell all owners meanwhile, so that none waits for a broker or for another.

    What gets lost, polls find.
    """
    if not notifications.requests:
        await _publish(notifications)
        return
    told = (notify_owner(owner_id, asked) for owner_id, asked in notifications.requests.items())
    await asyncio.gather(_publish(notifications), *told)


async def _publish(notifications: Notifications) -> None:
    for conversation_id, events in notifications.batches:
        await sinks.publish(conversation_id, events)
    acknowledgements.begin(notifications.answers)
