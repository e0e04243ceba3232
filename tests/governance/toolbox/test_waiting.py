"""The tool that lets time pass."""

import asyncio

import pytest

from governance.core.exceptions import InvalidToolInput
from tests.support import cancel


async def test_it_says_how_far_it_is_and_ends_with_a_sentence(harness):
    assert await harness.call("wait", seconds=0.02) == "Waited 0.02 s."
    assert harness.reports[-1].progress == pytest.approx(0.02, abs=0.01)
    assert harness.reports[-1].total == 0.02


async def test_nothing_to_wait_for_is_no_wait(harness):
    assert await harness.call("wait", seconds=0) == "Waited 0 s."
    assert harness.reports == []


async def test_it_can_be_cancelled(harness):
    task = asyncio.create_task(harness.call("wait", seconds=3600))
    await asyncio.sleep(0)
    await cancel(task)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 1e9, "soon"])
def test_impossible_times_are_refused(harness, seconds):
    with pytest.raises(InvalidToolInput, match="seconds"):
        harness.registry.get("wait").validate({"seconds": seconds})
