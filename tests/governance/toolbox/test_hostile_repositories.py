"""Whoever may write files may write what git would run. No program of a workspace runs, however it came there (G1)."""

import asyncio
import contextlib
import shlex
import sys
from pathlib import Path

import pytest

from governance.core.calls import CallStatus
from governance.core.exceptions import ToolFailed
from governance.toolbox import SandboxChoice
from tests.governance.mcp.support import McpHarness, command
from tests.governance.toolbox.git_owner import git
from tests.support import eventually

pytestmark = pytest.mark.usefixtures("_no_pipe_is_left")

# Everything that git is known to run, or to read more of such from.
CONFIGURATION = """[core]
	fsmonitor = {run}
	hooksPath = {hooks}
	sshCommand = {run}
	pager = {run}
	editor = {run}
	attributesFile = {attributes}
	askPass = {run}
	alternateRefsCommand = {run}
	gitProxy = {run}
[extensions]
	worktreeConfig = true
	partialClone = origin
[remote "origin"]
	url = ext::{run}
	promisor = true
	uploadpack = {run}
	receivepack = {run}
	vcs = evil
[protocol "ext"]
	allow = always
[include]
	path = {more}
[includeIf "gitdir:**"]
	path = {more}
[diff]
	external = {run}
	submodule = diff
	ignoreSubmodules = none
[diff "evil"]
	textconv = {run}
	command = {run}
[merge "evil"]
	driver = {run}
[filter "evil"]
	clean = {run}
	smudge = {run}
	process = {run}
	required = true
[gpg]
	program = {run}
[commit]
	gpgSign = true
[credential]
	helper = !{run}
[alias]
	add = !{run}
	status = !{run}
	commit = !{run}
	diff-tree = !{run}
[interactive]
	diffFilter = {run}
[sequence]
	editor = {run}
[submodule]
	recurse = true
[submodule "sub"]
	update = !{run}
	ignore = none
	active = true
[trailer "evil"]
	command = {run}
	cmd = {run}
[pack]
	packSizeLimit = 1
[gc]
	auto = 1
	recentObjectsHook = {run}
[uploadpack]
	packObjectsHook = {run}
"""
ATTRIBUTES = "* filter=evil diff=evil merge=evil text=auto\n"
HOOKS = (
    "commit-msg",
    "fsmonitor-watchman",
    "post-checkout",
    "post-commit",
    "post-index-change",
    "pre-auto-gc",
    "pre-commit",
    "prepare-commit-msg",
    "reference-transaction",
)


@pytest.fixture
def harness(harness):
    """The tools without a sandbox: nothing else would hold back what runs."""
    harness.change(exec_sandbox=SandboxChoice.NONE)
    return harness


@pytest.fixture
def ran(tmp_path):
    """A file outside of the workspace that every planted program makes."""
    return tmp_path / "ran"


def planted(top, ran, *, below=".git"):
    """What to write where: paths in the workspace, and texts."""
    run = f"sh -c 'echo $0 >>{shlex.quote(str(ran))}; cat'"
    values = {
        "run": run.replace('"', '\\"'),
        "hooks": str(top / below / "hooks"),
        "attributes": str(top / below / "evil"),
        "more": str(top / below / "more"),
    }
    quoted = {name: f'"{value}"' for name, value in values.items()}
    texts = {
        f"{below}/config": CONFIGURATION.format(**quoted),
        f"{below}/config.worktree": f"[core]\n\tfsmonitor = {quoted['run']}\n",
        f"{below}/more": f'[filter "evil"]\n\tclean = {quoted["run"]}\n',
        f"{below}/evil": ATTRIBUTES,
        f"{below}/info/attributes": ATTRIBUTES,
        ".gitattributes": ATTRIBUTES,
    }
    texts |= {f"{below}/hooks/{name}": f"#!/bin/sh\n{run}\n" for name in HOOKS}
    return texts


class Attacker:
    """Ways to write into a workspace. `root` is the workspace, `tools` are the real ones."""

    def __init__(self, harness, mcp):
        self._bench = harness
        self._mcp = mcp
        self.root = harness.workspace

    async def by_write_file(self, directory, ran):
        await self._write(directory, planted(self.root / directory, ran))

    async def by_exec(self, directory, ran):
        for path, text in planted(self.root / directory, ran).items():
            place = shlex.quote(f"{directory}/{path}")
            await self._bench.call(
                "exec",
                command=f"mkdir -p $(dirname {place}) && printf %s {shlex.quote(text)} >{place} && chmod +x {place}",
            )

    async def by_an_mcp_tool(self, directory, ran):
        server = Path(__file__).with_name("writing_server.py")
        await self._mcp.begin(command("files", sys.executable, server))
        for path, text in planted(self.root / directory, ran).items():
            place = str(self.root / directory / path)
            outcome = await self._mcp.run("files_put", path=place, content=text)
            assert outcome.status is CallStatus.SUCCEEDED

    async def by_a_link(self, directory, ran):
        """What is planted lies elsewhere in the workspace, and links lead there from below `.git`."""
        elsewhere = planted(self.root / directory, ran, below="elsewhere")
        await self._write(directory, elsewhere)
        store = self.root / directory / ".git"
        store.mkdir(exist_ok=True)
        for name in ("config", "hooks", "info"):
            with contextlib.suppress(FileNotFoundError):
                (store / name).rename(store / f"{name}.old")
            (store / name).symlink_to(Path("..", "elsewhere", name))

    async def by_a_store_that_is_a_link(self, directory, ran):
        """`.git` itself is a link, as a file system that is blind to case finds `.GIT` under that name."""
        store = self.root / directory / ".git"
        if store.is_dir():
            store.rename(store.with_name(".GIT"))
        else:
            store.with_name(".GIT").mkdir(parents=True)
        store.symlink_to(".GIT")
        await self._write(directory, planted(self.root / directory, ran, below=".GIT"))

    async def by_a_file_that_leads_elsewhere(self, directory, ran):
        """`.git` is a file that names the place, as in submodules and linked work trees."""
        store = self.root / directory / ".git"
        if store.is_dir():
            store.rename(store.with_name("kept"))
        await self._write(directory, planted(self.root / directory, ran, below="kept"))
        await self._write(directory, {".git": "gitdir: kept\n"})

    async def _write(self, directory, texts):
        for path, text in texts.items():
            await put(self._bench, f"{directory}/{path}", text)


WAYS = tuple(name for name in vars(Attacker) if name.startswith("by_"))


@pytest.fixture
async def attacker(harness, monkeypatch):
    mcp = McpHarness(monkeypatch)
    yield Attacker(harness, mcp)
    await mcp.aclose()


async def put(harness, path, text):
    """Call the tool in a thread, as the executor does."""
    await asyncio.to_thread(harness.call, "write_file", path=path, content=text)


async def use(harness, directory):
    """Call every git tool; some refuse, none may do more."""
    for name, arguments in (
        ("git_status", {}),
        ("git_diff", {}),
        ("git_commit", {"message": "x", "init": True}),
        ("git_diff", {"staged": True, "revision": "HEAD"}),
        ("git_log", {}),
    ):
        with contextlib.suppress(ToolFailed):
            await harness.call(name, directory=directory, **arguments)


@pytest.mark.parametrize("is_first", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("directory", [".", "sub"])
@pytest.mark.parametrize("way", WAYS)
async def test_no_program_that_was_planted_runs(
    harness, attacker, workspace, ran, way, directory, is_first
):
    """At the top and in a repository inside, before and after there is a commit."""
    places = dict.fromkeys((directory, "."))
    if not is_first:
        for place in places:
            await put(harness, f"{place}/a.txt", "one\n")
            await harness.call("git_commit", message="Begin", directory=place, init=True)
        if directory != ".":
            # As git itself would keep it, the outer repository knows the inner one.
            git(workspace, "-c", "advice.addEmbeddedRepo=false", "add", directory)
    await getattr(attacker, way)(directory, ran)
    for place in places:
        await put(harness, f"{place}/a.txt", "two\n")
        await use(harness, place)
    await put(harness, f"{directory}/a.txt", "three\n")
    await use(harness, ".")
    assert not ran.exists(), ran.read_text()


def test_what_is_planted_would_run(workspace, ran):
    """The proof that the test above can fail: git, started on such a directory, runs it."""
    git(workspace, "init", "--quiet")
    (workspace / ".git" / "config").write_text(planted(workspace, ran)[".git/config"])
    (workspace / ".gitattributes").write_text(ATTRIBUTES)
    git(workspace, "add", ".", check=False)
    assert ran.exists()


async def test_git_is_never_started_on_a_workspace(harness, workspace, tmp_path, monkeypatch):
    """By construction and not by options: neither its directory nor its work tree is one that tools can write."""
    programs = tmp_path / "programs"
    programs.mkdir()
    seen = tmp_path / "seen"
    (programs / "git").write_text(
        f'#!/bin/sh\necho "$PWD|$GIT_DIR|$GIT_WORK_TREE|$GIT_INDEX_FILE|$HOME" >>{seen}\nexec /usr/bin/git "$@"\n'
    )
    (programs / "git").chmod(0o755)
    monkeypatch.setattr("governance.toolbox.commands.SEARCH_PATH", f"{programs}:/usr/bin:/bin")
    await put(harness, "a.txt", "one\n")
    await use(harness, ".")
    lines = seen.read_text().splitlines()
    assert len(lines) > 6
    for line in lines:
        for place in line.split("|"):
            assert not Path(place).is_relative_to(workspace)
            assert not Path(place).exists()  # it was made for the call


async def test_configuration_that_changes_while_git_works_does_not_matter(harness, workspace, ran):
    """What a program of the agent's writes at the worst moment comes as late as all else."""
    await put(harness, "sub/a.txt", "one\n")
    await put(harness, "a.txt", "one\n")
    texts = planted(workspace / "sub", ran)
    for path, text in texts.items():
        await put(harness, f"planted/{path}", text)
    await harness.call(
        "exec",
        command="setsid sh -c 'while [ ! -e stop ]; do cp -r planted/. .; cp -r planted/. sub; done' >/dev/null 2>&1 &",
    )
    try:
        await eventually((workspace / "sub" / ".git" / "config").exists)
        await use(harness, "sub")
        await use(harness, ".")
    finally:
        (workspace / "stop").touch()
    assert not ran.exists()


async def test_a_repository_inside_is_left_out_and_named(harness, workspace):
    await put(harness, "a.txt", "one\n")
    await put(harness, "sub/b.txt", "one\n")
    await harness.call("git_commit", message="Inner", directory="sub", init=True)
    said = await harness.call("git_commit", message="Outer", init=True)
    assert "repositories of their own: sub/" in said
    assert git(workspace, "ls-files").split() == ["a.txt"]
    assert (await harness.call("git_status")).splitlines() == ["## main", "?? sub/"]


async def test_a_repository_known_as_a_submodule_stays_as_it_is(harness, workspace):
    await put(harness, "sub/b.txt", "one\n")
    await harness.call("git_commit", message="Inner", directory="sub", init=True)
    git(workspace, "init", "--quiet", "--initial-branch=main")
    git(workspace, "-c", "advice.addEmbeddedRepo=false", "add", "sub")
    git(workspace, "commit", "--quiet", "--message=Known")
    await put(harness, "sub/b.txt", "two\n")
    await harness.call("git_commit", message="Inner again", directory="sub")
    assert await harness.call("git_status") == "## main"
    await put(harness, "a.txt", "one\n")
    await harness.call("git_commit", message="Outer")
    assert git(workspace, "show", "--format=", "--name-only").split() == ["a.txt"]
    assert "160000" in git(workspace, "ls-files", "--stage", "sub")


async def test_files_that_are_tracked_stay_so_when_a_git_directory_appears_beside_them(
    harness, workspace
):
    """A directory named `.git` is quickly planted; it takes nothing out of the next commit."""
    await put(harness, "sub/b.txt", "one\n")
    await harness.call("git_commit", message="Begin", init=True)
    await put(harness, "sub/.git/HEAD", "ref: refs/heads/main\n")
    await put(harness, "sub/b.txt", "two\n")
    assert "M sub/b.txt" in await harness.call("git_status")
    await harness.call("git_commit", message="Next")
    assert git(workspace, "show", "HEAD:sub/b.txt") == "two\n"
    assert git(workspace, "ls-files").split() == ["sub/b.txt"]


@pytest.mark.parametrize("name", [".git", ".GIT", ".Git"])
async def test_nothing_below_a_git_directory_is_ever_committed(harness, workspace, name):
    """On a file system that is blind to case a checkout of it would be configuration."""
    await put(harness, "a.txt", "one\n")
    await harness.call("git_commit", message="Begin", init=True)
    await put(harness, f"{name}/config", "[core]\n")
    await put(harness, f"sub/{name}/config", "[core]\n")
    await put(harness, "sub/b.txt", "one\n")
    with contextlib.suppress(ToolFailed):
        await harness.call("git_commit", message="Next")
    assert "config" not in git(workspace, "ls-files")
