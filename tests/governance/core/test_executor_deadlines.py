"""The limit of a running call moves, by hand and by edited policies, and the call obeys (T9, A3)."""

import asyncio

from governance import (
    CallStatus,
    Limits,
    TimeoutSource,
    ToolLimits,
)
from tests.governance.core.support import (
    EditedLevels,
    ExecutorHarness,
    advance,
    asking_for,
    on_manual_clock,
    settle,
    start_one,
    started,
)


class TestMovedDeadline:
    """T9: the running call obeys at once."""

    @on_manual_clock
    async def test_extended_by_hand_the_call_gets_the_time(self):
        harness, call = await start_one(timeout=5)

        await advance(4)
        assert harness.executor.set_deadline(call.live, 20, by="ada")
        await advance(15.9)
        assert not call.task.done()
        await advance(0.1)
        outcome = await call.outcome()

        assert (outcome.timeout, outcome.timeout_source) == (20, TimeoutSource.MANUAL)
        (change,) = harness.observer.changes[call.live.id]
        assert (change.from_timeout, change.to_timeout, change.by) == (5, 20, "ada")
        assert harness.observer.names() == ["started", "moved", "ended"]

    @on_manual_clock
    async def test_shortened_by_hand_the_call_ends_earlier(self):
        harness, call = await start_one(timeout=60)

        harness.executor.set_deadline(call.live, 10)
        await advance(10)

        assert (await call.outcome()).duration == 10

    @on_manual_clock
    async def test_shortened_to_a_moment_already_past_it_ends_now(self):
        harness, call = await start_one(timeout=60)

        await advance(30)
        harness.executor.set_deadline(call.live, 10)
        await settle()
        outcome = await call.outcome()

        assert (outcome.status, outcome.duration) == (CallStatus.TIMED_OUT, 30)
        assert "within 10s" in outcome.result

    @on_manual_clock
    async def test_is_capped_by_the_ceiling(self):
        harness, call = await start_one(
            ExecutorHarness(policies=EditedLevels(default=ToolLimits(ceiling=60))), timeout=5
        )

        harness.executor.set_deadline(call.live, 7200)

        assert call.live.timeout == 60
        call.body.release()
        await call.outcome()

    @on_manual_clock
    async def test_keeps_the_idle_limit(self):
        harness, call = await start_one(timeout=60, idle_timeout=5)

        harness.executor.set_deadline(call.live, 600)
        await advance(5)

        assert "made no progress" in (await call.outcome()).result

    @on_manual_clock
    async def test_of_a_call_that_waits_counts_from_its_start(self):
        harness = ExecutorHarness(limits=Limits(max_running=1))
        harness.gated(timeout=5)
        (first,) = await started(harness, "A")
        waiting = harness.call(id="B")
        await settle()

        assert harness.executor.set_deadline(waiting.live, 60, by="ada")
        assert waiting.live.timeout == 60
        assert harness.executor.set_deadline(waiting.live, waiting.live.timeout + 10, by="eve")
        await advance(4)
        first.body.release()
        await waiting.running()
        await advance(69)

        assert not waiting.task.done()
        (change,) = harness.observer.changes[waiting.live.id]
        assert (change.from_timeout, change.to_timeout, change.by) == (5, 70, "eve")
        assert harness.observer.names("B") == ["queued", "started", "moved"]
        await advance(2)
        outcome = await waiting.outcome()
        assert (outcome.status, outcome.timeout) == (CallStatus.TIMED_OUT, 70)
        assert outcome.timeout_source == "manual"

    @on_manual_clock
    async def test_of_a_call_that_waits_is_capped_as_it_starts(self):
        harness = ExecutorHarness(
            limits=Limits(max_running=1),
            policies=EditedLevels(override=ToolLimits(ceiling=20)),
        )
        harness.gated(timeout=5)
        (first,) = await started(harness, "A")
        waiting = harness.call(id="B")
        await settle()

        assert harness.executor.set_deadline(waiting.live, 600)
        assert waiting.live.timeout == 20
        first.body.release()
        await waiting.running()

        assert waiting.live.timeout == 20

    async def test_is_refused_after_the_end(self):
        harness, call = await start_one()
        call.body.release()
        await call.outcome()

        assert not harness.executor.set_deadline(call.live, 10)
        assert harness.observer.changes[call.live.id] == []

    @on_manual_clock
    async def test_is_refused_once_the_end_is_decided(self):
        harness, call = await start_one(timeout=5)
        call.body.is_stubborn = True

        await advance(5.1)

        assert not harness.executor.set_deadline(call.live, 600)
        call.body.release()
        await call.outcome()

    @on_manual_clock
    async def test_by_an_edited_policy_a_running_call_obeys(self):
        policies = EditedLevels(override=ToolLimits(timeout=60))
        harness, call = await start_one(ExecutorHarness(policies=policies))

        await advance(10)
        policies.edit(override=ToolLimits(timeout=12))
        harness.executor.apply_policies()
        await advance(2)
        outcome = await call.outcome()

        assert (outcome.status, outcome.duration) == (CallStatus.TIMED_OUT, 12)
        (change,) = harness.observer.changes[call.live.id]
        assert (change.from_timeout, change.to_timeout) == (60, 12)
        assert change.source is TimeoutSource.OVERRIDE

    @on_manual_clock
    async def test_by_a_removed_override_falls_back_to_the_tools_own(self):
        policies = EditedLevels(override=ToolLimits(timeout=60))
        harness, call = await start_one(ExecutorHarness(policies=policies), timeout=20)

        policies.edit()
        harness.executor.apply_policies()
        await advance(20)
        outcome = await call.outcome()

        assert (outcome.timeout, outcome.timeout_source) == (20, TimeoutSource.TOOL)

    @on_manual_clock
    async def test_by_an_edited_ceiling_recaps_a_hint(self):
        policies = EditedLevels(default=ToolLimits(ceiling=600))
        harness = ExecutorHarness(policies=policies)
        harness.gated()
        (call,) = await started(harness, "A", input=asking_for(300_000))

        policies.edit(default=ToolLimits(ceiling=60))
        harness.executor.apply_policies()

        assert (call.live.timeout, call.live.limits.policy.capped_from) == (60, 300)
        call.body.release()
        await call.outcome()

    @on_manual_clock
    async def test_by_an_edited_idle_limit(self):
        policies = EditedLevels()
        harness, call = await start_one(ExecutorHarness(policies=policies), timeout=60)

        policies.edit(override=ToolLimits(idle_timeout=5))
        harness.executor.apply_policies()
        await advance(5)

        assert "made no progress" in (await call.outcome()).result

    @on_manual_clock
    async def test_by_hand_stays_while_the_policy_does_not_change(self):
        harness, call = await start_one(timeout=5)

        harness.executor.set_deadline(call.live, 20)
        harness.executor.apply_policies()

        assert call.live.timeout == 20
        call.body.release()
        await call.outcome()
        assert len(harness.observer.changes["A"]) == 1

    @on_manual_clock
    async def test_by_a_policy_that_is_edited_while_the_start_is_recorded(self):
        policies = EditedLevels(override=ToolLimits(timeout=60))
        harness = ExecutorHarness(policies=policies)
        harness.gated()
        harness.observer.gates["started"] = asyncio.Event()
        call = harness.call()
        await settle()

        policies.edit(override=ToolLimits(timeout=5))
        harness.executor.apply_policies()
        assert call.live.timeout == 60  # what the observer is writing down
        harness.observer.gates["started"].set()
        await advance(5)
        outcome = await call.outcome()

        assert (outcome.status, outcome.timeout) == (CallStatus.TIMED_OUT, 5)
        assert [change.from_timeout for change in harness.observer.changes[call.live.id]] == [60]
        assert harness.observer.names() == ["started", "moved", "ended"]

    @on_manual_clock
    async def test_by_a_policy_that_is_edited_while_the_call_waits(self):
        policies = EditedLevels(override=ToolLimits(timeout=60))
        harness = ExecutorHarness(policies=policies, limits=Limits(max_running=1))
        harness.gated()
        (running,) = await started(harness, "A")
        waiting = harness.call(id="B")
        await settle()

        policies.edit(override=ToolLimits(timeout=5))
        harness.executor.apply_policies()
        running.body.release()
        await waiting.running()

        assert waiting.live.timeout == 5
        assert harness.observer.changes[waiting.live.id] == []
        waiting.body.release()
        await waiting.outcome()

    @on_manual_clock
    async def test_by_a_policy_comes_not_after_the_outcome(self):
        policies = EditedLevels(override=ToolLimits(timeout=60))
        harness = ExecutorHarness(policies=policies)
        harness.gated()
        harness.observer.gates["ended"] = asyncio.Event()
        (call,) = await started(harness, "A")
        call.body.release()
        await settle()

        policies.edit(override=ToolLimits(timeout=5))
        harness.executor.apply_policies()
        await advance(60)
        harness.observer.gates["ended"].set()
        outcome = await call.outcome()

        assert (outcome.timeout, harness.observer.changes[call.live.id]) == (60, [])
        assert harness.observer.names() == ["started", "ended"]
