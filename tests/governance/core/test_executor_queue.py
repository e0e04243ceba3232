"""Calls overlap, wait, exclude and supersede each other as their tools declare (P1–P4, C9)."""

from governance import (
    CallStatus,
    CancellationToken,
    CancelReason,
    Disposition,
    ErrorType,
    Limits,
    Obstacle,
    WaitsFor,
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


class TestParallel:
    async def test_calls_of_a_step_overlap_and_each_is_told_as_it_lands(self):
        harness = ExecutorHarness()
        harness.gated()
        calls = await started(harness, "A", "B", "C")

        for at in (2, 0, 1):
            calls[at].body.release()
            await calls[at].outcome()

        assert [call_id for call_id, _ in harness.observer.outcomes] == ["C", "A", "B"]

    @on_manual_clock
    async def test_the_clock_starts_when_the_tool_starts(self):
        harness = ExecutorHarness(limits=Limits(max_running=1))
        harness.gated(timeout=5)
        (first,) = await started(harness, "A")
        waiting = [harness.call(id=id) for id in "BCD"]

        queued = []
        for running, following in zip([first, *waiting], [*waiting, None], strict=True):
            await advance(4)
            running.body.release()
            outcome = await running.outcome()
            queued.append((outcome.status, outcome.queued, outcome.duration))
            if following is not None:
                await following.running()

        assert queued == [(CallStatus.SUCCEEDED, wait, 4) for wait in (0, 4, 8, 12)]

    async def test_an_exclusive_call_overlaps_no_other_of_its_scope(self):
        harness = ExecutorHarness()
        harness.gated()
        harness.gated("alone", concurrency="exclusive")
        (first,) = await started(harness, "A")
        alone = harness.call("alone", id="B")
        after = harness.call(id="C")
        await settle()

        assert (alone.body.runs, after.body.runs) == (0, 0)
        first.body.release()
        await alone.running()
        await settle()
        assert after.body.runs == 0
        alone.body.release()
        await finish(after)

    @on_manual_clock
    async def test_a_call_says_after_half_a_second_what_it_waits_for(self):
        harness = ExecutorHarness()
        harness.gated()
        harness.gated("alone", concurrency="exclusive")
        first, second = await started(harness, "A", "B")
        alone, after = harness.call("alone", id="C"), harness.call(id="D")
        await advance(0.4)
        assert harness.observer.waits == []
        await advance(0.2)
        on_first = Obstacle(kind=WaitsFor.CALL, call_id="A", tool_name="gated")
        on_alone = Obstacle(kind=WaitsFor.CALL, call_id="C", tool_name="alone")
        assert harness.observer.waits == [("C", on_first), ("D", on_alone)]
        await advance(10)
        assert len(harness.observer.waits) == 2, "once, as long as nothing changes"
        first.body.release()
        await advance(0.6)
        on_second = Obstacle(kind=WaitsFor.CALL, call_id="B", tool_name="gated")
        assert harness.observer.waits[2:] == [("C", on_second)]
        second.body.release()
        await alone.running()
        alone.body.release()
        await finish(after)
        assert harness.observer.names("D") == ["queued", "started", "ended"]

    @on_manual_clock
    async def test_a_call_that_waits_for_a_place_says_whose(self):
        for limits, kind in (
            (Limits(max_running=1), WaitsFor.SLOT),
            (Limits(max_running_per_scope=1), WaitsFor.SCOPE),
        ):
            harness = ExecutorHarness(limits=limits)
            harness.gated()
            (first,) = await started(harness, "A")
            waiting = harness.call(id="B")
            await advance(0.6)
            assert harness.observer.waits == [("B", Obstacle(kind=kind))]
            waiting.live.cancel(BY_USER)
            await waiting.outcome()
            await finish(first)

    @on_manual_clock
    async def test_a_call_that_starts_at_once_never_waited(self):
        harness, call = await start_one()
        await advance(5)
        assert harness.observer.waits == []
        await finish(call)

    @on_manual_clock
    async def test_a_slot_is_free_again_after_a_call_was_abandoned(self):
        harness = ExecutorHarness(limits=Limits(max_running=1))
        harness.gated(timeout=5)
        (first,) = await started(harness, "A")
        first.body.is_stubborn = True
        second = harness.call(id="B")

        await advance(5.6)
        await second.running()

        for call in (first, second):
            call.body.release()
        assert (await second.outcome()).status is CallStatus.SUCCEEDED
        await settle()

    async def test_a_tools_own_concurrency_cap_holds(self):
        harness = ExecutorHarness()
        harness.gated(max_running=2)
        running = await started(harness, "A", "B")
        third = harness.call(id="C")
        await settle()

        assert third.body.runs == 0
        for call in running:
            call.body.release()
        await finish(third)


class TestSupersede:
    async def test_a_new_call_cancels_the_previous_one(self):
        harness = ExecutorHarness()
        harness.gated(concurrency="supersede")
        (first,) = await started(harness, "A")

        (second,) = await started(harness, "B")
        outcome = await first.outcome()
        second.body.release()

        assert outcome.ended_by.reason is CancelReason.SUPERSEDED
        assert "automatically" in outcome.result
        assert (await second.outcome()).status is CallStatus.SUCCEEDED

    @on_manual_clock
    async def test_it_starts_only_when_the_previous_one_has_ended(self):
        harness = ExecutorHarness()
        harness.gated(concurrency="supersede")
        (first,) = await started(harness, "A")
        first.body.is_stubborn = True
        second = harness.call(id="B")
        await settle()

        assert (first.body.cancels, second.body.runs) == (1, 0)
        await finish(first)
        await finish(second)

    @on_manual_clock
    async def test_one_that_still_waits_never_starts(self):
        harness = ExecutorHarness()
        harness.gated(concurrency="supersede")
        (first,) = await started(harness, "A")
        first.body.is_stubborn = True
        second, third = harness.call(id="B"), harness.call(id="C")
        await settle()

        assert (await second.outcome()).status is CallStatus.NOT_STARTED
        first.body.release()
        await finish(third)

    async def test_other_scopes_and_other_tools_are_left_alone(self):
        harness = ExecutorHarness()
        harness.gated(concurrency="supersede")
        harness.gated("other", concurrency="supersede")
        calls = [
            *await started(harness, "A"),
            *await started(harness, "B", scope="elsewhere"),
            *await started(harness, "C", name="other"),
        ]

        for call in calls:
            call.body.release()

        assert [(await call.outcome()).status for call in calls] == [CallStatus.SUCCEEDED] * 3

    async def test_a_call_that_is_cancelled_already_supersedes_nothing(self):
        harness, turn = ExecutorHarness(), CancellationToken()
        harness.gated(concurrency="supersede")
        (first,) = await started(harness, "A")
        turn.cancel(BY_USER)

        await harness.call(id="B", token=turn).outcome()
        first.body.release()

        assert (await first.outcome()).status is CallStatus.SUCCEEDED


class TestQueue:
    async def test_that_is_full_refuses_with_what_to_do(self):
        harness = ExecutorHarness(limits=Limits(max_running=1, max_queued=1))
        harness.gated()
        (running,) = await started(harness, "A")
        waiting = harness.call(id="B")
        await settle()

        outcome = await harness.call(id="C").outcome()

        assert (outcome.status, outcome.error_type) == (CallStatus.FAILED, ErrorType.QUEUE_FULL)
        assert outcome.disposition is Disposition.NOT_STARTED
        assert "try again" in outcome.result
        await finish(running, waiting)

    @on_manual_clock
    async def test_that_takes_too_long_gives_up(self):
        harness = ExecutorHarness(limits=Limits(max_running=1, queue_timeout=30))
        harness.gated(timeout=0)
        (running,) = await started(harness, "A")
        waiting = harness.call(id="B")

        await advance(30)
        outcome = await waiting.outcome()

        assert outcome.error_type is ErrorType.QUEUE_TIMEOUT
        assert (outcome.queued, outcome.duration, waiting.body.runs) == (30, 0, 0)
        await finish(running)
