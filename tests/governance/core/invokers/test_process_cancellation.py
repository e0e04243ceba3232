"""A cancelled call ends with its worker and all that it started (T8, C4; acceptance 46 to 48)."""

import asyncio
import os
import signal

import pytest

from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation, CancellationToken
from tests.governance.core.invokers.worker_calls import Call, released, run
from tests.governance.core.process_table import runs
from tests.support import PATIENCE


@pytest.mark.parametrize("function", ["spin", "hold_the_interpreter", "match_catastrophically"])
async def test_cancelled_call_is_gone_whatever_it_does(make, function):
    invoker = make()
    call = Call(invoker, function, {})
    await call.report()
    await call.cancel()
    assert invoker.live == 0
    assert await run(invoker, "add", a=1, b=1) == 2


async def test_python_code_ends_at_once_without_the_grace(make):
    invoker = make(kill_grace=600)
    call = Call(invoker, "spin", {})
    await call.report()
    async with asyncio.timeout(PATIENCE):
        await call.cancel()


async def test_neighbour_of_a_tool_that_ignores_sigterm_is_not_disturbed(make, pipe):
    invoker = make(kill_grace=600)
    deaf = Call(invoker, "ignore_sigterm", {})
    neighbour = Call(invoker, "sleep_until_released", {"path": str(pipe)})
    worker = int((await deaf.report()).message)
    await neighbour.report()
    deaf.task.cancel()
    assert await released(neighbour, pipe) == "released"
    assert not deaf.task.done()  # the neighbour was done within the grace of the other
    os.kill(worker, signal.SIGKILL)  # to spare the test the grace
    with pytest.raises(asyncio.CancelledError):
        await deaf.task


async def test_everything_that_the_tool_started_dies_with_it(make):
    invoker = make()
    call = Call(invoker, "start_family", {})
    pids = [int(pid) for pid in (await call.report()).message.split()]
    assert len(pids) == 4
    assert all(runs(pid) for pid in pids)
    await call.cancel()
    assert not any(runs(pid) for pid in pids)


async def test_process_that_nothing_marks_dies_with_the_call(make):
    call = Call(make(), "escape", {})
    pid = int((await call.report()).message)
    assert runs(pid)
    await call.cancel()
    assert not runs(pid)


@pytest.mark.parametrize(
    ("tool", "trace"), [("finish_when_asked", "tidied up"), ("wait_to_be_asked", "woken up")]
)
async def test_cooperative_tool_gets_the_grace_to_tidy_up(make, tmp_path, tool, trace):
    file = tmp_path / "trace"
    call = Call(make(kill_grace=600), tool, {"path": str(file)})
    await call.report()
    async with asyncio.timeout(PATIENCE):
        await call.cancel()
    assert file.read_text() == trace


@pytest.mark.parametrize("size", [3, 3_000_000])  # the second one fills the connection
async def test_cooperative_tool_waits_for_no_image_that_nobody_takes(make, tmp_path, size):
    async def hold(_content, _name):
        await asyncio.Event().wait()

    file = tmp_path / "trace"
    arguments = {"path": str(file), "size": size}
    call = Call(make(kill_grace=600), "draw_and_tidy_up", arguments, show=hold)
    await call.report()
    async with asyncio.timeout(PATIENCE):
        await call.cancel()
    assert file.read_text() == "tidied up"


async def test_tool_that_never_looks_ends_on_the_spot_while_an_image_is_kept(make):
    is_asked = asyncio.Event()

    async def hold(_content, _name):
        is_asked.set()
        await asyncio.Event().wait()

    call = Call(make(kill_grace=600), "draw", {}, show=hold)
    await is_asked.wait()
    async with asyncio.timeout(PATIENCE):
        await call.cancel()


async def test_second_cancellation_still_leaves_nothing_behind(make):
    invoker = make()
    call = Call(invoker, "ignore_sigterm", {})
    await call.report()
    call.task.cancel()
    await asyncio.sleep(0)
    await call.cancel()
    await invoker.aclose()
    assert invoker.live == 0


async def test_token_cancelled_before_the_start_starts_nothing(make):
    invoker = make()
    token = CancellationToken()
    token.cancel(Cancellation(reason=CancelReason.USER))
    assert await invoker.prepare(token) is None
    assert invoker.live == 0


async def test_our_own_group_is_never_signalled(make):
    received = []
    before = signal.signal(signal.SIGTERM, lambda *_: received.append("SIGTERM"))
    try:
        call = Call(make(), "spin", {})
        await call.report()
        await call.cancel()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == []
