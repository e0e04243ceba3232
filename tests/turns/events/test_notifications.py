"""What a change has to tell, and to whom."""

import asyncio
from uuid import UUID, uuid4

from turns.events.notifications import Notifications, notify


async def test_no_owner_waits_until_another_was_told():
    owners = {uuid4() for _ in range(3)}
    all_told = asyncio.Barrier(len(owners))
    told: set[UUID] = set()

    async def check_requests(owner_id: UUID) -> None:
        told.add(owner_id)
        await all_told.wait()

    await asyncio.wait_for(
        notify(Notifications(owner_ids=owners), check_requests=check_requests), 5
    )
    assert told == owners
