"""The executor on its loop: where bodies run, cancelling from outside, and nothing is left behind (invariant 6)."""

import asyncio
import gc
import weakref

import pytest

from governance import (
    CancellationToken,
    Isolation,
    ToolCall,
    ToolExecutor,
    ToolRegistry,
    make_tool,
)
from tests.governance.core.support import (
    BY_USER,
    ExecutorHarness,
    finish,
    on_manual_clock,
    one_waits,
    settle,
    start_one,
    started,
)
from tests.support import cancel


class TestExternalCancellation:
    """Invariant 6: the surrounding task's cancellation is never swallowed."""

    async def test_goes_on_and_the_body_is_asked_to_end(self):
        harness, call = await start_one()

        await cancel(call.task)
        await settle()

        assert call.body.cancels == 1
        assert call.body.context.is_cancelled
        assert harness.observer.names() == ["started", "late"]
        assert (harness.executor.limiter.running, tuple(harness.executor.live)) == (0, ())

    async def test_in_the_queue_goes_on_and_nothing_starts(self):
        harness, running, waiting = await one_waits()

        waiting.task.cancel()
        await finish(running)
        with pytest.raises(asyncio.CancelledError):
            await waiting.task

        assert waiting.body.runs == 0
        assert harness.executor.limiter.running == 0

    async def test_while_the_start_is_recorded_goes_on_and_nothing_starts(self):
        harness = ExecutorHarness()
        harness.gated()
        harness.observer.gates["started"] = asyncio.Event()
        call = harness.call()
        await settle()

        await cancel(call.task)

        assert call.body.runs == 0

    @on_manual_clock
    async def test_in_the_grace_goes_on(self, caplog):
        harness, call = await start_one()
        call.body.is_stubborn = True
        call.live.cancel(BY_USER)
        await settle()

        await cancel(call.task)

        assert call.body.cancels == 1
        assert harness.executor.abandoned == 1
        call.body.fail(ValueError())
        await settle()
        assert harness.executor.abandoned == 0
        gc.collect()
        names = {record.name for record in caplog.records}
        assert "asyncio" not in names  # which complains of an error that nobody saw
        assert [late.kind for _, late in harness.observer.late] == ["raised"]

    @on_manual_clock
    async def test_does_not_wait_for_a_body_that_swallows_it(self):
        harness, call = await start_one()
        call.body.is_stubborn = True

        call.task.cancel()
        await settle()

        assert call.task.cancelled()
        assert harness.executor.abandoned == 1
        call.body.release()
        await settle()
        assert harness.executor.abandoned == 0
        assert [late.kind for _, late in harness.observer.late] == ["returned"]


class RecordingInvoker:
    """An invoker that writes down what it is asked to run."""

    capacity = 1

    def __init__(self):
        self.asked = []
        self.is_closed = False

    async def invoke(self, tool, arguments, context):
        self.asked.append((tool.name, dict(arguments), context.call_id))
        return "elsewhere"

    async def aclose(self):
        self.is_closed = True


async def test_a_tool_runs_where_its_isolation_says():
    def plain(word: str) -> None: ...

    invoker = RecordingInvoker()
    harness = ExecutorHarness(make_tool(plain), invokers={Isolation.THREAD: invoker})

    outcome = await harness.run(
        "plain", id="A", input={"word": "w", "_meta": {"timeout_ms": 60_000}}
    )
    await harness.executor.aclose()

    assert outcome.result == "elsewhere"
    assert invoker.asked == [("plain", {"word": "w"}, "A")]
    assert invoker.is_closed


async def test_an_executor_that_was_never_used_can_be_closed():
    await ExecutorHarness().executor.aclose()


async def test_nothing_is_left_after_the_last_call():
    harness = ExecutorHarness()
    harness.gated()
    before = asyncio.all_tasks()
    calls = await started(harness, *"ABC")
    assert {live.id for live in harness.executor.live} == set("ABC")

    await finish(*calls)
    await settle()

    assert asyncio.all_tasks() == before
    assert (tuple(harness.executor.live), harness.executor.abandoned) == ((), 0)


async def test_an_ended_call_is_held_by_nobody():
    harness, turn = ExecutorHarness(), CancellationToken()
    harness.gated(timeout=3600)
    gc.collect()
    before = count_tokens()
    (call,) = await started(harness, "A", token=turn)
    await finish(call)
    await settle()
    live = weakref.ref(call.live)

    harness.bodies.clear()
    del call
    gc.collect()

    assert live() is None
    assert count_tokens() == before  # the turn, which goes on, holds none of its calls' tokens
    assert not turn.is_cancelled


def count_tokens():
    return sum(isinstance(held, CancellationToken) for held in gc.get_objects())


async def test_what_a_call_took_is_free_at_its_end_without_a_collection():
    """What holds itself in a circle stays until the collector comes round: 25 objects of each call did."""
    registry = ToolRegistry()
    registry.register(make_tool(_answers, name="answers", timeout=3600))
    executor = ToolExecutor(registry=registry)
    await executor.run(ToolCall(id="first", tool_name="answers"))
    gc.collect()
    gc.disable()
    try:
        live = executor.prepare(ToolCall(id="second", tool_name="answers"))
        assert (await executor.execute(live)).result == "42"
        held = weakref.ref(live)
        del live
        assert held() is None
        assert gc.collect() == 0
    finally:
        gc.enable()
        await executor.aclose()


async def _answers():
    return "42"
