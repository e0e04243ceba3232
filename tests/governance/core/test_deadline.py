"""A deadline expires once, at the right moment, wherever it is moved, however long it is paused (T5, T6, T9)."""

import asyncio

import pytest

from governance.core.deadline import Deadline, Limit
from tests.governance.core.support import advance, on_manual_clock


class Expiries(list):
    """What ran out, and when, counted from the start."""

    def __init__(self):
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()

    def __call__(self, limit, seconds):
        self.append((limit, seconds, round(self._loop.time() - self._start, 3)))


def make(*, timeout=None, idle_timeout=None):
    expiries = Expiries()
    return Deadline(timeout=timeout, idle_timeout=idle_timeout, on_expire=expiries), expiries


@on_manual_clock
async def test_expires_once_at_its_total_limit():
    _, expiries = make(timeout=10)

    await advance(9.99)
    assert expiries == []
    await advance(100)
    assert expiries == [(Limit.TOTAL, 10, 10.0)]


@on_manual_clock
async def test_without_limits_never_expires():
    deadline, expiries = make()

    await advance(10**6)

    assert expiries == []
    assert deadline.time_left is None


@on_manual_clock
async def test_silence_expires_the_idle_limit():
    _, expiries = make(timeout=60, idle_timeout=5)

    await advance(60)

    assert expiries == [(Limit.IDLE, 5, 5.0)]


@on_manual_clock
async def test_signs_of_life_keep_the_idle_limit_off_until_silence():
    deadline, expiries = make(timeout=60, idle_timeout=5)

    for _ in range(4):
        await advance(4)
        deadline.touch()
    await advance(60)

    assert expiries == [(Limit.IDLE, 5, 21.0)]


@on_manual_clock
async def test_signs_of_life_do_not_prolong_the_total_limit():
    deadline, expiries = make(timeout=10, idle_timeout=5)

    for _ in range(5):
        await advance(3)
        deadline.touch()

    assert expiries == [(Limit.TOTAL, 10, 10.0)]


@on_manual_clock
async def test_the_total_limit_is_named_when_both_run_out_together():
    _, expiries = make(timeout=5, idle_timeout=5)

    await advance(5)

    assert expiries == [(Limit.TOTAL, 5, 5.0)]


@pytest.mark.parametrize(("to", "at"), [(20, 20.0), (7, 7.0)], ids=["later", "earlier"])
@on_manual_clock
async def test_moved_counts_from_the_start_of_the_run(to, at):
    deadline, expiries = make(timeout=10)

    await advance(6)
    deadline.move(to, idle_timeout=None)
    await advance(60)

    assert expiries == [(Limit.TOTAL, to, at)]


@on_manual_clock
async def test_moved_to_a_moment_already_past_expires_at_once():
    deadline, expiries = make(timeout=10)

    await advance(6)
    deadline.move(2, idle_timeout=None)
    await advance(0)

    assert expiries == [(Limit.TOTAL, 2, 6.0)]


@pytest.mark.parametrize(
    "stop", [Deadline.close, lambda it: it.move(None, idle_timeout=None)], ids=["closed", "moved"]
)
@on_manual_clock
async def test_closed_or_moved_to_no_limit_never_expires(stop):
    deadline, expiries = make(timeout=10, idle_timeout=5)

    stop(deadline)
    await advance(100)

    assert expiries == []


@on_manual_clock
async def test_an_idle_limit_set_late_counts_from_the_last_sign_of_life():
    deadline, expiries = make(timeout=60)

    await advance(8)
    deadline.touch()
    await advance(2)
    deadline.move(60, idle_timeout=5)
    await advance(60)

    assert expiries == [(Limit.IDLE, 5, 13.0)]


@on_manual_clock
async def test_a_pause_counts_for_neither_limit():
    deadline, expiries = make(timeout=10, idle_timeout=6)

    await advance(4)
    deadline.pause()
    await advance(100)
    assert (deadline.elapsed, deadline.time_left) == (4, 6)
    deadline.resume()
    await advance(60)

    assert expiries == [(Limit.IDLE, 6, 106.0)]


@on_manual_clock
async def test_a_sign_of_life_in_a_pause_starts_the_idle_clock_at_its_end():
    deadline, expiries = make(idle_timeout=6)

    await advance(4)
    deadline.pause()
    await advance(50)
    deadline.touch()
    await advance(50)
    deadline.resume()
    await advance(60)

    assert expiries == [(Limit.IDLE, 6, 110.0)]


@on_manual_clock
async def test_moved_in_a_pause_waits_for_its_end():
    deadline, expiries = make(timeout=10)

    await advance(4)
    deadline.pause()
    deadline.move(2, idle_timeout=None)
    await advance(50)
    assert expiries == []
    deadline.resume()
    await advance(0)

    assert expiries == [(Limit.TOTAL, 2, 54.0)]


@on_manual_clock
async def test_pausing_or_resuming_twice_changes_nothing():
    deadline, expiries = make(timeout=10)

    deadline.resume()
    deadline.pause()
    await advance(5)
    deadline.pause()
    await advance(5)
    deadline.resume()
    deadline.resume()
    await advance(60)

    assert expiries == [(Limit.TOTAL, 10, 20.0)]


@pytest.mark.parametrize("late", [Deadline.resume, lambda it: it.move(20, idle_timeout=None)])
@on_manual_clock
async def test_closed_in_a_pause_is_not_set_going_again_by_who_comes_late(late):
    deadline, expiries = make(timeout=10)
    deadline.pause()
    deadline.close()
    late(deadline)
    deadline.resume()
    await advance(100)
    assert expiries == []


@on_manual_clock
async def test_time_left_ends_at_zero():
    deadline, _ = make(timeout=10)

    assert deadline.time_left == 10
    await advance(4)
    assert deadline.time_left == 6
    await advance(60)
    assert deadline.time_left == 0
