"""Work that is wanted often is done one run at a time, and less often the longer it takes. It never runs once stopped."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from tests.governance.core.support import advance, on_manual_clock, settle
from tests.support import eventually
from turns.core.answering import GRID, LONGEST_PAUSE, PAUSE, CallbackThrottle, Throttle


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


def timer_of(throttle: Throttle) -> asyncio.TimerHandle:
    assert throttle._timer is not None
    return throttle._timer


async def test_what_is_wanted_during_a_run_is_done_once_after_it():
    work = Work()
    work.gate.clear()
    throttle = Throttle(work, spacing=0, name="work")
    throttle.request()
    await eventually(lambda: len(work.runs) == 1)
    throttle.request()
    throttle.request()
    assert len(work.runs) == 1
    work.gate.set()
    await eventually(lambda: len(work.runs) == 2)
    await throttle.join()
    assert len(work.runs) == 2


async def test_nothing_runs_that_nobody_wants():
    work = Work()
    throttle = Throttle(work, spacing=0, name="work")
    throttle.request()
    await eventually(lambda: work.runs)
    await throttle.join()
    assert throttle._timer is None
    assert len(work.runs) == 1


@pytest.mark.parametrize(
    ("took", "pause"), [(0.02, PAUSE * 0.02), (60, LONGEST_PAUSE)], ids=["long", "too long"]
)
@on_manual_clock
async def test_a_run_that_took_long_is_followed_by_a_longer_pause_up_to_a_bound(took, pause):
    work = Work()
    work.gate.clear()
    throttle = Throttle(work, spacing=0.001, name="work")
    throttle.request()
    await advance(took)
    assert len(work.runs) == 1
    throttle.request()
    work.gate.set()
    await settle()
    assert timer_of(throttle).when() - asyncio.get_running_loop().time() == pytest.approx(pause)
    throttle.stop()


async def test_nothing_begins_after_the_stop():
    work = Work()
    throttle = Throttle(work, spacing=0, name="work")
    throttle.stop()
    throttle.request()
    assert throttle._timer is None
    assert not work.runs


async def test_an_error_is_kept_and_ends_it():
    work = Work()
    work.error = OSError("disk full")
    throttle = Throttle(work, spacing=0, name="work")
    throttle.request()
    await eventually(lambda: throttle.error)
    throttle.request()
    assert throttle._timer is None
    with pytest.raises(OSError, match="disk full"):
        raise throttle.error


class Calls:
    """Remembers when it was called, and can take a while."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.takes = 0.0

    def __call__(self) -> None:
        loop: Any = asyncio.get_running_loop()
        self.at.append(loop.time())
        loop.jump(self.takes)


@on_manual_clock
async def test_a_callback_is_called_at_once_after_a_rest_and_then_at_its_pace():
    calls = Calls()
    throttle = CallbackThrottle(calls, spacing=0.2)
    begun_at = asyncio.get_running_loop().time()
    throttle.request()
    assert calls.at == [begun_at]

    throttle.request()
    throttle.request()
    await advance(0.15)
    throttle.request()
    await advance(0.05)
    assert calls.at == pytest.approx([begun_at, begun_at + 0.2])

    await advance(1)
    throttle.request()
    assert calls.at == pytest.approx([begun_at, begun_at + 0.2, begun_at + 1.2])


@on_manual_clock
async def test_callbacks_that_wait_are_called_in_one_iteration_of_the_loop():
    """Each iteration asks the system for what is ready, which costs as much as a callback."""
    loop: Any = asyncio.get_running_loop()
    loop.jump(GRID * 0.1)
    many = [Calls() for _ in range(3)]
    for calls in many:
        throttle = CallbackThrottle(calls, spacing=2 * GRID)
        throttle.request()
        throttle.request()
        loop.jump(GRID * 0.3)
    await advance(3 * GRID)
    assert [len(calls.at) for calls in many] == [2, 2, 2]
    assert len({calls.at[1] for calls in many}) == 1


@pytest.mark.parametrize("begun_after", [0, 0.01, 0.02])
@on_manual_clock
async def test_a_callback_is_never_called_more_often_than_it_may(begun_after):
    loop: Any = asyncio.get_running_loop()
    loop.jump(begun_after)
    calls = Calls()
    throttle = CallbackThrottle(calls, spacing=2 * GRID)
    for _ in range(300):
        throttle.request()
        await advance(0.007)
    gaps = [later - earlier for earlier, later in pairwise(calls.at)]
    assert min(gaps) >= 2 * GRID - 1e-6
    assert max(gaps) <= 3 * GRID + 1e-6


@pytest.mark.parametrize(
    ("takes", "rest"), [(0.3, 0.3), (60, LONGEST_PAUSE)], ids=["long", "too long"]
)
@on_manual_clock
async def test_a_callback_that_took_long_is_followed_by_as_long_a_rest_up_to_a_bound(takes, rest):
    calls = Calls()
    calls.takes = takes
    throttle = CallbackThrottle(calls, spacing=0.1)
    throttle.request()
    ended_at = asyncio.get_running_loop().time()
    throttle.request()
    await advance(rest)
    assert calls.at[1] == pytest.approx(ended_at + rest)


@on_manual_clock
async def test_a_callback_that_comes_late_is_followed_by_as_long_a_rest():
    calls, loop = Calls(), asyncio.get_running_loop()
    throttle = CallbackThrottle(calls, spacing=0.1)
    throttle.request()
    throttle.request()
    loop.jump(0.4)
    await settle()
    came_at = loop.time()
    assert calls.at[1:] == [came_at]
    throttle.request()
    await advance(0.3)
    assert calls.at[2:] == pytest.approx([came_at + 0.3])


@on_manual_clock
async def test_a_callback_that_is_withdrawn_is_not_called_until_it_is_requested_again():
    calls = Calls()
    throttle = CallbackThrottle(calls, spacing=0.1)
    throttle.request()
    throttle.request()
    throttle.withdraw()
    await advance(1)
    assert len(calls.at) == 1
    throttle.request()
    assert len(calls.at) == 2
