"""Git in the workspace, in the sandbox: what the tools do, and what a hostile repository cannot reach (G1, P2)."""

import asyncio
import contextlib
import os
import shutil

import pytest

from governance.core.exceptions import InvalidToolInput, ToolFailed
from governance.core.tools import Concurrency
from governance.toolbox import SandboxChoice, ToolboxSettings
from governance.toolbox.sandbox import Mode, find_sandbox
from tests.governance.toolbox.git_owner import git
from tests.support import cancel, eventually

WORKS = find_sandbox(ToolboxSettings()).mode is Mode.BWRAP

pytestmark = [
    pytest.mark.usefixtures("_no_pipe_is_left"),
    pytest.mark.skipif(not WORKS, reason="bubblewrap does not work here"),
]


@pytest.fixture
def harness(harness):
    """The tools in the sandbox."""
    harness.change(exec_enabled=False, exec_sandbox=SandboxChoice.AUTO)
    return harness


@pytest.fixture
def repository(workspace):
    """The workspace as a repository with one commit."""
    git(workspace, "init", "--quiet", "--initial-branch=main")
    (workspace / "a.txt").write_text("one\n")
    git(workspace, "add", ".")
    git(workspace, "commit", "--quiet", "--message=Begin")
    return workspace


async def fails(harness, match, name="git_status", **arguments):
    with pytest.raises(ToolFailed, match=match) as caught:
        await harness.call(name, **arguments)
    return str(caught.value)


async def test_status_shows_the_branch_and_what_is_changed(harness, repository):
    (repository / "a.txt").write_text("two\n")
    (repository / "new é.txt").write_text("x")
    said = await harness.call("git_status")
    assert said.splitlines() == ["## main", " M a.txt", '?? "new é.txt"']


async def test_diff_of_files_of_the_index_and_between_commits(harness, repository):
    assert await harness.call("git_diff") == "There is no difference."
    (repository / "a.txt").write_text("two\n")
    assert "-one\n+two" in await harness.call("git_diff")
    assert await harness.call("git_diff", staged=True) == "There is no difference."
    git(repository, "add", ".")
    assert "-one\n+two" in await harness.call("git_diff", staged=True)
    git(repository, "commit", "--quiet", "--message=Next")
    assert "-one\n+two" in await harness.call("git_diff", revision="HEAD~1..HEAD")
    (repository / "b.txt").write_text("x")
    assert await harness.call("git_diff", revision="HEAD~1", paths=["b.txt"]) == (
        "There is no difference."
    )


async def test_log_tells_number_author_date_and_message(harness, repository):
    git(repository, "commit", "--quiet", "--allow-empty", "--message=Second\n\nWhy it was done")
    said = await harness.call("git_log")
    assert said.index("    Second") < said.index("    Begin")
    assert "Author: Ann <ann@example.org>" in said
    assert "    Why it was done" in said
    assert "(HEAD -> main)" in said
    assert "Second" not in await harness.call("git_log", revision="HEAD~1")
    assert "Begin" not in await harness.call("git_log", limit=1)
    assert "Second" not in await harness.call("git_log", paths=["a.txt"])


async def test_commit_of_everything_with_the_author_of_the_settings(harness, repository):
    harness.change(git_author="Robot <robot@example.org>")
    (repository / "a.txt").unlink()
    (repository / "b.txt").write_text("new\n")
    said = await harness.call("git_commit", message="Rename\n\n# not a comment")
    assert "[main " in said
    assert git(repository, "log", "-1", "--format=%an <%ae>|%cn|%B").strip() == (
        "Robot <robot@example.org>|Robot|Rename\n\n# not a comment"
    )
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "ls-files").split() == ["b.txt"]


async def test_commit_of_some_paths_leaves_the_rest(harness, repository):
    for name in ("b.txt", "c.txt", ":(glob)*"):
        (repository / name).write_text("new\n")
    await harness.call("git_commit", message="Add one", paths=["b.txt"])
    assert git(repository, "show", "--format=", "--name-only").split() == ["b.txt"]
    await harness.call("git_commit", message="Add odd", paths=[":(glob)*"])
    assert git(repository, "show", "--format=", "--name-only").split() == [":(glob)*"]
    assert "c.txt" in git(repository, "status", "--porcelain")


async def test_nothing_to_commit_is_a_sentence(harness, repository):
    await fails(harness, "nothing to commit", "git_commit", message="Again")
    await fails(harness, "message is empty", "git_commit", message=" \n")


async def test_a_repository_is_made_where_asked_for(harness, workspace):
    (workspace / "a.txt").write_text("x")
    await fails(harness, "no git repository.*init", "git_commit", message="Begin")
    assert not (workspace / ".git").exists()
    assert "Begin" in await harness.call("git_commit", message="Begin", init=True)
    assert git(workspace, "ls-files").split() == ["a.txt"]


async def test_a_repository_in_a_directory_of_the_workspace(harness, workspace):
    (workspace / "deep").mkdir()
    (workspace / "deep" / "a.txt").write_text("x")
    await harness.call("git_commit", message="Begin", directory="deep", init=True)
    assert "Begin" in await harness.call("git_log", directory="deep")
    await fails(harness, "no git repository")


@pytest.mark.parametrize("directory", ["..", "/", "missing", "link"])
async def test_no_directory_outside(harness, repository, tmp_path, directory):
    (repository / "link").symlink_to(tmp_path)
    with pytest.raises(ToolFailed):
        await harness.call("git_status", directory=directory)


async def test_a_repository_around_the_workspace_is_not_found(harness, workspace, tmp_path):
    """The server's own checkout may hold the workspaces: it is none of the agent's business."""
    git(tmp_path, "init", "--quiet")
    await fails(harness, "no git repository")


@pytest.fixture
def foreign(tmp_path):
    """A repository outside the workspace, with a secret in its history."""
    directory = tmp_path / "foreign"
    directory.mkdir()
    git(directory, "init", "--quiet", "--initial-branch=main")
    (directory / "secret.txt").write_text("hush-4711\n")
    git(directory, "add", ".")
    git(directory, "commit", "--quiet", "--message=hush-4711")
    return directory


def point_by_file(repository, foreign):
    shutil.rmtree(repository / ".git")
    (repository / ".git").write_text(f"gitdir: {foreign / '.git'}\n")


def point_by_link(repository, foreign):
    shutil.rmtree(repository / ".git")
    (repository / ".git").symlink_to(foreign / ".git")


def point_by_common_directory(repository, foreign):
    (repository / ".git" / "commondir").write_text(f"{foreign / '.git'}\n")


def point_by_objects(repository, foreign):
    shutil.rmtree(repository / ".git" / "objects")
    (repository / ".git" / "objects").symlink_to(foreign / ".git" / "objects")


def point_by_alternates(repository, foreign):
    info = repository / ".git" / "objects" / "info"
    info.mkdir(exist_ok=True)
    (info / "alternates").write_text(f"{foreign / '.git' / 'objects'}\n")


def point_by_work_tree(repository, foreign):
    git(repository, "config", "core.worktree", str(foreign))


@pytest.mark.parametrize(
    "point",
    [
        point_by_file,
        point_by_link,
        point_by_common_directory,
        point_by_objects,
        point_by_alternates,
        point_by_work_tree,
    ],
)
async def test_a_repository_that_leads_outside_reaches_nothing_there(
    harness, repository, foreign, point
):
    head = git(foreign, "rev-parse", "HEAD")
    secret = git(foreign, "rev-parse", "HEAD:secret.txt").strip()
    point(repository, foreign)
    for name, arguments in (
        ("git_status", {}),
        ("git_log", {}),
        ("git_diff", {"revision": secret}),
        ("git_commit", {"message": "x", "init": True}),
    ):
        said = ""
        with contextlib.suppress(ToolFailed):
            said = await harness.call(name, **arguments)
        assert "hush" not in said
    assert git(foreign, "rev-parse", "HEAD") == head
    assert git(foreign, "status", "--porcelain") == ""


CONFIGURATION = """
[core]
    fsmonitor = {run}
    hooksPath = {top}/.git/hooks
    pager = {run}
    editor = {run}
    sshCommand = {run}
[diff]
    external = {run}
[diff "evil"]
    textconv = {run}
    command = {run}
[filter "evil"]
    clean = {run}
    process = {run}
[gpg]
    program = {run}
[commit]
    gpgSign = true
[alias]
    status = !{run}
[include]
    path = {top}/more
"""


async def test_programs_of_a_repository_reach_nothing_but_the_workspace_and_nothing_at_all_while_reading(
    harness, repository, tmp_path
):
    """An agent may write files, so it may write what git runs. That happens in the sandbox alone."""
    program, inside, outside = repository / "run.sh", repository / "ran", tmp_path / "ran"
    program.write_text(f"#!/bin/sh\ntouch {outside} {inside}\ncat\n")
    program.chmod(0o755)
    for hook in ("pre-commit", "post-commit", "commit-msg", "post-index-change"):
        shutil.copy(program, repository / ".git" / "hooks" / hook)
    (repository / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (repository / "more").write_text(f'[filter "evil"]\n\tclean = {program}\n')
    with (repository / ".git" / "config").open("a") as file:
        file.write(CONFIGURATION.format(run=program, top=repository))
    (repository / "a.txt").write_text("two\n")
    for name in ("git_status", "git_diff", "git_log"):
        with contextlib.suppress(ToolFailed):
            await harness.call(name)
    assert not inside.exists()
    with contextlib.suppress(ToolFailed):
        await harness.call("git_commit", message="x")
    assert not outside.exists()
    assert await harness.call("git_status")  # an alias of the repository changes no command


async def test_configuration_of_the_server_is_not_used(harness, repository, monkeypatch, tmp_path):
    """Neither the one of its user nor a variable of its environment."""
    (tmp_path / ".gitconfig").write_text("[alias]\n\tstatus = !false\n[status]\n\tshort = maybe\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / ".gitconfig"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    assert "## main" in await harness.call("git_status")


@pytest.mark.parametrize("path", ["../x", "/etc/passwd"])
async def test_no_path_outside(harness, repository, path):
    await fails(harness, "outside", "git_commit", message="x", paths=[path])
    await fails(harness, "outside", "git_diff", paths=[path])


@pytest.mark.parametrize("revision", ["--output=x", "-p", "HEAD --output=x", "$(touch x)", "a b"])
async def test_a_revision_is_never_an_option(harness, repository, revision):
    for name in ("git_diff", "git_log"):
        await fails(harness, "not the name of a commit", name, revision=revision)
    assert not (repository / "x").exists()


async def test_an_unknown_revision_is_reported_by_git(harness, repository):
    await fails(
        harness, r"git log ended with exit code 128\.\n.*nowhere", "git_log", revision="nowhere"
    )


async def test_a_message_is_never_an_option_and_no_shell_reads_it(harness, repository):
    (repository / "b.txt").write_text("x")
    message = "--amend; touch pwned $(touch pwned) `touch pwned`"
    await harness.call("git_commit", message=message)
    assert git(repository, "log", "-1", "--format=%B").strip() == message
    assert not (repository / "pwned").exists()


async def test_a_long_diff_is_cut(harness, repository):
    harness.change(exec_output_limit=2000)
    (repository / "a.txt").write_text("x\n" * 100_000)
    said = await harness.call("git_diff")
    assert len(said) <= 2000
    assert "characters left out" in said


async def test_odd_names_are_quoted_and_committed(harness, repository):
    for name in ("a\nb", "-rf", ":(glob)*", "\x1b[31mred"):
        (repository / name).write_text("x")
    (repository / "link").symlink_to("/etc/passwd")
    os.mkfifo(repository / "pipe")
    assert '?? "a\\nb"\n' in await harness.call("git_status")
    said = await harness.call("git_commit", message="Odd")
    assert "5 files changed" in said
    assert "\x1b" not in said
    assert "root:" not in await harness.call("git_diff", revision="HEAD~1")
    (repository / "-rf").write_text("y")
    assert "1 file changed" in await harness.call("git_commit", message="One", paths=["-rf"])


async def test_status_before_the_first_commit(harness, workspace):
    git(workspace, "init", "--quiet", "--initial-branch=main")
    (workspace / "a.txt").write_text("x")
    assert (await harness.call("git_status")) == "## No commits yet on main\n?? a.txt"
    assert await harness.call("git_diff") == "There is no difference."
    await fails(harness, "does not have any commits", "git_log")


async def test_commit_of_some_paths_leaves_what_else_is_staged(harness, repository):
    for name in ("b", "c"):
        (repository / name).write_text("one\n")
    git(repository, "add", "b")
    await harness.call("git_commit", message="One", paths=["c"])
    assert git(repository, "show", "--format=", "--name-only").split() == ["c"]
    assert git(repository, "status", "--short").splitlines() == ["A  b"]


async def test_a_cancel_ends_git_and_leaves_no_lock(harness, repository):
    """A filter that never ends holds the commit up; git removes its lock when it is asked to end."""
    (repository / ".gitattributes").write_text("* filter=slow\n")
    git(repository, "config", "filter.slow.clean", "touch begun; sleep 60")
    (repository / "a.txt").write_text("two\n")
    task = asyncio.create_task(harness.call("git_commit", message="Slow"))
    await eventually((repository / "begun").exists)
    await cancel(task)
    assert not (repository / ".git" / "index.lock").exists()


async def test_without_git_it_is_a_sentence(harness, repository, monkeypatch, tmp_path):
    monkeypatch.setattr("governance.toolbox.git.SEARCH_PATH", str(tmp_path))
    await fails(harness, "could not be started: it is not installed")


async def test_without_a_sandbox_they_are_switched_off_and_say_so(harness, repository):
    assert harness.registry.get("git_log").disabled_reason() == ""
    harness.change(exec_sandbox=SandboxChoice.NONE)
    for name, arguments in (("git_log", {}), ("git_commit", {"message": "x"})):
        assert "only in a sandbox" in harness.registry.get(name).disabled_reason()
        await fails(harness, "only in a sandbox", name, **arguments)


def test_they_declare_how_they_are_governed(harness):
    for name in ("git_status", "git_diff", "git_log", "git_commit"):
        tool = harness.registry.get(name)
        writes = name == "git_commit"
        assert (tool.concurrency is Concurrency.EXCLUSIVE) == writes
        assert tool.side_effects == writes
        assert tool.isolation != "thread"
    with pytest.raises(InvalidToolInput, match="message"):
        harness.registry.get("git_commit").validate({})
