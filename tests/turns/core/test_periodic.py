"""Rounds keep their pace: neither the time that the work takes nor its failure makes the next one late."""

import asyncio
from itertools import pairwise

from tests.support import PATIENCE, eventually
from turns.core.periodic import run_periodically

INTERVAL = 0.2
WORK = 0.15  # seconds


async def test_the_time_that_the_work_takes_does_not_make_the_next_round_late():
    loop = asyncio.get_running_loop()
    begun: list[float] = []

    async def work() -> None:
        begun.append(loop.time())
        await asyncio.sleep(WORK)

    rounds = run_periodically(work, name="round of a test", interval=INTERVAL)
    # A busy machine may make some late, but without the pace none would come sooner than after both times.
    await eventually(
        lambda: any(after - before < INTERVAL + WORK for before, after in pairwise(begun))
    )
    rounds.cancel()
    await asyncio.wait({rounds})
    assert all(after - before > WORK for before, after in pairwise(begun))


async def test_work_that_fails_is_logged_by_its_name_and_done_again(caplog):
    done = asyncio.Event()

    async def work() -> None:
        if len(caplog.records) < 3:
            raise OSError("away")
        done.set()

    rounds = run_periodically(work, name="round of a test", interval=0.001)
    async with asyncio.timeout(PATIENCE):
        await done.wait()
    rounds.cancel()
    await asyncio.wait({rounds})
    assert "A round failed: round of a test: away" in caplog.text
    assert [bool(record.exc_info) for record in caplog.records] == [True, False, False]
