"""Workers that die, wear out, queue, wait warm and go down with the server (T8, C13)."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from governance.core.exceptions import GovernanceError
from governance.core.invokers.process import WorkerDied, WorkerPoolBroken, WorkerPoolClosed
from governance.core.invokers.restart_budget import RestartBudget
from tests.governance.core.invokers.worker_calls import TOOLS, Call, run
from tests.governance.core.process_table import runs, tagged
from tests.support import PATIENCE, eventually


@pytest.mark.parametrize(
    ("function", "arguments", "description"),
    [
        ("exit_hard", {"status": 3}, "exited with status 3"),
        ("crash", {}, "was ended by SIGSEGV"),
        ("die_while_child_holds_the_connection", {}, "exited with status 3"),
        ("scribble_on_the_connection", {}, "sent a frame of 4294967295 bytes"),
        ("close_the_connection", {}, "closed its connection"),
    ],
)
async def test_worker_that_dies_fails_its_call_at_once_and_the_next_one_works(
    make, function, arguments, description
):
    invoker = make()
    with pytest.raises(WorkerDied) as died:
        await run(invoker, function, **arguments)
    assert died.value.description == description
    assert isinstance(died.value, GovernanceError)
    assert await run(invoker, "add", a=1, b=1) == 2


async def test_worker_killed_from_outside_fails_its_call_and_the_next_one_works(make):
    invoker = make()
    worker = await run(invoker, "pid")
    call = Call(invoker, "spin", {})
    await call.report()
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(WorkerDied, match="SIGKILL"):
        await call.task
    assert await run(invoker, "add", a=1, b=1) == 2


async def test_worker_killed_while_idle_is_replaced(make):
    invoker = make()
    worker = await run(invoker, "pid")
    os.kill(worker, signal.SIGKILL)
    await eventually(lambda: not runs(worker))
    assert await run(invoker, "add", a=1, b=1) == 2


async def test_forked_child_that_comes_back_from_the_tool_is_turned_away(make):
    invoker = make()
    worker = await run(invoker, "pid")
    assert await run(invoker, "come_back_twice") == worker
    assert await run(invoker, "pid") == worker


async def test_tool_whose_workers_keep_dying_is_refused_until_a_minute_passed_and_others_are_not(
    make,
):
    now = [1000.0]
    invoker = make(budget=RestartBudget(deaths=2, clock=lambda: now[0]))
    for _ in range(3):
        with pytest.raises(WorkerDied):
            await run(invoker, "exit_hard", status=1)
    with pytest.raises(WorkerPoolBroken) as broken:
        await run(invoker, "exit_hard", status=1)
    assert broken.value.retry_after == 60
    assert await run(invoker, "add", a=1, b=1) == 2
    now[0] += 60
    with pytest.raises(WorkerDied):
        await run(invoker, "exit_hard", status=1)


async def test_workers_that_we_ended_do_not_count(make):
    invoker = make(budget=RestartBudget(deaths=0))
    for _ in range(2):
        call = Call(invoker, "spin", {})
        await call.report()
        await call.cancel()
    assert await run(invoker, "add", a=1, b=1) == 2


@pytest.mark.parametrize("initializer", ["fail_to_initialize", "die_at_start", "no_such_function"])
async def test_workers_that_do_not_come_up_are_not_started_for_ever(make, initializer):
    invoker = make(spare=1, initializer=f"{TOOLS}:{initializer}", budget=RestartBudget(deaths=1))
    with pytest.raises(WorkerDied) as died:
        await run(invoker, "add", a=1, b=1)
    assert "hunter2" not in str(died.value)
    with pytest.raises(WorkerDied):
        await run(invoker, "add", a=1, b=1)
    with pytest.raises(WorkerPoolBroken):
        await run(invoker, "add", a=1, b=1)
    await eventually(lambda: invoker.live == 0 and invoker.ending == 0)


async def test_system_that_has_no_process_left_is_told_in_words(make, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(WorkerDied, match="could not be started"):
        await run(make(), "add", a=1, b=1)


async def test_worker_is_replaced_after_its_share_of_calls(make):
    invoker = make(max_calls_per_worker=2)
    pids = [await run(invoker, "pid") for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]
    await eventually(lambda: not runs(pids[0]))


async def test_worker_that_grew_too_large_is_replaced(make):
    invoker = make(max_worker_bytes=100_000_000)
    grown = await run(invoker, "grow", megabytes=120)
    assert await run(invoker, "pid") != grown


async def test_spare_is_kept_warm_and_takes_the_call_after_a_cancelled_one(make, mark):
    invoker = make(spare=1)
    await invoker.warm()
    assert (invoker.live, invoker.idle) == (1, 1)
    call = Call(invoker, "spin", {})
    await call.report()
    await eventually(lambda: invoker.idle == 1)
    before = set(tagged(mark))
    await call.cancel()
    assert await run(invoker, "pid") in before


async def test_calls_beyond_the_workers_queue_and_are_all_answered(make):
    invoker = make(max_workers=2)
    most = 0

    async def one(number):
        nonlocal most
        result = await run(invoker, "add", a=number, b=1)
        most = max(most, invoker.live)
        return result

    assert await asyncio.gather(*(one(number) for number in range(20))) == list(range(1, 21))
    assert most <= 2


async def test_closing_ends_everything_at_once_and_takes_no_more_calls(make, mark, caplog):
    invoker = make(max_workers=3, spare=1)
    family = Call(invoker, "start_family", {}, call_id="family")
    deaf = Call(invoker, "ignore_sigterm", {}, call_id="deaf")
    pids = [int(pid) for pid in (await family.report()).message.split()]
    await deaf.report()
    async with asyncio.timeout(PATIENCE):
        await invoker.aclose()
    await eventually(lambda: not tagged(mark))
    await eventually(lambda: not any(runs(pid) for pid in pids))
    for call in (family, deaf):
        with pytest.raises(WorkerDied):
            await call.task
    assert not caplog.records  # a worker that we ended is no incident
    with pytest.raises(WorkerPoolClosed):
        await run(invoker, "add", a=1, b=1)


async def test_closing_while_a_worker_starts_leaves_nothing(make, mark):
    invoker = make(spare=1)
    call = Call(invoker, "add", {"a": 1, "b": 1})
    await eventually(lambda: invoker.live > 0)
    await invoker.aclose()
    with pytest.raises((WorkerPoolClosed, WorkerDied)):
        await call.task
    await eventually(lambda: not tagged(mark))


SERVER = f"""
import asyncio, sys
sys.path[:] = {sys.path!r}
from governance.core.invokers.process import ProcessInvoker

async def main():
    invoker = ProcessInvoker(max_workers=1, spare=1, kill_grace=1)
    await invoker.warm()
    tell = lambda report: print(report.message, flush=True)
    await invoker.invoke_function(sys.argv[1], {{}}, call_id="c", on_progress=tell)

asyncio.run(main())
"""


@pytest.fixture
def serve():
    """Start a server that runs one tool in a worker."""
    started = []

    def start(function):
        server = subprocess.Popen(
            [sys.executable, "-c", SERVER, f"{TOOLS}:{function}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        started.append(server)
        return server

    yield start
    for server in started:
        server.kill()
        server.wait()
        server.stdout.close()


async def test_nothing_outlives_a_server_that_is_killed(serve, mark):
    server = serve("start_family")
    pids = [int(pid) for pid in (await asyncio.to_thread(server.stdout.readline)).split()]
    assert len(pids) == 4
    assert len(tagged(mark)) >= 4  # the server, its worker, the spare, their guards
    server.kill()
    await eventually(lambda: not tagged(mark) and not any(runs(pid) for pid in pids))


async def test_worker_whose_interpreter_is_held_does_not_outlive_the_server(serve, mark):
    server = serve("hold_the_interpreter")
    assert await asyncio.to_thread(server.stdout.readline)
    server.kill()
    await eventually(lambda: not tagged(mark))


async def test_interrupted_server_without_a_proper_end_leaves_nothing(serve, mark):
    server = serve("spin")
    assert await asyncio.to_thread(server.stdout.readline)
    server.send_signal(signal.SIGINT)
    await eventually(lambda: server.poll() is not None)
    await eventually(lambda: not tagged(mark))
