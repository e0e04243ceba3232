"""A call that runs out of time ends in bounded time. What comes later never becomes its result (T1–T4, T11)."""

import asyncio
import logging
import threading

import pytest

from governance import (
    CallStatus,
    Disposition,
    ErrorType,
    Isolation,
    make_tool,
)
from governance.core.invokers.thread import ThreadInvoker
from tests.governance.core.support import (
    BY_USER,
    ExecutorHarness,
    advance,
    asking_for,
    on_manual_clock,
    settle,
    start_one,
    started,
    until,
)


class TestTimeout:
    def test_logs_a_warning_without_input_or_output(self, caplog):
        @on_manual_clock
        async def run():
            _, call = await start_one(timeout=5)
            call.body.context.progress(output="s3cret")
            await advance(5)
            await call.outcome()

        run()

        (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert (record.call_id, record.tool_name) == ("A", "gated")
        assert "s3cret" not in caplog.text

    @on_manual_clock
    async def test_of_one_leaves_the_others_their_results(self):
        harness = ExecutorHarness()
        harness.gated(timeout=60)
        calls = await started(harness, "A", "C")
        (slow,) = await started(harness, "B", input=asking_for(5000))

        await advance(5)
        assert (await slow.outcome()).status is CallStatus.TIMED_OUT
        for call in calls:
            call.body.release(call.live.id)

        assert [(await call.outcome()).result for call in calls] == ["A", "C"]


class TestReturnAfterTheLimit:
    """T11: what counts is the moment of the return, not when the loop had time to look."""

    @pytest.mark.parametrize("limits", [{"timeout": 5}, {"timeout": 0, "idle_timeout": 5}])
    @pytest.mark.parametrize("raises", [False, True])
    @on_manual_clock
    async def test_of_a_body_that_blocked_the_loop_is_late(self, limits, raises):
        async def blocking() -> str:
            asyncio.get_running_loop().jump(6)
            if raises:
                raise ValueError
            return "late words"

        harness = ExecutorHarness(make_tool(blocking, **limits))
        outcome = await harness.run("blocking", id="A")
        await settle()

        assert (outcome.status, outcome.error_type) == (CallStatus.TIMED_OUT, ErrorType.TIMEOUT)
        assert outcome.disposition is Disposition.SETTLED
        assert "5s" in outcome.result
        assert "late words" not in outcome.result
        ((_, late),) = harness.observer.late
        assert late.kind == ("raised" if raises else "returned")

    @on_manual_clock
    async def test_of_a_body_that_blocked_the_loop_is_late_for_a_cancel_as_well(self):
        async def blocking() -> str:
            loop = asyncio.get_running_loop()
            harness.calls["A"].live.cancel(BY_USER)
            loop.jump(6)
            return "late words"

        harness = ExecutorHarness(make_tool(blocking, timeout=5))
        harness.calls = {"A": harness.call("blocking", id="A")}
        outcome = await harness.calls["A"].outcome()

        assert outcome.status is CallStatus.CANCELLED
        assert "late words" not in outcome.result

    @on_manual_clock
    async def test_of_a_thread_in_time_counts_however_late_it_is_noticed(self):
        has_returned = threading.Event()

        def quick() -> str:
            return "in time"

        invoker = ThreadInvoker(max_threads=1, max_abandoned=1, on_exit=has_returned.set)
        tool = make_tool(quick, timeout=5)
        harness = ExecutorHarness(tool, invokers={Isolation.THREAD: invoker})
        call = harness.call("quick")
        await until(has_returned.is_set)
        asyncio.get_running_loop().jump(6)
        outcome = await call.outcome()

        assert (outcome.status, outcome.result) == (CallStatus.SUCCEEDED, "in time")


class TestLateResult:
    @on_manual_clock
    async def test_of_an_abandoned_body_is_recorded_once_and_never_the_result(self):
        harness, call = await start_one(timeout=5)
        call.body.is_stubborn = True
        await advance(5.6)
        outcome = await call.outcome()

        await advance(10)
        call.body.release("late words")
        await settle()

        ((call_id, late),) = harness.observer.late
        assert (call_id, late.kind, late.text) == ("A", "returned", "late words")
        assert late.after == pytest.approx(10)
        assert "late words" not in outcome.result
        assert harness.observer.outcomes == [("A", outcome)]
        assert harness.observer.names() == ["started", "cancelling", "ended", "late"]

    @pytest.mark.parametrize(
        ("end", "late"),
        [
            (lambda body: body.fail(ValueError("s3cret")), ("raised", "ValueError")),
            (lambda body: body.fail(asyncio.CancelledError()), ("cancelled", "")),
            (lambda body: body.release({"s3cret": b"\xff"}), ("returned", "")),
        ],
        ids=["an error", "a cancel", "not text"],
    )
    @on_manual_clock
    async def test_that_is_none_is_told_by_its_kind_only(self, end, late):
        harness, call = await start_one(timeout=5)
        call.body.is_stubborn = True
        await advance(5.6)
        await call.outcome()

        end(call.body)
        await settle()

        assert [(noted.kind, noted.text) for _, noted in harness.observer.late] == [late]

    @on_manual_clock
    async def test_that_cannot_be_recorded_is_logged_and_harms_nobody(self):
        harness = ExecutorHarness()
        harness.gated(timeout=5)
        harness.observer.errors["late"] = OSError("the database is gone")
        (call,) = await started(harness, "A")
        call.body.is_stubborn = True
        await advance(5.6)
        await call.outcome()

        call.body.release()
        await settle()

        assert harness.observer.names()[-1] == "late"
        assert harness.executor.abandoned == 0

    @on_manual_clock
    async def test_is_not_recorded_after_the_executor_was_closed(self):
        harness, call = await start_one(timeout=5)
        call.body.is_stubborn = True
        await advance(5.6)
        await call.outcome()

        await harness.executor.aclose()
        call.body.release()
        await settle()

        assert harness.observer.late == []
