"""Work that is wanted often is done one run at a time, less often the longer it takes, and never again once stopped."""

import asyncio

import pytest

from tests.support import eventually
from turns.core.throttle import LONGEST_PAUSE, PAUSE, Throttle


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


async def test_a_run_that_took_long_is_followed_by_a_longer_pause():
    work = Work()
    work.gate.clear()
    pacer = Throttle(work, spacing=0.001, name="work")
    pacer.request()
    await eventually(lambda: work.runs)
    await asyncio.sleep(0.02)  # what the run takes, not what the test waits for
    pacer.request()
    loop = asyncio.get_running_loop()
    work.gate.set()
    await pacer.join()
    took = loop.time() - work.runs[0]
    pause = timer_of(pacer).when() - loop.time()
    assert 0.02 <= pause <= min(PAUSE * took, LONGEST_PAUSE) + 0.02
    pacer.stop()


async def test_no_pause_is_longer_than_people_want_to_wait(monkeypatch):
    loop = asyncio.get_running_loop()
    work = Work()
    work.gate.clear()
    pacer = Throttle(work, spacing=0, name="work")
    pacer.request()
    await eventually(lambda: work.runs)
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + 60)  # the run takes a minute
    pacer.request()
    work.gate.set()
    await pacer.join()
    assert timer_of(pacer).when() - loop.time() <= LONGEST_PAUSE
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
