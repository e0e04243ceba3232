"""Work that is wanted often is done one run at a time, and less often the longer it takes. It never runs once stopped."""

import asyncio

import pytest

from tests.governance.core.support import advance, on_manual_clock, settle
from tests.support import eventually
from turns.core.throttle import CROWD, CROWDED, LONGEST_PAUSE, PAUSE, Throttle, Ticker


class Work:
    """Counts its runs; each takes until it is let go."""

    def __init__(self) -> None:
        self.runs: list[float] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def __call__(self) -> None:
        self.runs.append(asyncio.get_running_loop().time())
        await self.gate.wait()
        if self.error is not None:
            raise self.error


def timer_of(pacer: Throttle) -> asyncio.TimerHandle:
    assert pacer._timer is not None
    return pacer._timer


async def test_what_is_wanted_during_a_run_is_done_once_after_it():
    work = Work()
    work.gate.clear()
    pacer = Throttle(work, spacing=0, name="work")
    pacer.request()
    await eventually(lambda: len(work.runs) == 1)
    pacer.request()
    pacer.request()
    assert len(work.runs) == 1
    work.gate.set()
    await eventually(lambda: len(work.runs) == 2)
    await pacer.join()
    assert len(work.runs) == 2


async def test_nothing_runs_that_nobody_wants():
    work = Work()
    pacer = Throttle(work, spacing=0, name="work")
    pacer.request()
    await eventually(lambda: work.runs)
    await pacer.join()
    assert pacer._timer is None
    assert len(work.runs) == 1


@pytest.mark.parametrize(
    ("took", "pause"), [(0.02, PAUSE * 0.02), (60, LONGEST_PAUSE)], ids=["long", "too long"]
)
@on_manual_clock
async def test_a_run_that_took_long_is_followed_by_a_longer_pause_up_to_a_bound(took, pause):
    work = Work()
    work.gate.clear()
    pacer = Throttle(work, spacing=0.001, name="work")
    pacer.request()
    await advance(took)
    assert len(work.runs) == 1
    pacer.request()
    work.gate.set()
    await settle()
    assert timer_of(pacer).when() - asyncio.get_running_loop().time() == pytest.approx(pause)
    pacer.stop()


async def test_nothing_begins_after_the_stop():
    work = Work()
    pacer = Throttle(work, spacing=0, name="work")
    pacer.stop()
    pacer.request()
    assert pacer._timer is None
    assert not work.runs


async def test_an_error_is_kept_and_ends_it():
    work = Work()
    work.error = OSError("disk full")
    pacer = Throttle(work, spacing=0, name="work")
    pacer.request()
    await eventually(lambda: pacer.error)
    pacer.request()
    assert pacer._timer is None
    with pytest.raises(OSError, match="disk full"):
        raise pacer.error


async def rounds_of(ticker: Ticker, count: int, *, wanted_by: int) -> list[float]:
    """Let so many want something in each of `count` rounds; return when these came, from now on."""
    loop = asyncio.get_running_loop()
    begun_at = loop.time()
    rounds: list[float] = []
    for _ in range(count):
        done = asyncio.Event()
        for _who in range(wanted_by):
            ticker.request(lambda done=done: done.set())  # type: ignore[misc]
        await done.wait()
        rounds.append(loop.time() - begun_at)
    return rounds


@pytest.mark.parametrize(
    ("wanted_by", "spacing"), [(1, 0.2), (CROWD + 1, 0.2 * CROWDED)], ids=["few", "a crowd"]
)
@on_manual_clock
async def test_a_ticker_works_at_once_after_a_rest_and_then_at_its_pace(wanted_by, spacing):
    rounds = asyncio.create_task(rounds_of(Ticker(spacing=0.2), 3, wanted_by=wanted_by))
    await advance(1)
    assert rounds.result() == pytest.approx([0, spacing, 2 * spacing])


@on_manual_clock
async def test_a_ticker_rests_as_long_as_its_last_round_took():
    ticker, loop = Ticker(spacing=0), asyncio.get_running_loop()
    ended: list[float] = []

    def late() -> None:
        ended.append(loop.time())

    ticker.request(late)
    loop.jump(0.1)
    await settle()
    again = asyncio.create_task(rounds_of(ticker, 1, wanted_by=1))
    await advance(1)
    assert len(ended) == 1
    assert again.result() == pytest.approx([0.1])


async def test_what_is_withdrawn_is_not_done():
    ticker, done = Ticker(spacing=0), []
    work = lambda: done.append("never")  # noqa: E731 - the same object twice
    ticker.request(work)
    ticker.withdraw(work)
    await rounds_of(ticker, 1, wanted_by=1)
    assert done == []
