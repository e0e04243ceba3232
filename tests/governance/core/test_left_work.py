"""Work that a coroutine leaves behind is known: the call may still be running, and its end is told (C13, T7, B4)."""

import asyncio
import contextvars
import sys
import threading
from contextlib import suppress

import pytest

from governance import CallStatus, Disposition, make_tool
from governance.core.containment import outside
from tests.governance.core.support import BY_USER, ExecutorHarness, until

SLEEP = "import time; time.sleep(60)"


class Left:
    """Bodies that leave something behind when they are cancelled; `release` lets it end."""

    def __init__(self):
        self.may_end = threading.Event()
        self.loop_may_end = asyncio.Event()
        self.processes = []
        self.tasks = set()
        self.has_begun = False

    def release(self):
        self.may_end.set()
        self.loop_may_end.set()
        for process in self.processes:
            with suppress(ProcessLookupError):
                process.kill()

    def _wait(self):
        self.has_begun = True
        self.may_end.wait(60)

    async def to_thread(self):
        await asyncio.to_thread(self._wait)

    async def run_in_executor(self):
        await asyncio.get_running_loop().run_in_executor(None, self._wait)

    async def shield(self):
        self.has_begun = True
        await asyncio.shield(self.loop_may_end.wait())

    async def create_task(self):
        self.has_begun = True
        task = asyncio.create_task(self.loop_may_end.wait())
        self.tasks.add(task)
        await asyncio.Event().wait()

    async def subprocess(self):
        self.has_begun = True
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", SLEEP)
        self.processes.append(process)
        await process.wait()


KINDS = ["to_thread", "run_in_executor", "shield", "create_task", "subprocess"]


@pytest.fixture
async def left(tool_functions):
    left = Left()
    yield left
    left.release()
    for process in left.processes:
        await process.wait()


@pytest.fixture
async def tool_functions():
    """The loop's executor, as a runtime sets it, which notes what tools hand to it."""
    from governance.tool_threads import ToolThreads

    threads = ToolThreads(max_threads=8, max_database_threads=2)
    threads.take_over_functions(asyncio.get_running_loop())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_what_goes_on_is_told_and_its_end_too(left, kind, how):
    tool = make_tool(
        getattr(left, kind),
        name="probe",
        description="Probe.",
        timeout=0.3 if how == "timeout" else 0,
    )
    harness = ExecutorHarness(tool)
    call = harness.call("probe")
    if how == "cancel":
        await until(lambda: left.has_begun and (left.processes or kind != "subprocess"))
        call.live.cancel(BY_USER)
    outcome = await call.outcome()
    assert outcome.status is CallStatus.ABANDONED
    assert outcome.disposition is Disposition.INDETERMINATE
    assert harness.executor.abandoned == 1

    left.release()
    await until(lambda: harness.observer.late)
    assert harness.executor.abandoned == 0


async def test_a_body_that_awaits_what_it_started_was_stopped(left):
    async def tidy():
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait())
            group.create_task(asyncio.sleep(60))

    harness = ExecutorHarness(make_tool(tidy, description="Probe.", timeout=0.1))
    outcome = await harness.run("tidy")
    assert outcome.status is CallStatus.TIMED_OUT
    assert outcome.disposition is Disposition.SETTLED
    assert "It was stopped" in outcome.result


@pytest.mark.parametrize("context", [outside, contextvars.Context])
async def test_what_later_calls_share_is_not_the_work_of_the_call_that_starts_it(left, context):
    async def connect():
        left.tasks.add(asyncio.create_task(left.loop_may_end.wait(), context=context()))
        await asyncio.Event().wait()

    harness = ExecutorHarness(make_tool(connect, description="Probe.", timeout=0.1))
    outcome = await harness.run("connect")
    assert outcome.status is CallStatus.TIMED_OUT


async def test_a_background_task_does_not_change_the_result_of_a_call(left):
    async def starts():
        left.tasks.add(asyncio.create_task(left.loop_may_end.wait()))
        return "started"

    outcome = await ExecutorHarness(make_tool(starts, description="Probe.")).run("starts")
    assert (outcome.status, outcome.result) == (CallStatus.SUCCEEDED, "started")
