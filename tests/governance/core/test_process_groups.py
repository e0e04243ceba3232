"""GroupEnding a process group: acceptance 46 to 49."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import uuid

import pytest

from governance.core import parent_guard, procfs
from governance.core.process_groups import (
    GroupEnding,
    kill_tagged_processes,
    terminate_group,
    wait_for_exit,
)
from tests.governance.core.process_table import runs
from tests.support import cancel, eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
SAY = "import os; print(os.getpid(), flush=True)\n"
TELL = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(60)\n"
FAMILY = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {DEAF + TELL!r}])
{TELL}
"""
DAEMON = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {DEAF + TELL!r}], start_new_session=True)
{TELL}
"""


@pytest.fixture
def spawn():
    """Start Python code in a group of its own and return the process and the pids that it tells."""
    started = []

    def start(code, *, tells=1, environment=None, **options):
        options.setdefault("start_new_session", True)
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
            **options,
        )
        pids = [int(process.stdout.readline()) for _ in range(tells)]
        started.append((process, pids))
        return process, pids

    yield start
    for process, pids in started:
        for pid in {process.pid, *pids}:
            assert pid > 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.stdout.close()
        process.wait()


async def test_child_that_heeds_sigterm_is_not_killed(spawn):
    process, _ = spawn(TELL)
    assert await terminate_group(process, grace=10) is GroupEnding.TERMINATED
    assert process.returncode == -signal.SIGTERM


async def test_child_that_ignores_sigterm_is_killed_after_the_grace(spawn):
    process, _ = spawn(DEAF + TELL)
    loop = asyncio.get_running_loop()
    before = loop.time()
    assert await terminate_group(process, grace=0.2) is GroupEnding.KILLED
    assert process.returncode == -signal.SIGKILL
    assert loop.time() - before >= 0.2


async def test_child_that_tidies_up_within_the_grace_is_not_killed(spawn):
    code = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n" + TELL
    process, _ = spawn(code)
    assert await terminate_group(process, grace=10) is GroupEnding.TERMINATED
    assert process.returncode == 7


async def test_grandchild_that_ignores_sigterm_dies_with_the_group(spawn):
    process, pids = spawn(FAMILY, tells=2)
    assert await terminate_group(process, grace=0.2) is GroupEnding.KILLED
    assert not any(runs(pid) for pid in pids)


async def test_group_outlives_its_leader_and_is_still_ended(spawn):
    process, pids = spawn(FAMILY, tells=2)
    process.kill()
    await wait_for_exit(process)
    (orphan,) = [pid for pid in pids if pid != process.pid]
    assert runs(orphan)
    assert await terminate_group(process, grace=0.05) is GroupEnding.KILLED
    assert not runs(orphan)


async def test_child_that_is_gone_is_not_signalled(spawn):
    process, _ = spawn(SAY)
    await wait_for_exit(process)
    assert await terminate_group(process, grace=10) is GroupEnding.ALREADY_GONE


async def test_zombie_that_nobody_has_reaped_counts_as_gone(spawn):
    process, _ = spawn(SAY)
    await eventually(lambda: not runs(process.pid))
    assert await terminate_group(process.pid, grace=10) is GroupEnding.ALREADY_GONE


async def test_stopped_child_acts_on_sigterm(spawn):
    process, _ = spawn(TELL)
    process.send_signal(signal.SIGSTOP)
    assert await terminate_group(process, grace=10) is GroupEnding.TERMINATED


async def test_child_in_our_own_group_is_never_signalled(spawn):
    process, _ = spawn(TELL, start_new_session=False)
    assert os.getpgid(process.pid) == os.getpgrp()
    assert await terminate_group(process, grace=0) is GroupEnding.NOT_OURS
    assert runs(process.pid)


@pytest.mark.parametrize("pid", [-1, 0, 1])
async def test_numbers_that_mean_many_processes_are_never_signalled(pid):
    assert await terminate_group(pid, grace=0) is GroupEnding.NOT_OURS


async def test_our_own_group_is_never_signalled():
    assert await terminate_group(os.getpgrp(), grace=0) is GroupEnding.NOT_OURS
    assert await terminate_group(os.getpid(), grace=0) is GroupEnding.NOT_OURS


async def test_asyncio_subprocess_is_ended_and_reaped():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DEAF + TELL, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    await process.stdout.readline()
    assert await terminate_group(process, grace=0.05) is GroupEnding.KILLED
    assert await process.wait() == -signal.SIGKILL


async def test_backgrounded_process_survives_unless_a_tag_is_swept(spawn):
    tag = f"TEST_TAG={uuid.uuid4().hex}"
    name, _, value = tag.partition("=")
    process, pids = spawn(DAEMON, tells=2, environment={name: value})
    (daemon,) = [pid for pid in pids if pid != process.pid]
    assert await terminate_group(process, grace=10) is GroupEnding.TERMINATED
    assert runs(daemon)
    assert await terminate_group(process, grace=10, sweep_tag=tag) is GroupEnding.KILLED
    await eventually(lambda: not runs(daemon))


def look_from_here(pid, tag):
    return procfs.kill_tagged(pid, tag=tag)


def look_from_a_guard(pid, tag):
    return parent_guard.kill_or_look_again(pid, tag=tag.encode())


@pytest.mark.parametrize("look", [look_from_here, look_from_a_guard])
def test_a_process_that_is_just_being_started_is_looked_at_again(look):
    """Whoever starts it goes on before it has its environment: half of these have none when they are looked at."""
    for _ in range(50):
        with subprocess.Popen(["/bin/sleep", "60"], env={"TEST_TAG": "new"}) as process:
            try:
                assert look(process.pid, "TEST_TAG=new") is not False
            finally:
                process.kill()


def test_a_process_without_an_environment_is_left_alone():
    with subprocess.Popen([sys.executable, "-c", TELL], env={}, stdout=subprocess.PIPE) as bare:
        bare.stdout.readline()
        try:
            assert look_from_here(bare.pid, "TEST_TAG=new") is False
            assert look_from_a_guard(bare.pid, "TEST_TAG=new") is False
        finally:
            bare.kill()


async def test_a_sweep_ends_a_process_that_is_just_being_started():
    for _ in range(20):
        tag = uuid.uuid4().hex
        process = subprocess.Popen(["/bin/sleep", "60"], env={"TEST_TAG": tag})  # noqa: ASYNC220
        assert await kill_tagged_processes(f"TEST_TAG={tag}")
        assert await wait_for_exit(process) == -signal.SIGKILL


async def test_sweep_spares_a_process_with_a_longer_tag(spawn):
    value = uuid.uuid4().hex
    process, _ = spawn(TELL, environment={"TEST_TAG": value + "0"})
    assert await kill_tagged_processes(f"TEST_TAG={value}") == 0
    assert runs(process.pid)


async def test_cancelling_the_wait_cuts_the_grace_short(spawn):
    process, _ = spawn(DEAF + TELL)
    ending = asyncio.create_task(terminate_group(process, grace=60))
    await asyncio.sleep(0)
    await cancel(ending)
    assert await wait_for_exit(process) == -signal.SIGKILL


async def test_event_loop_goes_on_while_a_group_is_ended(spawn):
    process, _ = spawn(DEAF + TELL)
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await terminate_group(process, grace=0.5)
    ticking.cancel()
    assert ticks > 100  # a loop that is held makes a handful


async def test_exit_is_seen_without_pidfd(spawn, monkeypatch):
    monkeypatch.delattr(os, "pidfd_open")
    process, _ = spawn(SAY + "raise SystemExit(5)")
    assert await wait_for_exit(process) == 5


async def test_group_is_ended_without_proc(spawn, monkeypatch):
    monkeypatch.setattr(procfs, "AVAILABLE", False)
    process, pids = spawn(FAMILY, tells=2)
    assert await terminate_group(process, grace=0.1, proof_timeout=0.2) in (
        GroupEnding.KILLED,
        GroupEnding.SURVIVED,
    )
    assert not any(runs(pid) for pid in pids)
