"""The tool that lets time pass."""

import asyncio

import pytest

from governance.core.exceptions import InvalidToolInput


async def test_it_says_how_far_it_is_and_ends_with_a_sentence(bench):
    assert await bench.call("wait", seconds=0.02) == "Waited 0.02 s."
    assert bench.reports[-1].progress == pytest.approx(0.02, abs=0.01)
    assert bench.reports[-1].total == 0.02


async def test_nothing_to_wait_for_is_no_wait(bench):
    assert await bench.call("wait", seconds=0) == "Waited 0 s."
    assert bench.reports == []


async def test_it_can_be_cancelled(bench):
    task = asyncio.create_task(bench.call("wait", seconds=3600))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 1e9, "soon"])
def test_impossible_times_are_refused(bench, seconds):
    with pytest.raises(InvalidToolInput, match="seconds"):
        bench.registry.get("wait").validate({"seconds": seconds})
