"""The clock of a turn: counted pauses, and one expiry (T5, T10)."""

import asyncio
from contextlib import suppress

import pytest

from tests.support import PATIENCE
from tests.turns.support import is_paused
from turns.core.turn_limits import TurnClock, TurnMetadata


class Expiry:
    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        self.event.set()

    async def within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.event.wait()
        return self.event.is_set()


async def test_expires_once_after_its_time():
    expiry = Expiry()
    clock = TurnClock(timeout=0.01, on_expire=expiry)
    assert await expiry.within(PATIENCE)
    assert (expiry.count, clock.time_left) == (1, 0.0)


async def test_stands_still_until_every_pause_is_over():
    expiry = Expiry()
    clock = TurnClock(timeout=0.03, on_expire=expiry)
    clock.pause()
    clock.pause()
    left = clock.time_left
    assert not await expiry.within(0.06)
    clock.resume()
    assert is_paused(clock)
    assert not await expiry.within(0.06)
    assert clock.time_left == left
    clock.resume()
    assert not is_paused(clock)
    assert await expiry.within(PATIENCE)


async def test_without_a_limit_it_never_expires():
    expiry = Expiry()
    clock = TurnClock(timeout=None, on_expire=expiry)
    clock.pause()
    clock.resume()
    assert clock.time_left is None
    assert not await expiry.within(0.01)


async def test_a_closed_clock_does_not_expire():
    expiry = Expiry()
    TurnClock(timeout=0.01, on_expire=expiry).close()
    assert not await expiry.within(0.03)


async def test_a_resume_without_a_pause_is_a_mistake():
    clock = TurnClock(timeout=None, on_expire=Expiry())
    with pytest.raises(RuntimeError):
        clock.resume()


async def test_the_facts_for_tools_follow_its_pauses():
    clock = TurnClock(timeout=60, on_expire=Expiry())
    facts = TurnMetadata({"turn_id": "t"}, clock=clock)
    clock.pause()
    before = facts["turn_ends_at"]
    await asyncio.sleep(0.02)
    assert facts["turn_ends_at"] > before + 0.01  # it stands still, so the end moves away
    assert dict(facts).keys() == {"turn_id", "turn_ends_at"}
    assert (
        TurnMetadata({}, clock=TurnClock(timeout=None, on_expire=Expiry()))["turn_ends_at"] is None
    )
    clock.close()
