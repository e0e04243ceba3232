"""Containment: a tool that asks to exit, in its body or in a task that it starts, fails its call. A signal stays a signal."""

import asyncio
import contextvars
import os
import signal
import threading
import warnings

import pytest

from governance import CallStatus, ErrorType, make_tool
from governance.core.invokers.thread import ThreadInvoker
from governance.core.tools import Isolation
from tests.governance.core.support import BY_USER, ExecutorHarness, settle, started

pytestmark = pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])


def assert_failed(outcome):
    assert (outcome.status, outcome.error_type) == (CallStatus.FAILED, ErrorType.EXECUTION_ERROR)


async def test_contains_what_a_task_of_the_tool_raises(error):
    async def leave():
        raise error

    async def gathering() -> None:
        await asyncio.gather(leave(), asyncio.sleep(0))

    async def waiting() -> None:
        await asyncio.wait_for(leave(), 5)

    async def grouping() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(leave())

    harness = ExecutorHarness(make_tool(gathering), make_tool(waiting), make_tool(grouping))

    for name in ("gathering", "waiting", "grouping"):
        assert_failed(await harness.run(name))


async def test_contains_a_coroutine_that_a_thread_hands_to_the_loop(error):
    loop = asyncio.get_running_loop()

    async def leave():
        raise error

    def handing() -> None:
        asyncio.run_coroutine_threadsafe(leave(), loop).result()

    invokers = {Isolation.THREAD: ThreadInvoker(max_threads=1, max_abandoned=1)}

    assert_failed(await ExecutorHarness(make_tool(handing), invokers=invokers).run("handing"))


def test_a_task_of_the_host_that_exits_ends_the_loop(error):
    async def well() -> str:
        return "fine"

    async def host():
        await ExecutorHarness(make_tool(well)).run("well")
        await asyncio.create_task(leave())

    async def leave():
        raise error

    with pytest.raises(error):
        asyncio.run(host())


async def test_the_task_factory_of_the_host_makes_the_tasks_of_tools_too(error):
    loop = asyncio.get_running_loop()
    made = []

    class HostsTask(asyncio.Task):
        pass

    def hosts_factory(loop, coroutine, **options):
        made.append(options)
        return HostsTask(coroutine, loop=loop, **options)

    async def leave():
        raise error

    async def starting() -> str:
        task = asyncio.create_task(leave(), name="mine", context=contextvars.Context())
        await asyncio.wait({task})
        return f"{type(task).__name__} {task.get_name()} {task.exception()}"

    async def well() -> str:
        return "fine"

    harness = ExecutorHarness(make_tool(starting), make_tool(well))
    await harness.run("well")  # the factory that the host sets may come after the first call
    loop.set_task_factory(hosts_factory)
    try:
        outcome = await harness.run("starting")
        assert outcome.result == f"HostsTask mine the tool raised {error.__name__}"
        count = len(made)
        await asyncio.create_task(asyncio.sleep(0))
        assert len(made) == count + 1
    finally:
        loop.set_task_factory(None)


async def test_contains_what_a_tool_raises_when_it_is_cancelled(error):
    async def unwilling() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise error from None

    harness = ExecutorHarness(make_tool(unwilling))
    call = harness.call("unwilling")
    await settle()

    call.live.cancel(BY_USER)

    assert (await call.outcome()).status is CallStatus.CANCELLED


async def test_contains_a_callback_on_its_token(error):
    harness = ExecutorHarness()
    harness.gated()
    (call,) = await started(harness, "A")

    def leave(_):
        raise error

    call.body.context.token.on_cancel(leave)
    call.live.cancel(BY_USER)

    assert (await call.outcome()).status is CallStatus.CANCELLED


async def test_contains_the_rendering_of_a_value(error):
    class Value:
        def __str__(self):
            raise error

    async def valued() -> object:
        return Value()

    async def rendered() -> str:
        return "value"

    def render(_):
        raise error

    harness = ExecutorHarness(make_tool(valued), make_tool(rendered, render=render))

    for name in ("valued", "rendered"):
        outcome = await harness.run(name)
        assert_failed(outcome)
        assert "has run" in outcome.result


async def test_contains_the_question_whether_a_tool_is_off(error):
    async def well() -> str:
        return "fine"

    def leave():
        raise error

    made = make_tool(well, off=leave)

    assert made.disabled_reason() == ""  # agents and administrators ask it, too
    assert (await ExecutorHarness(made).run("well")).result == "fine"


async def test_a_task_that_is_cancelled_before_it_starts_warns_of_nothing(error):
    async def never():
        raise error

    async def hasty() -> str:
        task = asyncio.create_task(never())
        task.cancel()
        await asyncio.wait({task})
        return str(task.cancelled())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (await ExecutorHarness(make_tool(hasty)).run("hasty")).result == "True"


def test_a_signal_of_the_process_stays_what_it_is(error):
    """A handler that raises, as Python's own for Ctrl-C does: the loop ends, whosever code was running."""
    assert threading.current_thread() is threading.main_thread()

    def handler(*_):
        raise error

    async def busy() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)

    before = signal.signal(signal.SIGTERM, handler)
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(error):
            loop.run_until_complete(ExecutorHarness(make_tool(busy)).run("busy"))
    finally:
        signal.signal(signal.SIGTERM, before)
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
