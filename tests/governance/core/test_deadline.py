"""A deadline expires once, at the right moment, wherever it is moved, however long it is paused (T5, T6, T9)."""

import asyncio
from contextvars import ContextVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.core.deadline import Deadline, Limit
from tests.governance.core.support import advance, on_manual_clock


class Expiries(list):
    """What ran out, and when, counted from the start."""

    def __init__(self):
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()

    def __call__(self, expiry):
        self.append((*expiry, round(self._loop.time() - self._start, 3)))


def make(*, timeout=None, idle_timeout=None):
    expiries = Expiries()
    return Deadline(timeout=timeout, idle_timeout=idle_timeout, on_expire=expiries), expiries


pause, resume, touch, close = Deadline.pause, Deadline.resume, Deadline.touch, Deadline.close
TOTAL, IDLE = Limit.TOTAL, Limit.IDLE


def move(timeout, *, idle_timeout=None):
    return lambda deadline: deadline.move(timeout, idle_timeout=idle_timeout)


def hold_up(seconds):
    """Let the loop stand still."""
    return lambda _deadline: asyncio.get_running_loop().jump(seconds)


# The limits (total, idle), what happens (a number lets so many seconds pass), and what expires at which second.
TIMELINES = {
    "once, at its total limit": ((10, None), [110], (TOTAL, 10, 10)),
    "never without limits": ((None, None), [10**6], None),
    "idle after silence": ((60, 5), [60], (IDLE, 5, 5)),
    "idle after the last sign of life": ((60, 5), [*[4, touch] * 4, 60], (IDLE, 5, 21)),
    "total in spite of signs of life": ((10, 5), [3, touch] * 5, (TOTAL, 10, 10)),
    "total if both run out together": ((5, 5), [5], (TOTAL, 5, 5)),
    "moved later, counted from the start": ((10, None), [6, move(20), 60], (TOTAL, 20, 20)),
    "moved earlier, counted from the start": ((10, None), [6, move(7), 60], (TOTAL, 7, 7)),
    "moved into the past, now": ((10, None), [6, move(2), 0], (TOTAL, 2, 6)),
    "moved to no limit, never": ((10, 5), [move(None), 100], None),
    "closed, never": ((10, 5), [close, 100], None),
    "an idle limit set late counts from the last sign of life": (
        (60, None),
        [8, touch, 2, move(60, idle_timeout=5), 60],
        (IDLE, 5, 13),
    ),
    "a pause counts for neither": ((10, 6), [4, pause, 100, resume, 60], (IDLE, 6, 106)),
    "a sign of life in a pause counts from its end": (
        (None, 6),
        [4, pause, 50, touch, 50, resume, 60],
        (IDLE, 6, 110),
    ),
    "moved in a pause, at its end": (
        (10, None),
        [4, pause, move(2), 50, resume, 0],
        (TOTAL, 2, 54),
    ),
    "pausing and resuming twice is once": (
        (10, None),
        [resume, pause, 5, pause, 5, resume, resume, 60],
        (TOTAL, 10, 20),
    ),
    "closed in a pause and resumed, never": ((10, None), [pause, close, resume, 100], None),
    "closed in a pause and moved, never": ((10, None), [pause, close, move(20), resume, 100], None),
    "as soon as a loop goes on that was held up": ((10, None), [hold_up(12), 0], (TOTAL, 10, 12)),
}


@pytest.mark.parametrize(("limits", "steps", "expected"), TIMELINES.values(), ids=TIMELINES)
@on_manual_clock
async def test_expires_as_the_table_says(limits, steps, expected):
    deadline, expiries = make(timeout=limits[0], idle_timeout=limits[1])
    for step in steps:
        if callable(step):
            step(deadline)
        else:
            await advance(step)
    assert expiries == ([expected] if expected else [])


@on_manual_clock
async def test_time_left_stands_still_in_a_pause_and_ends_at_zero():
    deadline, _ = make(timeout=10)
    left = [deadline.time_left]
    for seconds, then in ((4, pause), (100, resume), (0, resume), (60, resume)):
        await advance(seconds)
        then(deadline)
        left.append(deadline.time_left)
    assert left == [10, 6, 6, 6, 0]
    assert deadline.elapsed == 64
    assert make()[0].time_left is None


@on_manual_clock
async def test_an_expiry_that_fails_keeps_no_other_from_its_end():
    loop, failures = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    Deadline(timeout=10, idle_timeout=None, on_expire=lambda *_: 1 / 0)
    _, expiries = make(timeout=11)

    loop.jump(12)
    await advance(0)

    assert [type(failure) for failure in failures] == [ZeroDivisionError]
    assert [limit for limit, *_ in expiries] == [Limit.TOTAL]


@on_manual_clock
async def test_expires_in_the_context_in_which_it_was_made():
    seen = []
    place = ContextVar("place", default="nowhere")
    place.set("here")
    deadline = Deadline(
        timeout=10, idle_timeout=None, on_expire=lambda *_: seen.append(place.get())
    )
    place.set("elsewhere")
    deadline.move(20, idle_timeout=None)

    await advance(20)

    assert seen == ["here"]


class Model:
    """When a deadline shall expire, by the plainest bookkeeping."""

    def __init__(self, now, *, timeout, idle_timeout):
        self.timeout = timeout
        self.idle_timeout = idle_timeout
        self.started_at = self.touched_at = now
        self.paused_at = None

    def due_at(self):
        if self.paused_at is not None:
            return None
        ends = []
        if self.timeout is not None:
            ends.append(self.started_at + self.timeout)
        if self.idle_timeout is not None:
            ends.append(self.touched_at + self.idle_timeout)
        return min(ends, default=None)

    def touch(self, now):
        self.touched_at = now if self.paused_at is None else self.paused_at

    def pause(self, now):
        if self.paused_at is None:
            self.paused_at = now

    def resume(self, now):
        if self.paused_at is not None:
            self.started_at += now - self.paused_at
            self.touched_at += now - self.paused_at
            self.paused_at = None


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("advance"), st.sampled_from([0.2, 1.0, 1.7, 7.0])),
            st.tuples(st.just("touch"), st.none()),
            st.tuples(st.just("pause"), st.none()),
            st.tuples(st.just("resume"), st.none()),
            st.tuples(st.just("move"), st.sampled_from([None, 0.5, 3.0, 20.0])),
        ),
        max_size=12,
    ),
    st.sampled_from([None, 0.9, 2.0, 15.0]),
)
def test_expires_once_and_when_its_limits_say_whatever_happens(moves, idle_timeout):
    @on_manual_clock
    async def play():
        loop = asyncio.get_running_loop()
        deadline, expiries = make(timeout=10.0, idle_timeout=idle_timeout)
        model = Model(loop.time(), timeout=10.0, idle_timeout=idle_timeout)
        start = loop.time()
        for move, argument in [*moves, ("resume", None), ("advance", 60.0)]:
            match move:
                case "advance":
                    due_at = model.due_at()
                    end = loop.time() + argument
                    await advance(argument)
                    if due_at is not None and due_at <= end + 1e-3:
                        assert len(expiries) == 1
                        assert expiries[0][2] == pytest.approx(due_at - start, abs=2e-3)
                        return
                    assert expiries == []
                case "touch":
                    deadline.touch()
                    model.touch(loop.time())
                case "pause":
                    deadline.pause()
                    model.pause(loop.time())
                case "resume":
                    deadline.resume()
                    model.resume(loop.time())
                case "move":
                    deadline.move(argument, idle_timeout=idle_timeout)
                    model.timeout = argument
            due_at = model.due_at()
            if due_at is not None and due_at <= loop.time():  # over already: it expires at once
                await advance(0)
                assert len(expiries) == 1
                return

    play()
