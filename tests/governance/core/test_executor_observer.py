"""The observer is told in order, nothing after the end, and its failures stay its own."""

import asyncio
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
    Stage,
    advance,
    on_manual_clock,
    settle,
    started,
)


class TestObserver:
    @on_manual_clock
    async def test_is_told_in_order_and_nothing_after_the_end(self):
        stage = Stage(timing=Timing(progress_interval=5, notice_interval=0.5))
        stage.gated(timeout=30)
        (call,) = await started(stage, "A")

        await advance(5)
        stage.executor.set_deadline(call.live, 60)
        call.live.cancel(BY_USER)
        await call.outcome()
        await advance(60)

        assert stage.observer.names() == ["started", "progressed", "moved", "ended"]

    async def test_that_fails_at_the_start_keeps_the_body_from_running(self):
        stage = Stage()
        stage.gated()
        stage.observer.errors["started"] = OSError("the database is gone")
        call = stage.call()

        with pytest.raises(OSError, match="gone"):
            await call.task

        assert call.body.runs == 0
        assert stage.observer.names() == ["started"]
        assert (stage.executor.limiter.running, tuple(stage.executor.live)) == (0, ())

    async def test_that_fails_at_the_end_is_heard(self):
        stage = Stage()
        stage.gated()
        stage.observer.errors["ended"] = OSError("the database is gone")
        (call,) = await started(stage, "A")
        call.body.release()

        with pytest.raises(OSError, match="gone"):
            await call.task

        assert (stage.executor.limiter.running, tuple(stage.executor.live)) == (0, ())

    @pytest.mark.parametrize("notice", ["cancelling", "moved"])
    async def test_that_fails_in_between_harms_nobody(self, notice, caplog):
        stage = Stage()
        stage.gated()
        stage.observer.errors[notice] = OSError("s3cret")
        (call,) = await started(stage, "A")
        call.body.is_stubborn = True

        stage.executor.set_deadline(call.live, 60)
        call.live.cancel(BY_USER)
        await stage.observer.arrived["cancelling"].wait()
        call.body.fail(Cancelled(BY_USER))
        outcome = await call.outcome()

        assert outcome.status is CallStatus.CANCELLED
        assert stage.observer.names()[-1] == "ended"
        assert "An observer failed" in caplog.messages

    async def test_that_is_slow_is_not_overtaken(self):
        stage = Stage()
        stage.gated()
        stage.observer.gates["moved"] = asyncio.Event()
        (call,) = await started(stage, "A")

        stage.executor.set_deadline(call.live, 60)
        call.live.cancel(BY_USER)
        await settle()
        assert stage.observer.names() == ["started"]
        stage.observer.gates["moved"].set()
        await call.outcome()

        assert stage.observer.names() == ["started", "moved", "ended"]

    @on_manual_clock
    async def test_is_told_of_a_stop_only_where_the_body_does_not_end_at_once(self):
        stage = Stage()
        stage.gated()
        quick, slow = await started(stage, "A", "B")
        slow.body.is_stubborn = True

        quick.live.cancel(BY_USER)
        slow.live.cancel(BY_USER)
        await advance(0.5)
        slow.body.release()
        await slow.outcome()

        assert stage.observer.names("A") == ["started", "ended"]
        assert stage.observer.names("B") == ["started", "cancelling", "ended"]

    @on_manual_clock
    async def test_hears_of_a_silent_call_in_every_interval(self):
        stage = Stage(timing=Timing(progress_interval=5, notice_interval=0.5))
        stage.gated()
        (call,) = await started(stage, "A")

        await advance(4.9)
        assert stage.observer.names() == ["started"]
        await advance(10.6)
        call.body.release()
        await call.outcome()

        assert Counter(stage.observer.names())["progressed"] == 3

    @on_manual_clock
    async def test_hears_of_progress_soon_and_of_a_chatty_tool_seldom(self):
        stage = Stage(timing=Timing(progress_interval=5, notice_interval=0.5))
        stage.gated()
        (call,) = await started(stage, "A")

        for _ in range(100):
            call.body.context.progress("working")
            await advance(0.01)
        assert call.live.last_progress.message == "working"
        call.body.release()
        await call.outcome()

        assert 1 <= Counter(stage.observer.names())["progressed"] <= 2

    async def test_reads_the_call_as_it_is(self):
        stage = Stage()
        stage.gated(timeout=30)
        stage.observer.gates["started"] = asyncio.Event()
        call = stage.call()
        await stage.observer.arrived["started"].wait()

        live = call.live
        assert (live.status, live.timeout, live.timeout_source) == (
            CallStatus.RUNNING,
            30,
            TimeoutSource.TOOL,
        )
        assert (live.elapsed, live.partial_output, live.ended_by) == (0, "", None)
        stage.observer.gates["started"].set()
        await call.running()
        call.body.is_stubborn = True
        live.cancel(BY_USER)
        await stage.observer.arrived["cancelling"].wait()
        assert (live.status, live.ended_by) == (CallStatus.CANCELLING, BY_USER)
        call.body.fail(Cancelled(BY_USER))
        await call.outcome()
        assert live.status is CallStatus.CANCELLED

    async def test_progress_after_the_end_is_not_taken(self):
        stage = Stage()
        stage.gated()
        (call,) = await started(stage, "A")
        call.body.release()
        await call.outcome()

        call.body.context.progress("too late", output="too late")

        assert (call.live.last_progress, call.live.partial_output) == (None, "")
