"""News: what is to be told of a change once it is committed, by whatever it was caused (C2, C12).

A person's cancel, a rule's, a cascade and the end of a turn have the same two things to tell: events, and that owners have
something to obey. Both are hints: the rows are the truth.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import UUID

from turns.events import acknowledgements, log, sinks


@dataclass(slots=True)
class Notifications:
    """Events to publish by conversation, the processes for whose turns something is stored, answers that may be due.

    `cancelled` is how many turns were asked to stop; `has_left_out` says that some were not, since somebody was writing
    their conversations.
    """

    batches: list[log.Batch] = field(default_factory=list)
    owner_ids: set[UUID] = field(default_factory=set)
    answers: list[int] = field(default_factory=list)
    cancelled: int = 0
    has_left_out: bool = False

    def add(self, other: "Notifications") -> None:
        """Take in what there is to tell of others."""
        self.batches += other.batches
        self.owner_ids |= other.owner_ids
        self.answers += other.answers
        self.cancelled += other.cancelled
        self.has_left_out |= other.has_left_out


async def notify(
    notifications: Notifications, *, check_requests: Callable[[UUID], Awaitable[None]]
) -> None:
    """Publish the events, then let all owners look at once, so that none waits for another; what gets lost, polls find."""
    for conversation_id, events in notifications.batches:
        await sinks.publish(conversation_id, events)
    acknowledgements.begin(notifications.answers)
    await asyncio.gather(*(check_requests(owner_id) for owner_id in notifications.owner_ids))
