"""Commands: output, environment, exit codes, and what is left of them after a cancel (G1, acceptance 13, 46 to 50)."""

import asyncio
import contextlib
import os
import re
import shlex
import signal
import sys

import pytest

from governance.core.exceptions import GovernanceError, InvalidToolInput, ToolFailed
from governance.core.policy import TimeoutSource
from governance.core.tools import Concurrency
from tests.governance.core.process_table import runs
from tests.support import PATIENCE, cancel, eventually

pytestmark = [
    pytest.mark.usefixtures("_no_pipe_is_left"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]

PYTHON = shlex.quote(sys.executable)


def python(code):
    return f"{PYTHON} -c {shlex.quote(code)}"


def pids(text):
    return [int(word) for word in text.split() if word.isdecimal()]


@pytest.mark.parametrize(
    ("command", "result"),
    [
        ("echo one; echo two >&2; echo three", "one\ntwo\nthree"),
        ("true", "The command ended well and printed nothing."),
    ],
)
async def test_what_it_printed_on_both_streams_is_returned_in_order(harness, command, result):
    assert await harness.call("exec", command=command) == result


async def test_it_runs_in_the_workspace_and_input_is_empty(harness, workspace):
    assert await harness.call("exec", command="pwd; cat; echo made > here") == str(workspace)
    assert (workspace / "here").read_text() == "made\n"


async def test_it_runs_in_a_directory_inside_the_workspace(harness, workspace):
    (workspace / "deep").mkdir()
    assert await harness.call("exec", command="pwd", directory="deep") == str(workspace / "deep")


@pytest.mark.parametrize("directory", ["..", "/", "missing", "file"])
async def test_it_does_not_run_elsewhere(harness, workspace, directory):
    (workspace / "file").touch()
    with pytest.raises(ToolFailed):
        await harness.call("exec", command="touch ran", directory=directory)
    assert not (workspace / "ran").exists()


async def test_environment_holds_nothing_of_the_servers(harness, workspace, monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "hush-4711")
    text = await harness.call("exec", command="env")
    assert "hush-4711" not in text
    names = {line.partition("=")[0] for line in text.splitlines()}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "HOME", "LANG", "TERM", "TMPDIR"}
    assert f"HOME={workspace}" in text.splitlines()


async def test_named_variables_are_let_through(harness, monkeypatch):
    monkeypatch.setenv("PROJECT_MODE", "trial")
    harness.change(exec_environment=("PROJECT_MODE", "NOT_THERE"))
    assert await harness.call("exec", command="echo $PROJECT_MODE-$NOT_THERE") == "trial-"


async def test_exit_code_is_an_error_with_the_output(harness):
    with pytest.raises(ToolFailed) as caught:
        await harness.call("exec", command="echo so far; exit 7")
    assert str(caught.value) == "The command ended with exit code 7.\nso far"


async def test_death_by_a_signal_is_named(harness):
    with pytest.raises(ToolFailed, match="by the signal SIGKILL"):
        await harness.call("exec", command="kill -9 $$")


async def test_switched_off_it_says_which_setting_switches_it_on(harness, workspace):
    harness.change(exec_enabled=False)
    with pytest.raises(ToolFailed, match="GOVERNANCE_EXEC_ENABLED"):
        await harness.call("exec", command="touch ran")
    assert not (workspace / "ran").exists()


@pytest.mark.parametrize("command", ["echo \0", "echo \ud800", "echo " + "x" * 300_000])
async def test_command_that_cannot_be_started_is_a_sentence(harness, command):
    with pytest.raises(GovernanceError, match=r"could not be started|valid string"):
        await harness.call("exec", command=command)


async def test_ten_megabytes_are_cut_to_head_and_tail(harness):
    code = "print('first'); print('x' * 10_000_000); print('last')"
    text = await harness.call("exec", command=python(code))
    assert len(text) <= harness.settings.exec_output_limit
    assert text.startswith("first\nxxx")
    assert text.endswith("xxx\nlast")
    marker = re.search(r"\n… ([\d ]+) characters left out …\n", text)
    assert marker
    left_out = int(marker[1].replace(" ", ""))
    assert (
        len(text) - len(marker[0]) + left_out == len("first\n" + "x" * 10_000_000 + "\nlast\n") - 1
    )
    assert sum(len(report.output) for report in harness.reports) < 1_000_000
    assert all(len(report.output) <= 32_000 for report in harness.reports)


async def test_reports_are_joined_to_a_few_a_second(harness):
    loop = asyncio.get_running_loop()
    started = loop.time()
    await harness.call("exec", command="for i in $(seq 3000); do echo line $i; done")
    assert len(harness.reports) <= (loop.time() - started) * 10 + 2
    assert harness.output.splitlines() == [f"line {i}" for i in range(1, 3001)]
    assert harness.reports[-1].message == "line 3000"


async def test_characters_across_reads_stay_whole_and_broken_ones_are_replaced(harness):
    code = r"""
import os, time
for byte in "é€𝄞".encode():
    os.write(1, bytes([byte])); time.sleep(0.002)
os.write(1, b"\xff\x00|\xe2\x82")
"""
    assert await harness.call("exec", command=python(code)) == "é€𝄞\ufffd\ufffd|\ufffd"


async def test_message_is_the_last_line_as_plain_text(harness):
    await harness.call("exec", command=r"printf 'first\n\033[31mred\033[0m 50%%\n\n'")
    assert harness.reports[-1].message == "red 50%"


async def test_cancel_ends_it_and_what_it_printed_was_reported(harness):
    task = asyncio.create_task(harness.call("exec", command="echo $$ started; sleep 60"))
    await harness.until(lambda: "started" in harness.output)
    await cancel(task)
    assert not runs(pids(harness.output)[0])


async def test_words_after_the_request_to_stop_are_reported(harness):
    harness.change(kill_grace=PATIENCE)
    command = "trap 'echo tidied up; exit' TERM; echo started; while :; do sleep 0.01; done"
    task = asyncio.create_task(harness.call("exec", command=command))
    await harness.until(lambda: "started" in harness.output)
    await cancel(task)
    assert "tidied up" in harness.output


async def test_tree_that_ignores_the_request_is_gone_after_the_grace(harness):
    harness.change(kill_grace=0.05)
    deaf = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True)"
    leaf = f"{deaf}; time.sleep(60)"
    middle = f"{deaf}; import subprocess, sys; subprocess.run([sys.executable, '-c', {leaf!r}])"
    command = f"trap '' TERM; echo $$; {python(middle)} & {python(middle)}; wait"
    task = asyncio.create_task(harness.call("exec", command=command))
    await harness.until(lambda: len(pids(harness.output)) == 5)
    family = pids(harness.output)
    assert all(runs(pid) for pid in family)
    await cancel(task)
    await eventually(lambda: not any(map(runs, family)))


async def test_second_cancel_during_the_grace_still_ends_it(harness):
    harness.change(kill_grace=30)
    command = "trap 'echo asked' TERM; echo $$; while :; do sleep 0.01; done"
    task = asyncio.create_task(harness.call("exec", command=command))
    await harness.until(lambda: pids(harness.output))
    pid = pids(harness.output)[0]
    task.cancel()
    await harness.until(lambda: "asked" in harness.output)
    await cancel(task)
    await eventually(lambda: not runs(pid))


async def test_background_process_in_its_own_group_survives_a_cancel_and_may_go_on_printing(
    harness, workspace
):
    survivor = """
import os, time
print(os.getpid(), flush=True)
while not os.path.exists("go"): time.sleep(0.005)
for _ in range(3): print("still here", flush=True)
open("printed", "w").close()
"""
    task = asyncio.create_task(
        harness.call("exec", command=f"setsid {python(survivor)} & sleep 60")
    )
    await harness.until(lambda: pids(harness.output))
    pid = pids(harness.output)[0]
    try:
        await cancel(task)
        assert runs(pid)
        reports = len(harness.reports)
        (workspace / "go").touch()
        await eventually(lambda: (workspace / "printed").exists())
        assert len(harness.reports) == reports
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not runs(pid))


async def test_it_returns_with_the_shell_though_a_background_child_holds_the_pipe(harness):
    async with asyncio.timeout(PATIENCE):
        text = await harness.call("exec", command="sleep 60 & echo $!")
    pid = int(text)
    assert runs(pid)
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not runs(pid))


async def test_flood_is_reported_in_part_and_can_be_cancelled(harness):
    task = asyncio.create_task(harness.call("exec", command="yes"))
    await harness.until(lambda: len(harness.reports) >= 3)
    await cancel(task)
    assert "characters left out" in harness.output


async def test_no_workspace_is_a_sentence_and_the_root_gives_one_per_scope(harness, tmp_path):
    function = harness.registry.get("exec").function
    with pytest.raises(ToolFailed, match="GOVERNANCE_WORKSPACE_ROOT"):
        await function(harness.context("exec", workspace=None), "true")
    harness.change(workspace_root=tmp_path / "root")
    here = await function(harness.context("exec", workspace=None, scope="../../out"), "pwd")
    there = await function(harness.context("exec", workspace=None, scope="chat-1"), "pwd")
    assert os.path.dirname(here) == str(tmp_path / "root")
    assert there == str(tmp_path / "root" / "chat-1")


def test_it_declares_how_it_is_governed(harness):
    tool = harness.registry.get("exec")
    assert tool.concurrency is Concurrency.EXCLUSIVE
    assert tool.side_effects
    assert tool.isolation != "thread"
    assert tool.limits.timeout == 120
    assert set(tool.input_schema["properties"]) == {"command", "timeout_ms", "directory"}
    hint = tool.hint({"command": "true", "timeout_ms": 1500})
    assert (hint.timeout, hint.source) == (1.5, TimeoutSource.ARGUMENT)


def test_bad_arguments_are_named(harness):
    with pytest.raises(InvalidToolInput, match="timeout_ms"):
        harness.registry.get("exec").validate({"command": "true", "timeout_ms": -1})
    with pytest.raises(InvalidToolInput, match=r"timeout: .* it takes command, timeout_ms"):
        harness.registry.get("exec").validate({"command": "true", "timeout": 5})
