"""Process tools under the executor: its limits and cancels reach into the worker (T1, T8, C3)."""

import asyncio
import os
import signal
import time

import pytest

from governance.core.calls import CallStatus, Disposition, ToolCall
from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation, CancellationToken
from governance.core.executor import Host, Timing, ToolExecutor
from governance.core.images import ImageRefused, ResultImage
from governance.core.registry import ToolRegistry
from governance.core.tools import Isolation
from tests.governance.core.invokers import worker_tools
from tests.governance.core.invokers.worker_calls import opens
from tests.support import PATIENCE, eventually

MUCH = 900_000  # more than a socket holds


@pytest.fixture
def executor(make):
    registry = ToolRegistry()
    registry.register(worker_tools.next_day.tool)
    registry.register(worker_tools.spin_for_ever.tool)
    registry.register(worker_tools.return_much.tool)
    registry.register(worker_tools.draw_twice.tool)
    return ToolExecutor(
        registry=registry,
        invokers={Isolation.PROCESS: make(kill_grace=0.2)},
        timing=Timing(cancel_grace=PATIENCE),
        result_limit=MUCH,
    )


@pytest.fixture
def held(make, monkeypatch, pipe):
    """An executor whose workers wait at the pipe while they start."""
    monkeypatch.setenv("HELD_AT", str(pipe))
    registry = ToolRegistry()
    registry.register(worker_tools.next_day.tool)
    workers = make(initializer="tests.governance.core.invokers.worker_tools:wait_at_start")
    return ToolExecutor(registry=registry, invokers={Isolation.PROCESS: workers})


async def test_start_of_a_worker_counts_as_waiting(held, pipe):
    live = held.prepare(ToolCall(id="c", tool_name="next_day", input={"day": "2025-12-31"}))
    running = asyncio.create_task(held.execute(live))
    await eventually(lambda: opens(pipe))
    outcome = await running
    assert outcome.status is CallStatus.SUCCEEDED
    assert 0 < outcome.duration < outcome.queued


async def test_call_that_is_cancelled_while_its_worker_starts_was_not_started(held):
    live = held.prepare(ToolCall(id="c", tool_name="next_day", input={"day": "2025-12-31"}))
    running = asyncio.create_task(held.execute(live))
    await eventually(lambda: held.limiter.running)
    assert live.limits.deadline is None
    live.cancel(Cancellation(reason=CancelReason.USER))
    outcome = await running
    assert (outcome.status, outcome.disposition) == (
        CallStatus.NOT_STARTED,
        Disposition.NOT_STARTED,
    )


async def test_call_whose_end_is_not_seen_may_still_be_running_until_it_is(make):
    registry = ToolRegistry()
    registry.register(worker_tools.tell_keeper.tool)
    executor = ToolExecutor(
        registry=registry,
        invokers={Isolation.PROCESS: make()},
        timing=Timing(cancel_grace=0.1),
    )
    live = executor.prepare(ToolCall(id="c", tool_name="tell_keeper"))
    running = asyncio.create_task(executor.execute(live))
    await eventually(lambda: live.partial_output)
    keeper = int(live.partial_output)
    os.kill(keeper, signal.SIGSTOP)
    live.cancel(Cancellation(reason=CancelReason.USER))
    outcome = await running
    assert outcome.disposition is Disposition.INDETERMINATE
    assert executor.abandoned == 1
    os.kill(keeper, signal.SIGCONT)
    await eventually(lambda: executor.abandoned == 0)


async def test_process_tool_succeeds(executor, tmp_path):
    call = ToolCall(id="c", tool_name="next_day", input={"day": "2025-12-31"}, scope="s")
    outcome = await executor.run(call, host=Host(workspace=tmp_path))
    assert (outcome.status, outcome.result) == (
        CallStatus.SUCCEEDED,
        f"2026-01-01 in s at {tmp_path}",
    )


async def test_asynchronous_generator_is_collected_in_its_process(make):
    registry = ToolRegistry()
    registry.register(worker_tools.yield_squares.tool)
    executor = ToolExecutor(registry=registry, invokers={Isolation.PROCESS: make()})
    outcome = await executor.run(ToolCall(id="c", tool_name="yield_squares", input={"count": 4}))
    assert (outcome.status, outcome.result) == (CallStatus.SUCCEEDED, "[0,1,4,9]")


async def keep(content, *, name):
    if content != b"PNG":
        raise ImageRefused("It is no image.")
    return ResultImage(id="1", name=name, media_type="image/png", size=3, width=4, height=3)


async def test_process_tool_shows_images_and_reads_why_one_is_refused(executor):
    outcome = await executor.run(
        ToolCall(id="c", tool_name="draw_twice"), host=Host(keep_image=keep)
    )
    assert outcome.result == (
        '["[image drawing: image/png, 4 × 3 pixels]","[image, 6 bytes, not shown: It is no image.]"]'
    )
    assert [image.name for image in outcome.images] == ["drawing"]


async def test_process_tool_over_its_limit_is_timed_out_and_proven_gone(executor):
    live = executor.prepare(ToolCall(id="c", tool_name="spin_for_ever"))
    running = asyncio.create_task(executor.execute(live))
    await eventually(lambda: live.partial_output == "partial")
    executor.set_deadline(live, 0.01)
    outcome = await running
    assert (outcome.status, outcome.disposition) == (CallStatus.TIMED_OUT, Disposition.SETTLED)
    assert "partial" in outcome.result


async def test_cancelled_process_tool_is_proven_gone(executor):
    token = CancellationToken()
    live = executor.prepare(ToolCall(id="c", tool_name="spin_for_ever"), token=token)
    running = asyncio.create_task(executor.execute(live))
    await eventually(lambda: live.partial_output == "partial")
    token.cancel(Cancellation(reason=CancelReason.USER))
    outcome = await running
    assert (outcome.status, outcome.disposition) == (CallStatus.CANCELLED, Disposition.SETTLED)


@pytest.mark.parametrize("size", [1, MUCH - 10])
async def test_process_tool_that_returned_in_time_succeeds_however_late_that_is_read(
    executor, tmp_path, size
):
    live = executor.prepare(ToolCall(id="c", tool_name="return_much", input={"size": size}))
    running = asyncio.create_task(executor.execute(live, host=Host(workspace=tmp_path)))
    await eventually(lambda: live.partial_output)
    executor.set_deadline(live, live.elapsed + 2)
    tmp_path.joinpath("may return").touch()
    block_until(
        lambda: tmp_path.joinpath("returns").exists() and not live.limits.deadline.time_left
    )
    outcome = await running
    assert (outcome.status, len(outcome.result)) == (CallStatus.SUCCEEDED, size)


def block_until(condition):
    """Keep the event loop from running anything else, as a busy neighbour does."""
    until = time.monotonic() + 20
    while not condition() and time.monotonic() < until:
        time.sleep(0.1)
