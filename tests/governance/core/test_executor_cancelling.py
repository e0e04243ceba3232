"""A cancel ends what it means, once, and says by whom. What has not begun never begins (C3, C4, C13)."""

import asyncio

from governance import (
    CallStatus,
    CancellationToken,
    CancelReason,
    Disposition,
    ErrorType,
    Limits,
    ToolCall,
)
from tests.governance.core.support import (
    BY_PARENT,
    BY_USER,
    ExecutorHarness,
    advance,
    finish,
    on_manual_clock,
    one_waits,
    settle,
    start_one,
    started,
)


class TestCancel:
    async def test_of_one_call_says_by_whom_and_leaves_the_others(self):
        harness = ExecutorHarness()
        harness.gated()
        calls = await started(harness, "A", "B", "C")

        assert calls[1].live.cancel(BY_USER)
        outcome = await calls[1].outcome()
        calls[0].body.release("first")
        calls[2].body.release("third")

        assert (outcome.status, outcome.error_type) == (CallStatus.CANCELLED, ErrorType.CANCELLED)
        assert (outcome.ended_by, outcome.disposition) == (BY_USER, Disposition.SETTLED)
        assert outcome.result.startswith('[CANCELLED] Tool "gated" was cancelled by the user.')
        assert [(await calls[at].outcome()).result for at in (0, 2)] == ["first", "third"]
        assert calls[1].body.cancels == 1

    async def test_reaches_the_tools_token_before_its_task(self):
        _, call = await start_one()
        seen = []
        call.body.context.token.on_cancel(lambda request: seen.append((request, call.body.cancels)))

        call.live.cancel(BY_USER)
        await call.outcome()

        assert seen == [(BY_USER, 0)]

    async def test_of_the_whole_tree_ends_every_call(self):
        harness, turn = ExecutorHarness(), CancellationToken()
        harness.gated()
        calls = await started(harness, "A", "B", token=turn)

        turn.cancel(BY_USER)

        assert [(await call.outcome()).ended_by for call in calls] == [BY_USER, BY_USER]

    async def test_comes_too_late_for_a_body_that_has_ended(self):
        _, call = await start_one()

        call.body.release()
        asyncio.get_running_loop().call_soon(call.live.cancel, BY_USER)
        outcome = await call.outcome()

        assert (outcome.status, outcome.result) == (CallStatus.SUCCEEDED, "result")

    async def test_repeated_or_after_the_end_changes_nothing(self):
        _, call = await start_one()

        assert call.live.cancel(BY_USER)
        assert not call.live.cancel(BY_PARENT)
        outcome = await call.outcome()

        assert not call.live.cancel(BY_PARENT)
        assert outcome.ended_by is BY_USER

    async def test_is_refused_once_the_body_has_ended(self):
        harness = ExecutorHarness()
        harness.gated()
        harness.observer.gates["ended"] = asyncio.Event()
        (call,) = await started(harness, "A")
        call.body.release()
        await settle()

        assert not call.live.cancel(BY_USER)
        harness.observer.gates["ended"].set()
        assert (await call.outcome()).status is CallStatus.SUCCEEDED

    @on_manual_clock
    async def test_in_the_moment_of_a_timeout_comes_too_late(self):
        _, call = await start_one(timeout=5)
        accepted = []
        loop = asyncio.get_running_loop()
        loop.call_later(5.1, lambda: accepted.append(call.live.cancel(BY_USER)))

        loop.jump(6)
        outcome = await call.outcome()

        assert accepted == [False]
        assert outcome.ended_by.reason is CancelReason.TIMEOUT

    @on_manual_clock
    async def test_a_user_does_not_take_the_blame_for_a_timeout(self):
        _, call = await start_one(timeout=5)
        call.body.is_stubborn = True
        await advance(5.1)

        assert not call.live.cancel(BY_USER)
        await advance(1)
        outcome = await call.outcome()

        assert outcome.ended_by.reason is CancelReason.TIMEOUT
        assert outcome.error_type is ErrorType.TIMEOUT
        call.body.release()
        await settle()


class TestNotStarted:
    """C1: no tool starts after the request."""

    def check(self, call, outcome, by=BY_USER):
        assert (outcome.status, outcome.error_type) == (
            CallStatus.NOT_STARTED,
            ErrorType.NOT_STARTED,
        )
        assert outcome.disposition is Disposition.NOT_STARTED
        assert (outcome.ended_by, outcome.duration, call.body.runs) == (by, 0, 0)
        assert "was not started" in outcome.result

    async def test_when_cancelled_before_it_is_executed(self):
        harness, turn = ExecutorHarness(), CancellationToken()
        harness.gated()
        turn.cancel(BY_PARENT)

        call = harness.call(token=turn)

        self.check(call, await call.outcome(), by=BY_PARENT)
        assert harness.observer.names() == ["ended"]

    async def test_when_cancelled_before_it_is_executed_even_if_its_tool_is_unknown(self):
        harness = ExecutorHarness()
        call = harness.call("nothing")
        call.live.cancel(BY_USER)

        self.check(call, await call.outcome())

    async def test_when_cancelled_in_the_queue(self):
        harness, running, waiting = await one_waits()

        waiting.live.cancel(BY_USER)
        outcome = await waiting.outcome()
        await finish(running)
        await settle()

        self.check(waiting, outcome)
        assert harness.observer.names("B") == ["ended"]

    async def test_when_cancelled_as_it_is_let_in(self):
        harness, running, waiting = await one_waits()

        # at A's end its slot is given to B, whose task has not seen it yet
        harness.observer.hooks["ended"] = lambda: waiting.live.cancel(BY_USER)
        running.body.release()

        self.check(waiting, await waiting.outcome())
        assert harness.observer.names("B") == ["ended"]
        assert harness.executor.limiter.running == 0

    async def test_when_cancelled_while_its_start_is_recorded(self):
        harness = ExecutorHarness()
        harness.gated()
        harness.observer.gates["started"] = asyncio.Event()
        call = harness.call()
        await harness.observer.arrived["started"].wait()

        call.live.cancel(BY_USER)
        harness.observer.gates["started"].set()

        self.check(call, await call.outcome())
        assert harness.observer.names() == ["started", "ended"]

    async def test_when_a_turn_is_cancelled_all_that_waits_is_not_started(self):
        harness, turn = ExecutorHarness(limits=Limits(max_running=1)), CancellationToken()
        harness.gated()
        (running,) = await started(harness, "A", token=turn)
        waiting = [harness.call(id=id, token=turn) for id in "BC"]
        await settle()

        turn.cancel(BY_USER)

        assert (await running.outcome()).status is CallStatus.CANCELLED
        for call in waiting:
            self.check(call, await call.outcome())


class TestCancelledScope:
    """C7: a cancel reaches what is active in its scope, and what was prepared there never starts."""

    async def test_reaches_the_calls_that_run_and_wait_and_counts_them(self):
        harness = ExecutorHarness(limits=Limits(max_running=2))
        harness.gated()
        running, elsewhere = await started(harness, "A"), await started(harness, "B", scope="other")
        waiting = harness.call(id="C")
        await settle()

        assert harness.executor.cancel_scope("scope", BY_USER) == 2
        assert harness.executor.cancel_scope("scope", BY_USER) == 0

        assert (await running[0].outcome()).status is CallStatus.CANCELLED
        assert (await waiting.outcome()).status is CallStatus.NOT_STARTED
        assert not harness.executor.is_active("scope")
        assert harness.executor.is_active("other")
        elsewhere[0].body.release()
        assert (await elsewhere[0].outcome()).status is CallStatus.SUCCEEDED

    async def test_does_not_reach_a_call_that_has_ended(self):
        harness, turn = ExecutorHarness(), CancellationToken()
        harness.gated()
        (ended,) = await started(harness, "A", token=turn)
        ended.body.release()
        await ended.outcome()

        assert harness.executor.cancel_scope("scope", BY_USER) == 0
        turn.cancel(BY_USER)

        assert not ended.live.token.is_cancelled

    async def test_what_was_prepared_before_it_never_starts_and_what_comes_after_does(self):
        harness = ExecutorHarness()
        harness.gated()
        early = harness.executor.prepare(ToolCall(id="A", tool_name="gated", scope="scope"))

        assert harness.executor.cancel_scope("scope", BY_USER) == 0
        overtaken = await harness.executor.execute(early)
        (later,) = await started(harness, "B")
        later.body.release()

        assert (overtaken.status, overtaken.ended_by) == (CallStatus.NOT_STARTED, BY_USER)
        assert harness.bodies["A"].runs == 0
        assert (await later.outcome()).status is CallStatus.SUCCEEDED
