"""A deadline expires once, at the right moment, wherever it is moved, however long it is paused (T5, T6, T9)."""

import asyncio
from contextvars import ContextVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.core.deadline import LOOK_INTERVAL, NEAR, Deadline, Limit
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


class TestFarDeadlines:
    """A deadline that is not near has no timer: it is looked at now and then, and gets one in time."""

    @on_manual_clock
    async def test_a_far_deadline_sets_no_timer_of_its_own(self):
        loop = asyncio.get_running_loop()
        make(timeout=3600)
        look = len(loop._scheduled)

        deadlines = [make(timeout=3600)[0] for _ in range(100)]
        for deadline in deadlines:
            deadline.close()

        assert len(loop._scheduled) == look

    @on_manual_clock
    async def test_nobody_looks_once_the_last_one_is_closed(self):
        deadline, _ = make(timeout=3600)
        deadline.close()

        await advance(LOOK_INTERVAL)

        assert asyncio.get_running_loop()._scheduled == []

    @on_manual_clock
    async def test_a_later_one_is_looked_at_again(self):
        make(timeout=3600)[0].close()
        await advance(10)

        _, expiries = make(timeout=30)
        await advance(30)

        assert expiries == [(Limit.TOTAL, 30, 30.0)]

    @on_manual_clock
    async def test_expires_at_once_after_the_loop_was_held_up(self):
        _, expiries = make(timeout=10)

        asyncio.get_running_loop().jump(12)
        await advance(0)
        await advance(0)

        assert expiries == [(Limit.TOTAL, 10, 12.0)]

    @on_manual_clock
    async def test_an_expiry_that_fails_keeps_no_other_from_its_end(self):
        loop, failures = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        Deadline(timeout=10, idle_timeout=None, on_expire=lambda *_: 1 / 0)
        _, expiries = make(timeout=11)

        loop.jump(12)
        await advance(LOOK_INTERVAL)

        assert [type(failure) for failure in failures] == [ZeroDivisionError]
        assert [limit for limit, *_ in expiries] == [Limit.TOTAL]

    def test_each_loop_of_a_thread_has_its_own(self):
        @on_manual_clock
        async def run():
            _, expiries = make(timeout=10)
            await advance(10)
            return expiries

        assert run() == run() == [(Limit.TOTAL, 10, 10.0)]

    @on_manual_clock
    async def test_expires_in_the_context_in_which_it_was_made(self):
        seen = []
        place = ContextVar("place", default="nowhere")
        make(timeout=3600)  # whose look it is
        place.set("here")
        Deadline(timeout=10, idle_timeout=None, on_expire=lambda *_: seen.append(place.get()))
        place.set("elsewhere")

        await advance(10)

        assert seen == ["here"]

    @given(
        st.lists(
            st.one_of(
                st.tuples(st.just("advance"), st.sampled_from([0.2, NEAR, 1.7, 7.0])),
                st.tuples(st.just("touch"), st.none()),
                st.tuples(st.just("pause"), st.none()),
                st.tuples(st.just("resume"), st.none()),
                st.tuples(st.just("move"), st.sampled_from([None, 0.5, 3.0, 20.0])),
            ),
            max_size=12,
        ),
        st.sampled_from([None, 0.9, 2.0, 15.0]),
    )
    def test_whatever_happens_it_expires_at_the_moment_that_it_says(self, moves, idle_timeout):
        @on_manual_clock
        async def play():
            deadline, expiries = make(timeout=10.0, idle_timeout=idle_timeout)
            loop, is_paused, due = asyncio.get_running_loop(), False, None
            for move, argument in [*moves, ("resume", None), ("advance", 60.0)]:
                match move:
                    case "advance":
                        due = None if is_paused else deadline.due_at
                        due = due and max(due, loop.time())
                        end = loop.time() + argument
                        await advance(argument)
                        if due is not None and due <= end + 1e-3:
                            assert len(expiries) == 1
                            assert expiries[0][2] == pytest.approx(due - 1000.0, abs=2e-3)
                            return
                        assert expiries == []
                    case "touch":
                        deadline.touch()
                    case "pause":
                        is_paused = True
                        deadline.pause()
                    case "resume":
                        is_paused = False
                        deadline.resume()
                    case "move":
                        deadline.move(argument, idle_timeout=idle_timeout)
                        if not is_paused and (due := deadline.due_at) and due <= loop.time():
                            await advance(0)
                            assert len(expiries) == 1
                            return

        play()
