"""The observer is told in order, nothing after the end, and its failures stay its own."""

import asyncio
import gc
from collections import Counter

import pytest

from governance import (
    CallStatus,
    Cancelled,
    TimeoutSource,
    Timing,
)
from tests.governance.core.support import (
    BY_USER,
    ExecutorHarness,
    advance,
    finish,
    on_manual_clock,
    settle,
    start_one,
    started,
)


class TestObserver:
    @on_manual_clock
    async def test_is_told_in_order_and_nothing_after_the_end(self):
        harness, call = await start_one(
            ExecutorHarness(timing=Timing(progress_interval=5, notice_interval=0.5)), timeout=30
        )

        await advance(5)
        harness.executor.set_deadline(call.live, 60)
        call.live.cancel(BY_USER)
        await call.outcome()
        await advance(60)

        assert harness.observer.names() == ["started", "progressed", "moved", "ended"]

    async def test_that_fails_at_the_start_keeps_the_body_from_running(self):
        harness = ExecutorHarness()
        harness.gated()
        harness.observer.errors["started"] = OSError("the database is gone")
        call = harness.call()

        with pytest.raises(OSError, match="gone"):
            await call.task

        assert call.body.runs == 0
        assert harness.observer.names() == ["started"]
        assert (harness.executor.limiter.running, tuple(harness.executor.live)) == (0, ())

    async def test_that_fails_at_the_end_is_heard(self):
        harness = ExecutorHarness()
        harness.gated()
        harness.observer.errors["ended"] = OSError("the database is gone")
        (call,) = await started(harness, "A")
        call.body.release()

        with pytest.raises(OSError, match="gone"):
            await call.task

        assert (harness.executor.limiter.running, tuple(harness.executor.live)) == (0, ())

    @pytest.mark.parametrize("notice", ["cancelling", "moved"])
    @on_manual_clock
    async def test_that_fails_in_between_harms_nobody(self, notice, caplog):
        harness = ExecutorHarness()
        harness.gated()
        harness.observer.errors[notice] = OSError("s3cret")
        (call,) = await started(harness, "A")
        call.body.is_stubborn = True

        harness.executor.set_deadline(call.live, 60)
        call.live.cancel(BY_USER)
        await advance(0.5)
        call.body.fail(Cancelled(BY_USER))
        outcome = await call.outcome()

        assert outcome.status is CallStatus.CANCELLED
        assert harness.observer.names()[-1] == "ended"
        assert "An observer failed" in caplog.messages

    async def test_that_is_slow_is_not_overtaken(self):
        harness = ExecutorHarness()
        harness.gated()
        harness.observer.gates["moved"] = asyncio.Event()
        (call,) = await started(harness, "A")

        harness.executor.set_deadline(call.live, 60)
        call.live.cancel(BY_USER)
        await settle()
        assert harness.observer.names() == ["started"]
        harness.observer.gates["moved"].set()
        await call.outcome()

        assert harness.observer.names() == ["started", "moved", "ended"]

    @on_manual_clock
    async def test_is_told_of_a_stop_only_where_the_body_does_not_end_at_once(self):
        harness = ExecutorHarness()
        harness.gated()
        quick, slow = await started(harness, "A", "B")
        slow.body.is_stubborn = True

        quick.live.cancel(BY_USER)
        slow.live.cancel(BY_USER)
        await advance(0.5)
        await finish(slow)

        assert harness.observer.names("A") == ["started", "ended"]
        assert harness.observer.names("B") == ["started", "cancelling", "ended"]

    @on_manual_clock
    async def test_hears_of_a_silent_call_in_every_interval(self):
        harness, call = await start_one(
            ExecutorHarness(timing=Timing(progress_interval=5, notice_interval=0.5))
        )

        await advance(4.9)
        assert harness.observer.names() == ["started"]
        await advance(10.6)
        await finish(call)

        assert Counter(harness.observer.names())["progressed"] == 3

    @on_manual_clock
    async def test_hears_of_progress_soon_and_of_a_chatty_tool_seldom(self):
        harness, call = await start_one(
            ExecutorHarness(timing=Timing(progress_interval=5, notice_interval=0.5))
        )

        for _ in range(100):
            call.body.context.progress("working")
            await advance(0.01)
        assert call.live.last_progress.message == "working"
        await finish(call)

        assert 1 <= Counter(harness.observer.names())["progressed"] <= 2

    @on_manual_clock
    async def test_reads_the_call_as_it_is(self):
        harness = ExecutorHarness()
        harness.gated(timeout=30)
        harness.observer.gates["started"] = asyncio.Event()
        call = harness.call()
        await harness.observer.arrived["started"].wait()

        live = call.live
        assert (live.status, live.timeout, live.timeout_source) == (
            CallStatus.RUNNING,
            30,
            TimeoutSource.TOOL,
        )
        assert (live.elapsed, live.partial_output, live.ended_by) == (0, "", None)
        harness.observer.gates["started"].set()
        await call.running()
        call.body.is_stubborn = True
        live.cancel(BY_USER)
        await advance(0.5)
        assert (live.status, live.ended_by) == (CallStatus.CANCELLING, BY_USER)
        call.body.fail(Cancelled(BY_USER))
        await call.outcome()
        assert live.status is CallStatus.CANCELLED

    async def test_progress_after_the_end_is_not_taken(self):
        _, call = await start_one()
        await finish(call)

        call.body.context.progress("too late", output="too late")

        assert (call.live.last_progress, call.live.partial_output) == (None, "")


def test_notices_that_wait_as_their_loop_ends_warn_of_nothing():
    async def move_twice_and_leave():
        harness, call = await start_one(timeout=30)
        harness.observer.gates["moved"] = asyncio.Event()
        for seconds in (60, 90):
            assert harness.executor.set_deadline(call.live, seconds)
        await harness.observer.arrived["moved"].wait()
        return harness

    harness = asyncio.run(move_twice_and_leave())
    gc.collect()
    assert harness.observer.names() == ["started", "late"]
