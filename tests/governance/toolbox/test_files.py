"""The file tools: what they do, and that no path leads out of the workspace (G1)."""

import os
import stat

import pytest

from governance.core.cancel_reasons import CancelReason
from governance.core.cancellation import Cancellation, Cancelled
from governance.core.exceptions import GovernanceError, ToolFailed
from governance.core.tools import Concurrency, Isolation
from governance.toolbox.workspace import Workspace


@pytest.fixture
def outside(tmp_path):
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "secret.txt").write_text("hush")
    return directory


@pytest.fixture
def links(workspace, outside):
    (workspace / "file_link").symlink_to(outside / "secret.txt")
    (workspace / "dir_link").symlink_to(outside)
    (workspace / "up_link").symlink_to("..")
    (workspace / "new_link").symlink_to(outside / "new.txt")
    (workspace / "chain_link").symlink_to("dir_link/secret.txt")


ESCAPES = [
    "../outside/secret.txt",
    "a/../../outside/secret.txt",
    "/etc/passwd",
    "file_link",
    "dir_link/secret.txt",
    "up_link/outside/secret.txt",
    "chain_link",
    "new_link",
    "dir_link/new.txt",
    "dir_link/sub/new.txt",
    "../workspace_twin/x",
]


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.usefixtures("links")
def test_no_tool_follows_a_path_out_of_the_workspace(harness, outside, path):
    calls: tuple[tuple[str, dict[str, str]], ...] = (
        ("read_file", {}),
        ("write_file", {"content": "pwned"}),
        ("edit_file", {"old": "hush", "new": "pwned"}),
        ("list_files", {}),
    )
    for name, arguments in calls:
        with pytest.raises(ToolFailed, match="outside the workspace") as caught:
            harness.call(name, path=path, **arguments)
        assert "hush" not in str(caught.value)
    assert {entry.name: entry.read_text() for entry in outside.iterdir()} == {"secret.txt": "hush"}


def test_absolute_outside_path_is_refused_and_absolute_inside_path_is_not(
    harness, workspace, outside
):
    (workspace / "a.txt").write_text("inside")
    assert harness.call("read_file", path=str(workspace / "a.txt")) == "inside"
    with pytest.raises(ToolFailed, match="outside"):
        harness.call("read_file", path=str(outside / "secret.txt"))


def test_link_that_stays_inside_is_followed(harness, workspace):
    (workspace / "real").mkdir()
    (workspace / "real" / "a.txt").write_text("inside")
    (workspace / "link").symlink_to("real")
    assert harness.call("read_file", path="link/a.txt") == "inside"
    harness.call("write_file", path="link/b.txt", content="b")
    assert (workspace / "real" / "b.txt").read_text() == "b"


@pytest.mark.parametrize("swapped", ["dir", "dir/file"])
def test_link_swapped_in_after_the_check_is_not_followed(
    harness, workspace, outside, monkeypatch, swapped
):
    """The race: the path is checked, then a component becomes a link, then it is opened."""
    (workspace / "dir").mkdir()
    (workspace / "dir" / "file").write_text("mine")
    (outside / "file").write_text("hush")
    locate = Workspace.locate

    def locate_and_swap(self, path):
        parts = locate(self, path)
        victim = workspace / swapped
        if not victim.is_symlink():
            victim.rename(workspace / "moved")
            victim.symlink_to(outside if swapped == "dir" else outside / "file")
        return parts

    monkeypatch.setattr(Workspace, "locate", locate_and_swap)
    for name, arguments in (("read_file", {}), ("write_file", {"content": "x"})):
        with pytest.raises(ToolFailed):
            harness.call(name, path="dir/file", **arguments)
    assert (outside / "file").read_text() == "hush"


def test_link_loops_and_unusable_paths_are_sentences(harness, workspace):
    (workspace / "loop").symlink_to("loop")
    for path in ("loop", "a\0b", "\ud800", "x" * 300, "missing", "missing/deep"):
        with pytest.raises(GovernanceError):
            harness.call("read_file", path=path)


def test_reading_by_lines_says_where_to_read_on(harness, workspace):
    (workspace / "a.txt").write_text("".join(f"line {i}\n" for i in range(1, 11)))
    assert harness.call("read_file", path="a.txt", offset=8) == "line 9\nline 10\n"
    part = harness.call("read_file", path="a.txt", offset=2, limit=3)
    assert part == "line 3\nline 4\nline 5\n\n… lines 3 to 5; read on with offset=5 …"
    assert harness.call("read_file", path="a.txt", offset=10) == "There is nothing after line 10."
    assert harness.call("read_file", path="a.txt", offset=7, limit=3) == "line 8\nline 9\nline 10\n"


def test_reading_stops_at_the_limit_of_characters(harness, workspace):
    harness.change(file_read_limit=20)
    (workspace / "a.txt").write_text("12345678\n" * 5)
    assert harness.call("read_file", path="a.txt") == (
        "12345678\n12345678\n\n… lines 1 to 2; read on with offset=2 …"
    )
    (workspace / "long.txt").write_text("x" * 100_000 + "\nnext\n")
    text = harness.call("read_file", path="long.txt")
    assert text.startswith("x" * 20)
    assert len(text) < 120
    assert "the rest of line 1 left out" in text
    assert "offset=1" in text
    assert harness.call("read_file", path="long.txt", offset=1) == "next\n"


def test_reading_keeps_the_text_as_it_is(harness, workspace):
    (workspace / "a.txt").write_bytes("é\r\nb\rc".encode())
    assert harness.call("read_file", path="a.txt") == "é\r\nb\rc"
    (workspace / "empty").touch()
    assert harness.call("read_file", path="empty") == "The file is empty."


@pytest.mark.parametrize("content", [b"\x7fELF\0\0", b"caf\xe9 latin"])
def test_binary_files_are_neither_shown_nor_edited(harness, workspace, content):
    (workspace / "blob").write_bytes(content)
    with pytest.raises(ToolFailed, match="binary"):
        harness.call("read_file", path="blob")
    with pytest.raises(ToolFailed, match="binary"):
        harness.call("edit_file", path="blob", old="a", new="b")
    assert (workspace / "blob").read_bytes() == content


def test_special_files_do_not_block(harness, workspace):
    os.mkfifo(workspace / "pipe")
    (workspace / "dir").mkdir()
    for path in ("pipe", "dir", "."):
        with pytest.raises(ToolFailed):
            harness.call("read_file", path=path)
        with pytest.raises(ToolFailed):
            harness.call("write_file", path=path, content="x")
    assert stat.S_ISFIFO((workspace / "pipe").stat().st_mode)


def test_reading_obeys_a_cancelled_token(harness, workspace):
    (workspace / "a.txt").write_text("x")
    harness.token.cancel(Cancellation(reason=CancelReason.USER))
    with pytest.raises(Cancelled):
        harness.call("read_file", path="a.txt")


def test_writing_makes_directories_and_says_what_it_did(harness, workspace):
    assert harness.call("write_file", path="a/b/c.txt", content="one\ntwo") == (
        "Created a/b/c.txt: 7 characters, 2 lines."
    )
    assert (workspace / "a/b/c.txt").read_text() == "one\ntwo"
    assert harness.call("write_file", path="a/b/c.txt", content="").startswith("Replaced")
    assert [entry.name for entry in (workspace / "a/b").iterdir()] == ["c.txt"]


def test_writing_keeps_the_mode_and_never_shows_half_a_file(harness, workspace):
    target = workspace / "run.sh"
    target.write_text("old")
    target.chmod(0o750)
    with target.open() as reader:
        harness.call("write_file", path="run.sh", content="new")
        assert reader.read() == "old"
    assert stat.S_IMODE(target.stat().st_mode) == 0o750


def test_writing_too_much_or_what_is_no_text_leaves_the_file_alone(harness, workspace):
    (workspace / "a.txt").write_text("old")
    harness.change(file_max_bytes=10)
    for content in ("é" * 6, "\ud800"):
        with pytest.raises(GovernanceError):
            harness.call("write_file", path="a.txt", content=content)
    assert (workspace / "a.txt").read_text() == "old"
    assert [entry.name for entry in workspace.iterdir()] == ["a.txt"]


def test_failed_write_leaves_no_temporary_file(harness, workspace, monkeypatch):
    def refuse(*_args, **_keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(ToolFailed, match="disk is full"):
        harness.call("write_file", path="a.txt", content="x")
    assert list(workspace.iterdir()) == []


def test_edit_replaces_the_one_occurrence(harness, workspace):
    (workspace / "a.py").write_text("a = 1\nb = 2\n")
    assert harness.call("edit_file", path="a.py", old="b = 2", new="b = 3") == (
        "Replaced 1 occurrence in a.py."
    )
    assert (workspace / "a.py").read_text() == "a = 1\nb = 3\n"


def test_edit_needs_a_text_that_is_there_once(harness, workspace):
    (workspace / "a.py").write_text("x\nx\n")
    with pytest.raises(ToolFailed, match="occurs 2 times"):
        harness.call("edit_file", path="a.py", old="x", new="y")
    with pytest.raises(ToolFailed, match="does not occur"):
        harness.call("edit_file", path="a.py", old="z", new="y")
    with pytest.raises(ToolFailed, match="nothing to do"):
        harness.call("edit_file", path="a.py", old="x", new="x")
    assert (workspace / "a.py").read_text() == "x\nx\n"
    assert "2 occurrences" in harness.call(
        "edit_file", path="a.py", old="x", new="y", replace_all=True
    )
    assert (workspace / "a.py").read_text() == "y\ny\n"


def test_edit_keeps_windows_line_ends(harness, workspace):
    (workspace / "a.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    harness.call("edit_file", path="a.txt", old="one\ntwo", new="1\n2")
    assert (workspace / "a.txt").read_bytes() == b"1\r\n2\r\nthree\r\n"


def test_listing_shows_kinds_and_sizes(harness, workspace):
    assert harness.call("list_files") == "The directory is empty."
    (workspace / "dir").mkdir()
    (workspace / "b.txt").write_text("x" * 1234)
    (workspace / "link").symlink_to("b.txt")
    (workspace / "new\nline").touch()
    assert harness.call("list_files") == "b.txt  1 234\ndir/\nlink@\nnew\ufffdline  0"
    harness.change(list_limit=2)
    assert harness.call("list_files").endswith("\n… 2 more entries left out …")
    assert harness.call("list_files", path="dir") == "The directory is empty."
    with pytest.raises(ToolFailed):
        harness.call("list_files", path="b.txt")


def test_listing_survives_names_that_are_no_text(harness, workspace):
    os.close(os.open(os.fsencode(workspace) + b"/caf\xe9", os.O_CREAT | os.O_WRONLY))
    harness.call("list_files").encode("utf-8")


def test_they_declare_how_they_are_governed(harness):
    tools = {tool.name: tool for tool in harness.registry}
    assert {name for name, tool in tools.items() if tool.side_effects} == {
        "browser",
        "exec",
        "write_file",
        "edit_file",
        "git_commit",
    }
    for name in ("write_file", "edit_file"):
        assert tools[name].concurrency is Concurrency.EXCLUSIVE
        assert tools[name].isolation is Isolation.THREAD
    assert tools["edit_file"].input_schema["required"] == ["path", "old", "new"]


def test_directories_are_made_to_a_depth_that_is_of_use(harness, workspace):
    for path in ("a/" * 1_500 + "file", "a/" * 101 + "file"):
        with pytest.raises(ToolFailed, match="is too long"):
            harness.call("write_file", path=path, content="x")
    assert list(workspace.iterdir()) == []
    harness.call("write_file", path="a/" * 100 + "file", content="x")
