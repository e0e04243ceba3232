"""Git in the workspace: what the tools do, and what a hostile repository cannot make them do (G1, P2)."""

import asyncio
import contextlib
import os
import random
import shutil
import subprocess

import pytest

from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation, CancellationToken, Cancelled
from governance.core.exceptions import InvalidToolInput, ToolFailed
from governance.core.tools import Concurrency
from governance.toolbox import SandboxChoice
from tests.governance.toolbox.git_owner import git
from tests.support import PATIENCE, cancel

pytestmark = pytest.mark.usefixtures("_no_pipe_is_left")


@pytest.fixture(params=[SandboxChoice.AUTO, SandboxChoice.NONE])
def harness(harness, request):
    """The tools, in the sandbox and without: they behave alike."""
    harness.change(exec_enabled=False, exec_sandbox=request.param)
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


def point_by_alternates_in_capitals(repository, foreign):
    """As a file system that is blind to case finds them, too."""
    point_by_alternates(repository, foreign)
    objects = repository / ".git" / "objects"
    (objects / "info" / "alternates").rename(objects / "info" / "ALTERNATES")
    (objects / "info").rename(objects / "Info")


def point_by_packs(repository, foreign):
    git(foreign, "gc", "--quiet")
    shutil.rmtree(repository / ".git" / "objects" / "pack", ignore_errors=True)
    (repository / ".git" / "objects" / "pack").symlink_to(foreign / ".git" / "objects" / "pack")


@pytest.mark.parametrize(
    "point",
    [
        point_by_file,
        point_by_link,
        point_by_common_directory,
        point_by_objects,
        point_by_alternates,
        point_by_alternates_in_capitals,
        point_by_packs,
    ],
)
async def test_a_repository_that_leads_outside_is_refused(harness, repository, foreign, point):
    head = git(foreign, "rev-parse", "HEAD")
    secret = git(foreign, "rev-parse", "HEAD:secret.txt").strip()
    point(repository, foreign)
    for name, arguments in (
        ("git_status", {}),
        ("git_log", {}),
        ("git_diff", {"revision": secret}),
        ("git_commit", {"message": "x", "init": True}),
    ):
        with pytest.raises(ToolFailed) as caught:
            await harness.call(name, **arguments)
        assert "hush" not in str(caught.value)
    assert git(foreign, "rev-parse", "HEAD") == head


async def test_a_line_break_in_a_path_leads_to_no_other_objects(harness, workspace, foreign):
    """Git is given a list of places for objects, one a line."""
    secret = git(foreign, "rev-parse", "HEAD").strip()
    directory = f"x\n{foreign}"
    (workspace / directory).mkdir(parents=True)
    (workspace / directory / "a.txt").write_text("one\n")
    await harness.call("git_commit", message="Begin", directory=directory, init=True)
    for name in ("git_log", "git_diff"):
        said = await fails(
            harness, "bad (object|revision)", name, directory=directory, revision=secret
        )
        assert "hush" not in said
    assert "Begin" in await harness.call("git_log", directory=directory)


HOSTILE = {
    "core.fsmonitor": "{program}",
    "core.hooksPath": "{hooks}",
    "diff.external": "{program}",
    "core.attributesFile": "{attributes}",
    "core.pager": "{program}",
    "core.editor": "{program}",
    "core.sshCommand": "{program}",
    "gpg.program": "{program}",
    "filter.evil.clean": "{program}",
    "filter.evil.process": "{program}",
    "diff.evil.textconv": "{program}",
    "diff.evil.command": "{program}",
    "alias.status": "!{program}",
    "credential.helper": "!{program}",
    "include.path": "{include}",
    "interactive.diffFilter": "{program}",
    "extensions.worktreeConfig": "true",
}


@pytest.mark.parametrize("key", HOSTILE)
async def test_no_configuration_of_the_repository_makes_git_run_a_program(
    harness, repository, tmp_path, key
):
    """Whoever may write files may write .git/config: with that alone nothing may ever run."""
    ran = repository / "ran"
    program = repository / "program.sh"
    program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    program.chmod(0o755)
    hooks = repository / "hooks"
    hooks.mkdir()
    for hook in (
        "pre-commit",
        "post-commit",
        "commit-msg",
        "prepare-commit-msg",
        "post-index-change",
    ):
        shutil.copy(program, hooks / hook)
        shutil.copy(program, repository / ".git" / "hooks" / hook)
    (repository / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (repository / "attributes").write_text("* filter=evil\n")
    (repository / "include").write_text(f'[filter "evil"]\n\tclean = {program}\n')
    places = {
        "program": program,
        "hooks": hooks,
        "attributes": repository / "attributes",
        "include": repository / "include",
    }
    git(repository, "config", key, HOSTILE[key].format_map(places))
    (repository / "a.txt").write_text("two\n")
    for name, arguments in (
        ("git_status", {}),
        ("git_diff", {}),
        ("git_log", {}),
        ("git_commit", {"message": "x"}),
    ):
        with contextlib.suppress(ToolFailed):
            await harness.call(name, **arguments)
    assert not ran.exists()


NESTED = """
[core]
    fsmonitor = {program}
    hooksPath = {hooks}
[diff]
    external = {program}
[filter "evil"]
    clean = {program}
"""


@pytest.mark.parametrize("is_submodule", [False, True])
async def test_no_configuration_of_a_repository_inside_makes_git_run_a_program(
    harness, repository, is_submodule
):
    ran, program, inside = (repository / name for name in ("ran", "program.sh", "inside"))
    program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    program.chmod(0o755)
    inside.mkdir()
    git(inside, "init", "--quiet")
    git(inside, "commit", "--quiet", "--allow-empty", "--message=x")
    if is_submodule:
        named = '[submodule "inside"]\n\tpath = inside\n\turl = ./inside\n\tignore = none\n'
        (repository / ".gitmodules").write_text(named)
        git(repository, "add", "inside", ".gitmodules")
    (inside / ".gitattributes").write_text("* filter=evil\n")
    with (inside / ".git" / "config").open("a") as configuration:
        configuration.write(NESTED.format(program=program, hooks=repository))
    for name, arguments in (
        ("git_status", {}),
        ("git_diff", {}),
        ("git_commit", {"message": "x"}),
        ("git_diff", {"staged": True}),
        ("git_log", {}),
        ("git_status", {"directory": "inside"}),
    ):
        with contextlib.suppress(ToolFailed):
            await harness.call(name, **arguments)
    assert not ran.exists()
    assert git(repository, "log", "-1", "--format=%s") == "x\n"


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


async def test_configuration_of_the_repository_does_not_matter(harness, repository, foreign):
    """Not even one that is broken, or that names another place for the files."""
    git(repository, "config", "core.worktree", str(foreign))
    git(repository, "config", "filter.evil.clean", "cat")
    assert await harness.call("git_status") == "## main"
    (repository / ".git" / "config").write_text("[core\n")
    (repository / "a.txt").write_text("two\n")
    assert "[main " in await harness.call("git_commit", message="Next")
    (repository / ".git" / "config").unlink()
    git(repository, "fsck", "--strict")
    assert git(repository, "show", "HEAD:a.txt") == "two\n"


async def test_configuration_of_the_server_is_not_used(harness, repository, monkeypatch, tmp_path):
    """Neither the one of its user nor a variable of its environment."""
    (tmp_path / ".gitconfig").write_text("[alias]\n\tstatus = !false\n[status]\n\tshort = maybe\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / ".gitconfig"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    (repository / ".gitconfig").write_text("[core]\n\tpager = false\n")
    assert "## main" in await harness.call("git_status")


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "link/secret.txt"])
async def test_no_path_outside(harness, repository, foreign, path):
    (repository / "link").symlink_to(foreign)
    (foreign.parent / "x").write_text("x")
    await fails(harness, "outside", "git_commit", message="x", paths=[path])
    await fails(harness, "outside", "git_diff", paths=[path])


@pytest.mark.parametrize("revision", ["--output=x", "-p", "HEAD --output=x", "$(touch x)", "a b"])
async def test_a_revision_is_never_an_option(harness, repository, revision):
    for name in ("git_diff", "git_log"):
        await fails(harness, "no name of a commit", name, revision=revision)
    assert not (repository / "x").exists()


async def test_an_unknown_revision_is_told_by_git(harness, repository):
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


class PatientToken(CancellationToken):
    """A token that is cancelled once a thread has looked at it a number of times."""

    def __init__(self, looks):
        super().__init__()
        self.looks = looks

    def raise_if_cancelled(self):
        self.looks -= 1
        if self.looks == 0:
            self.cancel(Cancellation(reason=CancelReason.TIMEOUT))
        super().raise_if_cancelled()


@pytest.mark.parametrize("kind", ["loose", "packed", "directories", "objects"])
async def test_a_cancelled_call_reads_no_more_of_a_large_repository(harness, repository, kind):
    """Its thread is one of those that everything in the process waits for."""
    store = repository / ".git"
    tip = git(repository, "rev-parse", "HEAD")
    if kind == "packed":
        lines = [f"{tip.strip()} refs/tags/v{number}\n" for number in range(100)]
        (store / "packed-refs").write_text("".join(lines))
    for number in range(100):
        if kind == "loose":
            (store / "refs" / "tags" / f"v{number}").write_text(tip)
        elif kind == "directories":
            (store / "refs" / "tags" / f"v{number}").mkdir()
        elif kind == "objects":
            (store / "objects" / f"x{number}").mkdir()
    harness.token = PatientToken(looks=90)
    with pytest.raises(Cancelled):
        await harness.call("git_status")
    assert harness.token.looks == 0


async def test_a_large_file_is_no_reference(harness, repository):
    """A file with holes takes no room on the disk; read, it takes the server's memory."""
    os.truncate(repository / ".git" / "refs" / "heads" / "main", 90_000_000)
    await fails(harness, "damaged: '.git/refs/heads/main' is too large")


async def test_too_many_references_in_files_are_a_sentence(harness, repository, monkeypatch):
    monkeypatch.setattr("governance.toolbox.git_repository._MOST_LOOSE", 60)
    for number in range(60):
        git(repository, "tag", f"v{number}")
    await fails(harness, "more than 60 references.*git pack-refs --all")
    git(repository, "pack-refs", "--all")
    assert "main" in await harness.call("git_status")


@pytest.mark.parametrize(
    ("name", "content"),
    [("HEAD", "nothing"), ("HEAD", "ref: refs/../../x"), ("index", "DIRC nonsense")],
)
async def test_a_damaged_repository_is_a_sentence(harness, repository, name, content):
    (repository / ".git" / name).write_text(content)
    await fails(harness, "damaged|index file")
    shutil.rmtree(repository / ".git" / "objects")
    await fails(harness, "damaged")


async def test_an_empty_git_directory_is_no_repository(harness, workspace):
    (workspace / ".git").mkdir()
    await fails(harness, "no git repository")
    (workspace / "a.txt").write_text("x")
    await harness.call("git_commit", message="Begin", init=True)
    assert git(workspace, "ls-files").split() == ["a.txt"]


async def test_an_old_repository_keeps_its_history(harness, repository):
    """Packed, with references of every kind: it goes on where its owner left it, and the owner after it."""
    git(repository, "tag", "v1")
    git(repository, "branch", "side/line")
    git(repository, "gc", "--quiet")
    git(repository, "pack-refs", "--all")
    said = await harness.call("git_log")
    assert "tag: v1" in said
    assert "side/line" in said
    (repository / "a.txt").write_text("two\n")
    await harness.call("git_commit", message="Next")
    git(repository, "fsck", "--strict")
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "log", "--format=%s").split() == ["Next", "Begin"]
    git(repository, "checkout", "--quiet", "--detach", "v1")
    assert (await harness.call("git_status")) == "## HEAD (no branch)"
    (repository / "a.txt").write_text("aside\n")
    await harness.call("git_commit", message="Aside")
    assert git(repository, "log", "--format=%s").split() == ["Aside", "Begin"]
    assert git(repository, "log", "--format=%s", "main").split() == ["Next", "Begin"]


async def test_a_repository_with_long_ids(harness, workspace):
    git(workspace, "init", "--quiet", "--object-format=sha256", "--initial-branch=main")
    git(workspace, "commit", "--quiet", "--allow-empty", "--message=Begin")
    (workspace / "a.txt").write_text("one\n")
    await harness.call("git_commit", message="Next")
    git(workspace, "fsck", "--strict")
    assert git(workspace, "show", "HEAD:a.txt") == "one\n"


async def test_a_shallow_clone(harness, repository, workspace, tmp_path):
    git(repository, "commit", "--quiet", "--allow-empty", "--message=Second")
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{repository}", "shallow")
    shutil.rmtree(workspace)
    (tmp_path / "shallow").rename(workspace)
    said = await harness.call("git_log")
    assert "Second" in said
    assert "Begin" not in said


async def test_what_is_to_be_ignored_is_neither_shown_nor_committed(harness, repository):
    files = {
        ".gitignore": "*.log\nbuild/\n!keep.log\n/top\n",
        "x.log": "",
        "keep.log": "",
        "top": "",
        "deep/top": "",
        "build/a/b": "",
        "deep/.gitignore": "*.tmp\n",
        "deep/x.tmp": "",
        "deep/build/c": "",
        "private": "",
        "inner/vendor/.git/HEAD": "ref: refs/heads/main\n",
        "build/inner/.git/HEAD": "ref: refs/heads/main\n",
    }
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "exclude").write_text("private\n")
    for name, text in files.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    (repository / "x.log").write_text("tracked in spite of the rule\n")
    git(repository, "add", "--force", "x.log")
    assert (await harness.call("git_status")).splitlines() == [
        "## main",
        "A  x.log",
        "?? .gitignore",
        "?? deep/",
        "?? inner/vendor/",
        "?? keep.log",
    ]
    said = await harness.call("git_commit", message="Next")
    assert "repositories of their own: inner/vendor/" in said
    assert git(repository, "ls-files").split() == sorted(
        [".gitignore", "a.txt", "deep/.gitignore", "deep/top", "keep.log", "x.log"]
    )


async def test_too_many_rules_on_what_to_ignore_are_a_sentence(harness, repository, monkeypatch):
    """They are copied to the server's disk, where files with holes have none."""
    monkeypatch.setattr("governance.toolbox.git_worktree._RULES_LIMIT", 1000)
    for directory in ("b", "c"):
        (repository / directory).mkdir()
        (repository / directory / ".gitignore").touch()
        os.truncate(repository / directory / ".gitignore", 600)
    await fails(harness, "take more than 1 000 bytes")
    (repository / "c" / ".gitignore").unlink()
    assert "?? b/" in await harness.call("git_status")


async def test_status_shows_what_is_staged_and_what_is_not(harness, repository):
    for name in ("b", "c", "d"):
        (repository / name).write_text("one\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message=More")
    (repository / "a.txt").write_text("two\n")
    git(repository, "add", "a.txt")
    (repository / "a.txt").write_text("three\n")
    (repository / "b").unlink()
    git(repository, "rm", "--quiet", "c")
    (repository / "d").chmod(0o755)
    (repository / "e").write_text("new\n")
    git(repository, "add", "e")
    expected = git(repository, "status", "--short", "--branch").rstrip("\n")
    assert await harness.call("git_status") == expected
    assert expected.splitlines() == ["## main", "MM a.txt", " D b", "D  c", " M d", "A  e"]


NAMES = ("a", "b c", "d/e", "d/f/g", "x.log", "é", "build/o", 'q"r', "deep/er/n", "-opt", "t\tb")
RULES = ("*.log\n", "build/\n!d/build\n", "/d/f/*\n!/d/f/g\n", "*\n!*/\n!a\n")


def change_something(top, chance):
    path = top / chance.choice(NAMES)
    what = chance.choice(("write", "write", "write", "remove", "rights", "link", "add", "rules"))
    if what == "rules":
        (top / ".gitignore").write_text(chance.choice(RULES))
    elif what == "add":
        subprocess.run(["git", "add", "-A", "-f", "--", path], cwd=top, capture_output=True)
    elif what == "rights" and path.is_file():
        path.chmod(chance.choice((0o644, 0o755)))
    elif what in {"write", "remove", "link"}:
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        if what == "write":
            path.write_text(f"{chance.random()}\n")
        elif what == "link":
            path.symlink_to(chance.choice(("a", "nowhere")))


@pytest.mark.parametrize("seed", range(3))
async def test_they_say_what_git_itself_would_say(harness, workspace, seed):
    """Over files and an index that are changed at random."""
    chance = random.Random(seed)
    git(workspace, "init", "--quiet", "--initial-branch=main")
    plain = ("-c", "core.quotePath=false")
    for _ in range(4):
        for _ in range(12):
            change_something(workspace, chance)
        expected = git(workspace, *plain, "status", "--short", "--branch", "--no-renames")
        assert await harness.call("git_status") == expected.rstrip("\n")
        expected = git(workspace, *plain, "diff").rstrip("\n") or "There is no difference."
        assert await harness.call("git_diff") == expected
        with contextlib.suppress(ToolFailed):  # nothing to commit
            await harness.call("git_commit", message="Next")
        assert git(workspace, "status", "--porcelain") == ""
        git(workspace, "fsck", "--strict")


async def test_status_before_the_first_commit(harness, workspace):
    git(workspace, "init", "--quiet", "--initial-branch=main")
    (workspace / "a.txt").write_text("x")
    assert (await harness.call("git_status")) == "## No commits yet on main\n?? a.txt"
    assert await harness.call("git_diff") == "There is no difference."
    await fails(harness, "does not have any commits", "git_log")


async def test_links_and_programs_are_committed_as_such(harness, workspace):
    (workspace / "link").symlink_to("/etc/passwd")
    (workspace / "program").write_text("#!/bin/sh\n")
    (workspace / "program").chmod(0o755)
    await harness.call("git_commit", message="Begin", init=True)
    modes = [line.split()[0] for line in git(workspace, "ls-files", "--stage").splitlines()]
    assert modes == ["120000", "100755"]
    assert git(workspace, "show", "HEAD:link") == "/etc/passwd"


async def test_commit_of_some_paths_leaves_what_else_is_staged(harness, repository):
    for name in ("b", "c"):
        (repository / name).write_text("one\n")
    git(repository, "add", "b")
    git(repository, "rm", "--quiet", "a.txt")
    await harness.call("git_commit", message="One", paths=["c"])
    assert git(repository, "show", "--format=", "--name-only").split() == ["c"]
    assert git(repository, "status", "--short", "--no-renames").splitlines() == [
        "D  a.txt",
        "A  b",
    ]
    await harness.call("git_commit", message="Gone", paths=["a.txt"])
    assert git(repository, "status", "--short").splitlines() == ["A  b"]


async def test_files_left_out_on_purpose_are_not_gone(harness, repository):
    (repository / "deep").mkdir()
    (repository / "deep" / "b").write_text("x")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message=More")
    git(repository, "sparse-checkout", "set", "--no-cone", "/a.txt")
    assert not (repository / "deep").exists()
    assert await harness.call("git_status") == "## main"
    (repository / "a.txt").write_text("two\n")
    await harness.call("git_commit", message="Next")
    assert git(repository, "show", "HEAD:deep/b") == "x"


async def test_an_unfinished_merge_is_refused(harness, repository):
    git(repository, "checkout", "--quiet", "-b", "side")
    (repository / "a.txt").write_text("side\n")
    git(repository, "commit", "--quiet", "--all", "--message=Side")
    git(repository, "checkout", "--quiet", "main")
    (repository / "a.txt").write_text("main\n")
    git(repository, "commit", "--quiet", "--all", "--message=Main")
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "merge", "side")
    assert (await harness.call("git_status")).splitlines() == ["## main", "UU a.txt"]
    assert "Unmerged path a.txt" in await harness.call("git_diff")
    await fails(harness, "middle of a merge", "git_commit", message="x")


async def test_another_program_at_work_is_respected(harness, repository):
    (repository / "a.txt").write_text("two\n")
    for lock in ("index.lock", "refs/heads/main.lock"):
        (repository / ".git" / lock).touch()
        await fails(harness, "Another program is working", "git_commit", message="Next")
        (repository / ".git" / lock).unlink()
    assert "[main " in await harness.call("git_commit", message="Next")


async def test_what_is_made_for_a_call_is_gone_after_it(harness, repository, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    await harness.call("git_status")
    await fails(harness, "bad revision", "git_diff", revision="nowhere")
    running = asyncio.Event()

    async def hang(*_arguments, **_named):
        running.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("governance.toolbox.git_shadow.run", hang)
    task = asyncio.create_task(harness.call("git_status"))
    await asyncio.wait_for(running.wait(), PATIENCE)
    assert list(scratch.iterdir()) != []
    await cancel(task)
    assert list(scratch.iterdir()) == []


async def test_cancel_ends_git_and_leaves_no_lock(harness, repository):
    for number in range(300):
        (repository / f"{number}.txt").write_text("x" * 1000)
    task = asyncio.create_task(harness.call("git_commit", message="Many"))
    await asyncio.sleep(0)
    await cancel(task)
    assert not (repository / ".git" / "index.lock").exists()
    await harness.call("git_commit", message="Many")


async def test_without_git_it_is_a_sentence(harness, repository, monkeypatch, tmp_path):
    monkeypatch.setattr("governance.toolbox.git_shadow.SEARCH_PATH", str(tmp_path))
    await fails(harness, "could not be started: it is not installed")


def test_they_declare_how_they_are_governed(harness):
    for name in ("git_status", "git_diff", "git_log", "git_commit"):
        tool = harness.registry.get(name)
        writes = name == "git_commit"
        assert (tool.concurrency is Concurrency.EXCLUSIVE) == writes
        assert tool.side_effects == writes
        assert tool.isolation != "thread"
    with pytest.raises(InvalidToolInput, match="message"):
        harness.registry.get("git_commit").validate({})
