"""The lane to the database: one at a time, the most urgent first, and who gives up holds up nobody."""

import asyncio

from turns.running.write_queue import PriorityLock, Urgency

ALL = (Urgency.PROGRESS, Urgency.WORK, Urgency.ENDING, Urgency.WORK)


class Road:
    """Lets tasks pass a lane that the test holds."""

    def __init__(self) -> None:
        self.lane = PriorityLock()
        self.passed: list[tuple[Urgency, int]] = []

    async def wait(self, *urgencies: Urgency) -> list[asyncio.Task[None]]:
        tasks = [
            asyncio.create_task(self._pass(urgency, number))
            for number, urgency in enumerate(urgencies)
        ]
        await asyncio.sleep(0)
        return tasks

    async def _pass(self, urgency: Urgency, number: int) -> None:
        async with self.lane.acquired(urgency):
            self.passed.append((urgency, number))
            await asyncio.sleep(0)


async def test_the_most_urgent_passes_first_and_equals_in_order():
    road = Road()
    async with road.lane.acquired(Urgency.PROGRESS):
        tasks = await road.wait(*ALL)
        assert road.passed == []
    await asyncio.gather(*tasks)
    assert road.passed == [(ALL[number], number) for number in (2, 1, 3, 0)]


async def test_who_gives_up_while_waiting_holds_up_nobody():
    road = Road()
    async with road.lane.acquired(Urgency.WORK):
        first, second = await road.wait(Urgency.ENDING, Urgency.WORK)
        first.cancel()
    await second
    assert road.passed == [(Urgency.WORK, 1)]


async def test_who_gives_up_as_he_is_let_in_lets_the_next_one_in():
    road = Road()
    async with road.lane.acquired(Urgency.WORK):
        first, second = await road.wait(Urgency.ENDING, Urgency.WORK)
    first.cancel()  # let in, but not running yet
    await asyncio.wait_for(second, 5)
    assert road.passed == [(Urgency.WORK, 1)]
    async with asyncio.timeout(5), road.lane.acquired(Urgency.PROGRESS):
        pass
