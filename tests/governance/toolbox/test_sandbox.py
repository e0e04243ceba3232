"""The sandbox of commands: what they can and cannot reach in it, and how they end (G1, C4).

Whether bubblewrap works is asked once. Where it does not, the same tests assert the fallback and the refusal.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from governance import toolbox
from governance.core.calls import CallStatus, Disposition, ToolCall
from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation
from governance.core.exceptions import ToolFailed
from governance.core.executor import Timing, ToolExecutor
from governance.core.ports import Host
from governance.toolbox import SandboxChoice, ToolboxSettings
from governance.toolbox.sandbox import Mode, Sandbox, find_gaps, find_sandbox
from governance.toolbox.shell import describe
from tests.governance.toolbox.bubblewrap import install_bubblewrap
from tests.governance.toolbox.http_server import HttpServer, answer
from tests.support import PATIENCE, NoApprovals, cancel, eventually, eventually_sync

pytestmark = [
    pytest.mark.usefixtures("_no_pipe_is_left"),
    pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux"),
]

FOUND = find_sandbox(ToolboxSettings())
WORKS = FOUND.mode is Mode.BWRAP
GAPS = find_gaps(FOUND) if WORKS else ()


@pytest.fixture
def sandboxed(harness):
    """The tools with the sandbox as it is by default."""
    harness.change(exec_sandbox=SandboxChoice.AUTO)
    return harness


@pytest.fixture
def without_bubblewrap(monkeypatch, tmp_path):
    """A machine on which it is not installed."""
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def broken_bubblewrap(monkeypatch, tmp_path):
    """A machine whose system does not let it work, as in most containers."""
    install_bubblewrap(tmp_path, "echo 'bwrap: No permissions to create new namespace' >&2\nexit 1")
    monkeypatch.setenv("PATH", str(tmp_path))


def falls_back():
    """What holds instead where bubblewrap does not work: `auto` knows, and has a reason to tell."""
    assert FOUND.mode is Mode.NONE
    assert FOUND.problem


def processes(mark):
    """The pids of all processes with the mark in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in line:
                found.append(int(entry.name))
    return found


@pytest.fixture
def mark():
    """A word for command lines; every process that still has it at the end is a failure."""
    word = f"mark{uuid.uuid4().hex}"
    yield word
    left = processes(word)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


async def test_auto_takes_the_sandbox_where_it_works_and_none_where_not(sandboxed):
    said = await sandboxed.call("exec", command="echo $$")
    message = sandboxed.reports[0].message
    if WORKS:
        assert said == "2"  # the first after the sandbox's own
        assert message == "Running: sandbox (bubblewrap), no network"
    else:
        assert int(said) > 2
        assert message == "Running: no sandbox, with all rights of the server's user"


async def test_only_the_workspace_can_be_written(sandboxed, workspace, tmp_path):
    if not WORKS:
        falls_back()
        return
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("hush-4711")
    (workspace / "link").symlink_to(outside)
    targets = [outside / "x", "/usr/x", "/etc/x", "/x", workspace / "link" / "x", tmp_path / "x"]
    said = await sandboxed.call(
        "exec",
        command="; ".join(f"(echo x >{target}) 2>&1 || echo refused" for target in targets)
        + f"; cat {outside}/secret link/secret /etc/shadow 2>&1; echo mine >kept; cat kept",
    )
    assert said.splitlines().count("refused") == len(targets) - 1  # the last is in its own /tmp
    assert "hush-4711" not in said
    assert "root:" not in said
    assert said.endswith("mine")
    assert (workspace / "kept").read_text() == "mine\n"
    assert [entry.name for entry in outside.iterdir()] == ["secret"]
    assert not (tmp_path / "x").exists()
    assert not Path("/usr/x").exists()


async def test_no_namespace_can_be_made_inside(sandboxed):
    if not (WORKS and FOUND.can_disable_userns):
        return
    with pytest.raises(ToolFailed, match=r"(?s)unshare failed.*exit code 1|exit code 1.*unshare"):
        await sandboxed.call("exec", command="unshare --user --map-root-user true")


def test_a_bubblewrap_that_cannot_close_namespaces_is_used_all_the_same(monkeypatch, tmp_path):
    if not WORKS:
        falls_back()
        return
    older = f"""for word; do
      [ "$word" != --disable-userns ] || {{ echo "bwrap: Unknown option" >&2; exit 1; }}
    done
    exec {FOUND.program} "$@\""""
    install_bubblewrap(tmp_path, older)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = find_sandbox(ToolboxSettings())
    assert (found.mode, found.can_disable_userns, found.limits.can_size) == (
        Mode.BWRAP,
        False,
        True,
    )


async def test_its_tmp_is_its_own_and_empty_each_time(sandboxed):
    if not WORKS:
        falls_back()
        return
    name = f"/tmp/{uuid.uuid4().hex}"
    assert await sandboxed.call("exec", command=f"echo x >{name}; cat {name}") == "x"
    assert not Path(name).exists()
    with pytest.raises(ToolFailed, match="No such file"):
        await sandboxed.call("exec", command=f"cat {name}")


async def test_the_server_is_out_of_its_sight_and_reach(sandboxed):
    if not WORKS:
        falls_back()
        return
    said = await sandboxed.call(
        "exec",
        command=f"kill -0 {os.getpid()} 2>&1; cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -c PYTEST_; "
        "grep -E 'CapEff|NoNewPrivs' /proc/self/status; true",
    )
    assert "No such process" in said
    assert "\n0\n" in said
    assert "CapEff:\t0000000000000000" in said
    assert "NoNewPrivs:\t1" in said


@pytest.mark.parametrize("allowed", [False, True])
async def test_network_only_where_it_is_allowed(sandboxed, allowed):
    sandboxed.change(exec_network=allowed)
    server = HttpServer()
    server.pages["/"] = answer("reached")
    code = "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
    async with server.serve():
        call = sandboxed.call("exec", command=code.format(port=server.port))
        if allowed or not WORKS:
            assert "reached" in await call
        else:
            with pytest.raises(ToolFailed, match=r"refused|unreachable"):
                await call
    assert bool(server.requests) == (allowed or not WORKS)


async def test_paths_that_were_named_can_be_read_too(sandboxed, tmp_path):
    library = tmp_path / "library"
    library.mkdir()
    (library / "a.txt").write_text("shared")
    sandboxed.change(exec_readable=(str(library), "/not/there"))
    assert await sandboxed.call("exec", command=f"cat {library}/a.txt") == "shared"
    if WORKS:
        with pytest.raises(ToolFailed, match="Read-only"):
            await sandboxed.call("exec", command=f"echo x > {library}/a.txt")
    assert (library / "a.txt").read_text() == "shared"


async def test_exit_codes_and_signals_are_told(sandboxed):
    with pytest.raises(ToolFailed, match=r"exit code 7\.\nso far"):
        await sandboxed.call("exec", command="echo so far; exit 7")
    with pytest.raises(ToolFailed, match="the signal SIGKILL"):
        await sandboxed.call("exec", command="kill -9 $$; sleep 60")


async def test_words_after_the_request_to_stop_are_kept_and_everything_ends(sandboxed, mark):
    sandboxed.change(kill_grace=PATIENCE)
    command = (
        f"trap 'echo tidied up; exit' TERM; : {mark}; echo started; while :; do sleep 0.01; done"
    )
    task = asyncio.create_task(sandboxed.call("exec", command=command))
    await sandboxed.until(lambda: "started" in sandboxed.output)
    assert processes(mark)
    await cancel(task)
    assert "tidied up" in sandboxed.output
    await eventually(lambda: not processes(mark))


async def test_deaf_tree_is_gone_after_the_grace_with_those_that_left_its_group(sandboxed, mark):
    sandboxed.change(kill_grace=0.05)
    deaf = f"sh -c 'trap \"\" TERM; : {mark}; while :; do sleep 0.01; done'"
    escaped = f"setsid {deaf} &" if WORKS else ""  # without a sandbox it may outlive its call
    command = f"trap '' TERM; {deaf} & {escaped} echo started; {deaf}"
    task = asyncio.create_task(sandboxed.call("exec", command=command))
    await sandboxed.until(lambda: "started" in sandboxed.output)
    await eventually(lambda: len(processes(f": {mark}")) >= 2 + WORKS)
    await cancel(task)
    await eventually(lambda: not processes(mark))


async def test_cancel_before_the_sandbox_is_ready_ends_it(sandboxed, mark):
    for _ in range(5):
        task = asyncio.create_task(sandboxed.call("exec", command=f"sleep 60; : {mark}"))
        await eventually(lambda: processes(mark))
        await cancel(task)
        await eventually(lambda: not processes(mark))


async def test_under_the_executor_it_ends_in_time_with_its_partial_output(sandboxed, mark):
    # How long the kernel takes to end a command is not the matter here.
    patient = Timing(cancel_grace=PATIENCE)
    executor = ToolExecutor(registry=sandboxed.registry, policies=NoApprovals(), timing=patient)
    try:
        call = ToolCall(
            id="call_1",
            tool_name="exec",
            input={
                "command": f"trap '' TERM; : {mark}; echo half way; while :; do sleep 0.01; done"
            },
        )
        live = executor.prepare(call)
        running = asyncio.create_task(
            executor.execute(live, host=Host(workspace=sandboxed.workspace))
        )
        await eventually(lambda: live.partial_output)
        live.cancel(Cancellation(reason=CancelReason.USER))
        outcome = await running
        assert outcome.status is CallStatus.CANCELLED
        assert outcome.disposition is Disposition.SETTLED
        assert "half way" in outcome.result
        await eventually(lambda: not processes(mark))
    finally:
        await executor.aclose()


def test_it_dies_with_a_server_that_is_killed(tmp_path, mark):
    """kill -9 of the server leaves no command behind: its own doing, where the sandbox works."""
    server = textwrap.dedent(
        f"""
        import asyncio, pathlib
        from governance.core.cancellation import CancellationToken
        from governance.core.registry import ToolRegistry
        from governance.core.tools import ToolContext
        from governance.toolbox import ToolboxSettings, register
        registry = ToolRegistry()
        register(registry, settings=lambda: ToolboxSettings(exec_enabled=True))
        context = ToolContext(call_id="c", tool_name="exec", scope="s", token=CancellationToken(),
            report=lambda p: print(p.output, flush=True), workspace=pathlib.Path({str(tmp_path)!r}))
        asyncio.run(registry.get("exec").function(context, "setsid sleep 60 & echo up; : " + {mark!r} + "; sleep 60"))
        """
    )
    if not WORKS:
        falls_back()
        return
    process = subprocess.Popen([sys.executable, "-c", server], stdout=subprocess.PIPE, text=True)
    with process:
        for line in process.stdout:
            if line.strip() == "up":
                break
        assert len(processes(mark)) > 1
        process.kill()
    eventually_sync(lambda: not processes(mark))


async def test_nothing_of_the_kernel_can_be_written(sandboxed):
    """For root the kernel's settings are files like others: one of them names a program that it runs outside."""
    if not WORKS:
        falls_back()
        return
    places = ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/self/oom_score_adj")
    said = await sandboxed.call(
        "exec",
        command=f"for i in {' '.join(places)} /proc/irq /proc/bus /dev; do test -w $i && echo $i; done; "
        "(echo x >/dev/x) 2>&1; ls -d /sys 2>&1; echo fine >/dev/null && echo fine >/dev/shm/x && cat /dev/shm/x",
    )
    refused, missing, fine = said.splitlines()
    assert "Read-only" in refused
    assert "No such file" in missing
    assert fine == "fine"


GREEDY = {
    "memory": ({"exec_memory": 60_000_000}, "x=$(head -c 300000000 /dev/zero | tr '\\0' x)"),
    "a file": ({"exec_file_size": 1_000_000}, "head -c 3000000 /dev/zero >big"),
    "its /tmp": ({"exec_tmp_size": 1_000_000}, "head -c 3000000 /dev/zero >/tmp/big"),
    "processor time": ({"exec_cpu_time": 1}, "while :; do :; done"),
}


@pytest.mark.parametrize("what", GREEDY)
async def test_a_command_that_takes_too_much_is_stopped_and_told_so(sandboxed, workspace, what):
    if not WORKS:
        falls_back()
        return
    values, greedy = GREEDY[what]
    assert set(GAPS) <= {"the number of processes"}
    sandboxed.change(**values)
    told = r"It (may have reached a limit|reached its limit of memory)\. A command has: "
    with pytest.raises(ToolFailed, match=told) as caught:
        await sandboxed.call("exec", command=greedy)
    assert ("of memory for each" in str(caught.value)) is not bool(FOUND.limits.group)
    for file in workspace.iterdir():
        assert file.stat().st_size <= 1_000_000
    sandboxed.change(**dict.fromkeys(values, 0))
    assert await sandboxed.call("exec", command="echo still there") == "still there"


TOGETHER = {
    "memory": "for i in 1 2 3 4; do (x=$(head -c 20000000 /dev/zero | tr '\\0' x); sleep 60) & done; wait",
    "memory and /tmp": "for i in 1 2 3; do head -c 30000000 /dev/zero >/tmp/$i; done",
    "processes": "for i in $(seq 60); do sleep 60 & done; wait",
}


@pytest.mark.parametrize("what", TOGETHER)
async def test_what_a_command_takes_with_all_its_processes_is_limited_in_a_delegated_group(
    sandboxed, what
):
    """systemd delegates a control group to an ordinary user like this:

    systemd-run --user --pipe --wait --same-dir --property "Delegate=memory pids" make test ARGS=tests/governance/toolbox/test_sandbox.py
    """
    if not FOUND.limits.group:
        assert (
            " of memory for each"
            in replace(FOUND.limits, memory=10**9, program="prlimit").description
        )
        return
    sandboxed.change(exec_memory=60_000_000, exec_max_processes=30)
    with pytest.raises(ToolFailed) as caught:
        await sandboxed.call("exec", command=TOGETHER[what])
    assert f"It reached its limit of {what.split()[0]}. A command has: " in str(caught.value)
    assert "60 MB of memory," in str(caught.value)
    assert [path.name for path in Path(FOUND.limits.group).glob("*/")] == ["server"]
    sandboxed.change(exec_memory=0, exec_max_processes=0)
    assert await sandboxed.call("exec", command="echo still there") == "still there"


def test_a_command_that_multiplies_is_stopped():
    """Started as an ordinary user, since the kernel does not count the processes of root."""
    if not WORKS:
        falls_back()
        return
    place = Path(tempfile.mkdtemp(dir="/var/tmp"))
    place.chmod(0o777)
    sandbox = replace(FOUND, limits=replace(FOUND.limits, processes=20))
    many = "for i in $(seq 60); do sleep 60 & done; echo $(jobs -p | wc -w); kill $(jobs -p)"
    arguments = sandbox.wrap(("/bin/bash", "-c", many), workspace=place, directory=place)
    try:
        done = subprocess.run(
            arguments,
            capture_output=True,
            text=True,
            check=False,
            user=65534 if os.geteuid() == 0 else None,
            env={"PATH": "/usr/bin:/bin"},
        )
    finally:
        place.rmdir()
    assert "Resource temporarily unavailable" in done.stderr
    assert "It may have reached a limit" in sandbox.limits.explain(1, done.stderr)


@pytest.mark.parametrize(
    ("values", "asks"),
    [
        ({}, False),
        ({"network": True}, True),
        ({"is_roots": True}, True),
        ({"is_roots": True, "is_demanded": True}, False),
    ],
)
def test_whether_a_person_is_asked_in_spite_of_the_sandbox(harness, values, asks):
    tool = describe(harness.registry.get("exec"), Sandbox(mode=Mode.BWRAP, **values))
    assert (tool.approval is not None) == asks


@pytest.mark.usefixtures("without_bubblewrap")
async def test_without_bubblewrap_auto_runs_with_all_rights_and_says_so(sandboxed):
    assert int(await sandboxed.call("exec", command="echo $$")) > 2
    assert "no sandbox" in sandboxed.reports[0].message
    assert await asyncio.to_thread(find_sandbox, sandboxed.settings) == Sandbox(
        mode=Mode.NONE, problem="bubblewrap (bwrap) is not installed"
    )


@pytest.mark.usefixtures("broken_bubblewrap")
async def test_where_it_does_not_work_auto_falls_back_with_the_reason(sandboxed):
    assert int(await sandboxed.call("exec", command="echo $$")) > 2
    found = await asyncio.to_thread(find_sandbox, sandboxed.settings)
    assert found.mode is Mode.NONE
    assert found.problem == "bwrap: No permissions to create new namespace"


@pytest.mark.parametrize("machine", ["without_bubblewrap", "broken_bubblewrap"])
@pytest.mark.parametrize("name", ["exec", "git_status"])
async def test_where_a_sandbox_is_demanded_nothing_runs_without_it(
    sandboxed, workspace, request, machine, name
):
    request.getfixturevalue(machine)
    sandboxed.change(exec_sandbox=SandboxChoice.BWRAP)
    arguments = {"command": "touch ran"} if name == "exec" else {}
    with pytest.raises(ToolFailed, match=r"only in a sandbox.*manage\.py check"):
        await sandboxed.call(name, **arguments)
    assert not (workspace / "ran").exists()


@pytest.mark.usefixtures("without_bubblewrap")
async def test_where_nothing_runs_the_description_says_so_and_nobody_is_asked(sandboxed):
    sandboxed.change(exec_sandbox=SandboxChoice.BWRAP)
    await toolbox.prepare(sandboxed.registry)
    tool = sandboxed.registry.get("exec")
    assert tool.description.endswith(
        "demands a sandbox for commands, and the sandbox does not work."
    )
    assert tool.approval is None


async def test_the_description_says_which_it_is(sandboxed):
    plain = sandboxed.registry.get("exec").description
    assert "sandbox" not in plain
    await toolbox.prepare(sandboxed.registry)
    said = sandboxed.registry.get("exec").description
    assert said.startswith("Run a shell command in the workspace")
    if WORKS:
        assert "only the workspace can be written, there is no network" in said
        memory = "2 GB of memory" if FOUND.limits.group else "2 GB of memory for each"
        assert f"At most: 512 processes and threads at once, {memory}, 3600 s" in said
    else:
        assert "in no sandbox" in said
    sandboxed.change(exec_network=True)
    await toolbox.prepare(sandboxed.registry)
    assert ("the network can be reached" in sandboxed.registry.get("exec").description) == WORKS
    sandboxed.change(exec_sandbox=SandboxChoice.NONE)
    await toolbox.prepare(sandboxed.registry)
    assert (
        "rights of the server's user, in no sandbox" in sandboxed.registry.get("exec").description
    )
    assert (await asyncio.to_thread(find_sandbox, sandboxed.settings)).mode is Mode.NONE
