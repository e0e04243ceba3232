"""Workers that die, do not come up, and go down with the server (T8, C13)."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from governance.core.exceptions import GovernanceError
from governance.core.invokers.worker_errors import WorkerDied, WorkerNotStarted
from tests.governance.core.invokers.worker_calls import TOOLS, Call, run
from tests.governance.core.process_table import parent, runs, tagged
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
    call = Call(invoker, "tell_pid_and_wait", {})
    os.kill(int((await call.report()).message), signal.SIGKILL)
    with pytest.raises(WorkerDied, match="SIGKILL"):
        await call.task
    assert await run(invoker, "add", a=1, b=1) == 2


async def test_forked_child_that_comes_back_from_the_tool_is_turned_away(make):
    invoker = make()
    assert await run(invoker, "come_back_twice") == "once"
    await eventually(lambda: invoker.live == 0)


async def test_what_a_tool_leaves_behind_ends_with_its_call(make):
    invoker = make()
    left = await run(invoker, "leave_child_behind")
    await eventually(lambda: not runs(left))


async def test_tool_that_kills_its_keeper_ends_with_what_it_has_started(make):
    call = Call(make(), "kill_the_keeper", {})
    child = int((await call.report()).message)
    with pytest.raises(WorkerDied):
        await call.task
    await eventually(lambda: not runs(child))


async def test_the_process_that_forks_may_be_killed_at_any_time(make, mark):
    invoker = make()
    call = Call(invoker, "tell_pid_and_wait", {})
    worker = int((await call.report()).message)
    forks = parent(parent(worker))
    os.kill(forks, signal.SIGKILL)
    await eventually(lambda: not runs(forks))
    assert await run(invoker, "add", a=1, b=1) == 2
    assert runs(worker)
    await call.cancel()
    assert not runs(worker)


@pytest.mark.parametrize("initializer", ["fail_to_initialize", "die_at_start", "no_such_function"])
async def test_worker_that_does_not_come_up_is_told_without_details(make, initializer, caplog):
    invoker = make(initializer=f"{TOOLS}:{initializer}")
    for _ in range(2):
        with pytest.raises(WorkerNotStarted) as refused:
            await run(invoker, "add", a=1, b=1)
        assert str(refused.value) == "The tool's process could not be started."
        assert refused.value.detail
    assert {record.message for record in caplog.records} == {
        "A worker process could not be started"
    }
    await eventually(lambda: invoker.live == 0)


@pytest.mark.parametrize("left", ["thread", "connection", "position"])
async def test_host_that_leaves_at_its_start_what_cannot_be_forked_is_set_up_in_each_worker(
    make, left
):
    invoker = make(initializer=f"{TOOLS}:leave_{left}_open")
    pids = {await run(invoker, "use_what_was_left_open") for _ in range(2)}
    assert len(pids) == 2


@pytest.mark.parametrize("left", ["log", "loop"])
async def test_host_is_set_up_once_where_it_leaves_open_what_can_be_forked(make, left):
    invoker = make(initializer=f"{TOOLS}:leave_{left}_open")
    assert await run(invoker, "initialized_in") == await run(invoker, "initialized_in")


async def test_system_that_has_no_process_left_is_told_in_words(make, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(WorkerNotStarted, match="could not be started"):
        await run(make(), "add", a=1, b=1)


async def test_closing_ends_everything_at_once_and_takes_no_more_calls(make, mark, caplog):
    invoker = make()
    family = Call(invoker, "start_family", {})
    deaf = Call(invoker, "ignore_sigterm", {})
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
    with pytest.raises(WorkerNotStarted, match="shutting down"):
        await run(invoker, "add", a=1, b=1)


async def test_closing_while_a_worker_starts_leaves_nothing(make, mark):
    invoker = make()
    call = Call(invoker, "add", {"a": 1, "b": 1})
    await eventually(lambda: invoker.live > 0)
    await invoker.aclose()
    with pytest.raises(WorkerNotStarted):
        await call.task
    await eventually(lambda: not tagged(mark))


SERVER = f"""
import asyncio, sys
sys.path[:] = {sys.path!r}
from governance.core.invokers.process import ProcessInvoker
from tests.governance.core.invokers.worker_calls import Call

async def main():
    invoker = ProcessInvoker(max_workers=1, kill_grace=1)
    call = Call(invoker, sys.argv[1], {{}})
    print((await call.report()).message, flush=True)
    await call.task

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
    assert len(tagged(mark)) >= 4  # the server, the process that forks, the keeper, the worker
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
