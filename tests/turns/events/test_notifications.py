"""What a change has to tell, and to whom."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from governance import Cancellation, CancelReason
from turns.core.turns import PendingCancel, PendingRequest
from turns.events import sinks
from turns.events.notifications import Notifications, notify

CANCELLATION = Cancellation(reason=CancelReason.USER)


async def test_no_owner_waits_until_another_was_told():
    owners = {uuid4() for _ in range(3)}
    all_told = asyncio.Barrier(len(owners))
    told: set[UUID] = set()

    async def notify_owner(owner_id: UUID, requests: Sequence[PendingRequest]) -> None:
        assert [request.turn_id for request in requests] == [owner_id]
        told.add(owner_id)
        await all_told.wait()

    notifications = Notifications()
    for owner_id in owners:
        notifications.ask(owner_id, PendingCancel(turn_id=owner_id, cancellation=CANCELLATION))
    await asyncio.wait_for(notify(notifications, notify_owner=notify_owner), 5)
    assert told == owners


async def test_no_owner_waits_until_the_events_are_published():
    """A broker takes its time; what is to be cancelled runs on meanwhile."""
    owner_id, conversation_id = uuid4(), uuid4()
    has_equal = asyncio.Event()
    published: list[str] = []

    class SlowSink:
        async def publish(self, conversation_id: UUID, event: dict[str, Any]) -> None:
            await has_equal.wait()
            published.append(event["type"])

    async def notify_owner(_owner_id: UUID, _requests: Sequence[PendingRequest]) -> None:
        has_equal.set()

    notifications = Notifications([(conversation_id, [{"type": "one"}, {"type": "two"}])])
    notifications.ask(owner_id, PendingCancel(turn_id=owner_id, cancellation=CANCELLATION))
    slow = SlowSink()
    sinks.register(slow)
    try:
        await asyncio.wait_for(notify(notifications, notify_owner=notify_owner), 5)
    finally:
        sinks.unregister(slow)
    assert published == ["one", "two"]
