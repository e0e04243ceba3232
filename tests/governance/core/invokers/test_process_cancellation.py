"""A cancelled call ends with its worker and all that it started (T8, C4; acceptance 46 to 48)."""

import asyncio
import os
import signal

import pytest

from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation, CancellationToken, Cancelled
from tests.governance.core.invokers.worker_calls import Call, released, run
from tests.governance.core.process_table import runs, tagged
from tests.support import PATIENCE, eventually


@pytest.mark.parametrize("function", ["spin", "hold_the_interpreter", "match_catastrophically"])
async def test_cancelled_call_is_gone_whatever_it_does(make, function):
    invoker = make()
    worker = await run(invoker, "pid")
    call = Call(invoker, function, {})
    await call.report()
    await call.cancel()
    assert not runs(worker)
    assert await run(invoker, "add", a=1, b=1) == 2
    assert await run(invoker, "pid") != worker


async def test_python_code_ends_at_once_without_the_grace(make):
    invoker = make(kill_grace=600)
    call = Call(invoker, "spin", {})
    await call.report()
    async with asyncio.timeout(PATIENCE):
        await call.cancel()


async def test_neighbour_of_a_tool_that_ignores_sigterm_is_not_disturbed(make, pipe, mark):
    invoker = make(max_workers=2, kill_grace=600)
    deaf = Call(invoker, "ignore_sigterm", {}, call_id="deaf")
    neighbour = Call(invoker, "sleep_until_released", {"path": str(pipe)}, call_id="neighbour")
    await deaf.report()
    await neighbour.report()
    deaf.task.cancel()
    assert await released(neighbour, pipe) == "released"
    assert not deaf.task.done()  # the neighbour was done within the grace of the other
    await kill(deaf, mark)


async def test_next_call_does_not_wait_for_the_grace_of_a_cancelled_one(make, mark):
    invoker = make(spare=1, kill_grace=600)
    deaf = Call(invoker, "ignore_sigterm", {}, call_id="deaf")
    await deaf.report()
    await eventually(lambda: invoker.idle == 1)
    deaf.task.cancel()
    assert await run(invoker, "add", a=1, b=1) == 2
    assert not deaf.task.done()
    assert invoker.ending == 1
    await kill(deaf, mark)


async def kill(deaf, mark):
    """Spare the test the grace of a cancelled call."""
    for pid in tagged(mark):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(asyncio.CancelledError):
        await deaf.task


async def test_everything_that_the_tool_started_dies_with_it(make, mark):
    invoker = make()
    call = Call(invoker, "start_family", {})
    pids = [int(pid) for pid in (await call.report()).message.split()]
    assert len(pids) == 4
    assert all(runs(pid) for pid in pids)
    await call.cancel()
    await eventually(lambda: not any(runs(pid) for pid in pids))
    await eventually(lambda: not tagged(mark))


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


async def test_second_cancellation_still_leaves_nothing_behind(make, mark):
    invoker = make()
    call = Call(invoker, "ignore_sigterm", {})
    await call.report()
    call.task.cancel()
    await asyncio.sleep(0)
    await call.cancel()
    await eventually(lambda: invoker.ending == 0 and not tagged(mark))


@pytest.mark.parametrize("before", ["leave_signals_changed", "look_once_never_again"])
async def test_a_call_ends_on_the_spot_after_one_that_changed_signals_or_looked_at_its_token(
    make, before
):
    invoker = make(kill_grace=600)
    await run(invoker, before)
    call = Call(invoker, "spin", {})
    await call.report()
    async with asyncio.timeout(PATIENCE):
        await call.cancel()


async def test_call_cancelled_while_it_waits_for_a_worker_starts_nothing(make, pipe):
    invoker = make()
    first = Call(invoker, "sleep_until_released", {"path": str(pipe)}, call_id="first")
    await first.report()
    second = Call(invoker, "exit_hard", {"status": 3}, call_id="second")
    await asyncio.sleep(0)
    await second.cancel()
    assert await released(first, pipe) == "released"
    assert invoker.live == 1


async def test_token_cancelled_before_the_start_starts_nothing(make):
    invoker = make()
    token = CancellationToken()
    token.cancel(Cancellation(reason=CancelReason.USER))
    with pytest.raises(Cancelled):
        await Call(invoker, "exit_hard", {"status": 3}, token=token).task
    assert await run(invoker, "add", a=1, b=1) == 2


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
