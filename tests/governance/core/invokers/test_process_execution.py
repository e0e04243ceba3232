"""Process tools under the executor: its limits and cancels reach into the worker (T1, T8, C3)."""

import asyncio
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


async def test_process_tool_succeeds(executor, tmp_path):
    call = ToolCall(id="c", tool_name="next_day", input={"day": "2025-12-31"}, scope="s")
    outcome = await executor.run(call, host=Host(workspace=tmp_path))
    assert (outcome.status, outcome.result) == (
        CallStatus.SUCCEEDED,
        f"2026-01-01 in s at {tmp_path}",
    )


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
