"""A workspace that lies in another one, as a sub-agent's does: what is put in its place there leads nowhere."""

import asyncio
import shlex
import shutil

import pytest

from governance.core.exceptions import ToolFailed
from governance.toolbox import SandboxChoice, ToolboxSettings
from governance.toolbox.sandbox import Mode, find_sandbox

CALLS = {
    "read_file": {"path": "secret"},
    "list_files": {},
    "write_file": {"path": "made", "content": "x"},
    "edit_file": {"path": "secret", "old": "s", "new": "t"},
    "exec": {"command": "cat secret; touch made"},
    "git_status": {},
    "git_commit": {"message": "x", "init": True},
}
IN_SANDBOX = pytest.mark.skipif(
    find_sandbox(ToolboxSettings()).mode is Mode.NONE, reason="bubblewrap does not work here"
)


@pytest.fixture
def elsewhere(tmp_path):
    """A directory that no tool may reach."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    (place / "secret").write_text("secret")
    return place


@pytest.fixture
def workspace(tmp_path):
    place = tmp_path / "workspaces" / "outer" / "inner" / "one"
    place.mkdir(parents=True)
    return place


@pytest.fixture
def harness(harness, tmp_path):
    harness.change(workspace_root=tmp_path / "workspaces")
    return harness


async def call(harness, name):
    made = await asyncio.to_thread(harness.call, name, **CALLS[name])
    return await made if asyncio.iscoroutine(made) else made


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("is_parent", [True, False], ids=["above", "itself"])
async def test_a_link_in_its_place_is_not_followed(harness, workspace, elsewhere, name, is_parent):
    replaced = workspace.parent if is_parent else workspace
    shutil.rmtree(replaced)
    replaced.symlink_to(elsewhere)
    with pytest.raises(ToolFailed, match="workspace"):
        await call(harness, name)
    assert [path.name for path in elsewhere.iterdir()] == ["secret"]
    assert (elsewhere / "secret").read_text() == "secret"


@IN_SANDBOX
@pytest.mark.parametrize("name", ["exec", "git_log"])
async def test_a_link_that_comes_while_the_sandbox_is_made_leads_to_no_command(
    harness, workspace, elsewhere, tmp_path, monkeypatch, name
):
    """A program of the outer workspace may run beside it, and be quick."""
    harness.change(exec_sandbox=SandboxChoice.BWRAP)
    await asyncio.to_thread(harness.call, "write_file", path="secret", content="mine")
    await harness.call("git_commit", message="mine", init=True)
    shutil.copytree(workspace / ".git", elsewhere / ".git")
    swap = tmp_path / "programs" / "bwrap"
    swap.parent.mkdir()
    real = shutil.which("bwrap")
    swap.write_text(
        f'#!/bin/sh\ncase "$*" in *{workspace}*)\n  mv {workspace} {workspace}.old; ln -s {elsewhere} {workspace};;\nesac\n'
        f'exec {shlex.quote(real)} "$@"\n'
    )
    swap.chmod(0o755)
    monkeypatch.setenv("PATH", f"{swap.parent}:/usr/bin:/bin")
    arguments = CALLS.get(name, {})
    with pytest.raises(ToolFailed, match="was replaced by another one"):
        await harness.call(name, **arguments)
    assert sorted(path.name for path in elsewhere.iterdir()) == [".git", "secret"]


async def test_what_it_holds_counts_towards_the_quota_of_the_outer_one(harness, workspace):
    harness.change(workspace_quota=1_000_000)
    (workspace.parent / "other").write_bytes(b"x" * 900_000)
    with pytest.raises(ToolFailed, match="the most it may hold"):
        await asyncio.to_thread(harness.call, "write_file", path="a", content="x" * 200_000)


async def test_it_is_made_where_it_is_missing(harness, workspace):
    shutil.rmtree(workspace.parent)
    assert "Created" in await call(harness, "write_file")
    assert (workspace / "made").is_file()
