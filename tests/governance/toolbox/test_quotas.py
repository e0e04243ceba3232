"""What a workspace may hold: refused before it is written, and measured after every command (G1)."""

import asyncio
import os

import pytest

from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation, Cancelled
from governance.core.exceptions import ToolFailed
from governance.toolbox import SandboxChoice, ToolboxSettings, quotas
from governance.toolbox.sandbox import Mode, find_sandbox
from tests.support import PATIENCE

QUOTA = 1_000_000


@pytest.fixture
def harness(harness, monkeypatch):
    monkeypatch.setattr(quotas, "_SOON", PATIENCE)
    harness.change(workspace_quota=QUOTA)
    return harness


async def put(harness, path, size):
    return await asyncio.to_thread(harness.call, "write_file", path=path, content="x" * size)


async def test_nothing_is_written_beyond_the_quota(harness, workspace):
    await put(harness, "a", 600_000)
    with pytest.raises(ToolFailed, match=r"1 000 000 is the most it may hold.*Nothing was written"):
        await put(harness, "b", 600_000)
    assert not (workspace / "b").exists()
    with pytest.raises(ToolFailed, match="the most it may hold"):
        await put(harness, "a", 1_100_000)
    assert (workspace / "a").stat().st_size == 600_000
    await put(harness, "a", 1_000)  # what takes less room is never refused
    await put(harness, "a", 900_000)


async def test_many_small_files_count_as_well(harness):
    for number in range(8):
        await put(harness, f"deep/{number}", 110_000)
    for number in range(3):
        with pytest.raises(ToolFailed, match="the most it may hold"):
            await put(harness, f"more/{number}", 200_000)


async def test_an_edit_is_refused_too(harness, workspace):
    (workspace / "a").write_text("x" * 500_000)
    with pytest.raises(ToolFailed, match="the most it may hold"):
        await asyncio.to_thread(
            harness.call, "edit_file", path="a", old="x", new="xyz", replace_all=True
        )


async def test_what_a_command_has_written_is_told_and_the_next_write_is_refused(harness, workspace):
    await put(harness, "a", 10)
    said = await harness.call("exec", command="head -c 2000000 /dev/zero >big; echo done")
    assert said.startswith("done\nThe workspace holds 2 0")
    with pytest.raises(ToolFailed, match=r"exit code 3.*\n.*the most it may hold"):
        await harness.call("exec", command="exit 3")
    with pytest.raises(ToolFailed, match="the most it may hold"):
        await put(harness, "b", 10)
    assert await harness.call("exec", command="rm big; echo gone") == "gone"
    await put(harness, "b", 10)


@pytest.mark.skipif(
    find_sandbox(ToolboxSettings()).mode is Mode.NONE, reason="bubblewrap does not work here"
)
async def test_a_commit_that_takes_too_much_says_so_and_the_next_one_is_refused(harness, workspace):
    harness.change(exec_sandbox=SandboxChoice.AUTO)
    await put(harness, "a", 10)
    await harness.call("git_commit", message="Begin", init=True)
    (workspace / "noise").write_bytes(os.urandom(600_000))
    assert "the most it may hold" in await harness.call("git_commit", message="Too much")
    (workspace / "a").write_text("changed")
    with pytest.raises(ToolFailed, match="the most it may hold"):
        await harness.call("git_commit", message="More")
    assert " M a" in await harness.call("git_status")


async def test_a_file_with_several_names_counts_once(harness, workspace):
    (workspace / "a").write_bytes(b"x" * 500_000)
    os.link(workspace / "a", workspace / "b")
    os.link(workspace / "a", workspace / "c")
    await put(harness, "d", 300_000)


async def test_a_cancelled_call_measures_no_more(harness, workspace):
    """Measuring a workspace of many directories may take longer than any call."""
    harness.token.cancel(Cancellation(reason=CancelReason.TIMEOUT))
    with pytest.raises(Cancelled):
        await put(harness, "a", 10)
    assert not (workspace / "a").exists()


async def test_without_a_quota_nothing_is_refused(harness):
    harness.change(workspace_quota=0)
    await put(harness, "a", 2_000_000)
    assert await harness.call("exec", command="echo fine") == "fine"


async def test_a_workspace_that_takes_long_to_measure_is_measured_at_the_next_write(
    harness, monkeypatch
):
    monkeypatch.setattr("governance.toolbox.quotas._SOON", -1.0)
    assert await harness.call("exec", command="head -c 2000000 /dev/zero >big; echo done") == "done"
    with pytest.raises(ToolFailed, match="the most it may hold"):
        await put(harness, "b", 10)


@pytest.mark.parametrize("how", ["holes", "names"])
async def test_to_replace_what_frees_nothing_gives_no_room(harness, workspace, how):
    """A file with holes is longer than what it takes, and one with other names stays."""
    await put(harness, "a", 800_000)
    if how == "holes":
        with (workspace / "b").open("wb") as stream:
            stream.truncate(500_000_000)
    else:
        os.link(workspace / "a", workspace / "b")
    await put(harness, "b", 10)
    with pytest.raises(ToolFailed, match="the most it may hold"):
        await put(harness, "c", 600_000)


async def test_what_lies_deeper_than_a_path_can_say_counts(harness):
    deep = "n" * 50
    command = (
        f"for i in $(seq 200); do mkdir {deep} && cd {deep}; done; head -c 2000000 /dev/zero >big"
    )
    assert "the most it may hold" in await harness.call("exec", command=command)
    with pytest.raises(ToolFailed, match="the most it may hold"):
        await put(harness, "b", 10)


async def test_what_its_owner_may_not_read_counts(harness):
    command = "mkdir d; head -c 2000000 /dev/zero >d/big; chmod 000 d"
    assert "the most it may hold" in await harness.call("exec", command=command)
