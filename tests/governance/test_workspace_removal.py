"""Removing the directory of a scope, whatever tools have made of it."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from governance import file_trees
from governance.runtime import remove_workspace

NOBODY = 65534


@pytest.fixture
def root(settings: Any) -> Iterator[Path]:
    """Return the directory of workspaces, where every user gets to."""
    with tempfile.TemporaryDirectory() as made:
        settings.GOVERNANCE_WORKSPACE_ROOT = made
        yield Path(made)


@contextmanager
def as_ordinary_user(root: Path) -> Iterator[None]:
    """Root may write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.chown(root, NOBODY, -1)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("rights", [0o555, 0o000])
def test_directories_that_may_not_be_written_go_too_and_no_link_is_followed(
    root: Path, rights: int
):
    with as_ordinary_user(root):
        outside = root / "outside"
        deep = root / "scope" / "pkg" / "mod"
        for directory in (outside, deep):
            directory.mkdir(parents=True)
            (directory / "go.mod").write_text("module")
        (deep / "link").symlink_to(outside)
        for directory in (outside, deep, deep.parent, deep.parent.parent):
            directory.chmod(rights)
        remove_workspace("scope")
        assert os.listdir(root) == ["outside"]
        assert outside.stat().st_mode & 0o777 == rights
        outside.chmod(0o700)


def make_deep(top: Path, *, name: str, levels: int) -> int:
    """Make directories below each other, as a command can, whatever the length of their path. Return the last one."""
    current = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=current)
        following = os.open(name, os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = following
    return current


def test_any_depth_goes(root: Path):
    outside = root / "outside"
    outside.mkdir()
    (root / "scope").mkdir()
    for name in ("a", "n" * 200):
        deepest = make_deep(root / "scope", name=name, levels=3_000)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=deepest))
        os.symlink(outside, "link", dir_fd=deepest)
        os.close(deepest)
    descriptors = len(os.listdir("/proc/self/fd"))
    remove_workspace("scope")
    assert os.listdir(root) == ["outside"]
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_directory_that_is_moved_away_meanwhile_leads_nowhere_else(root: Path):
    """Another program may put it into a directory that must stay."""
    inner = root / "scope" / "a" / "b"
    inner.mkdir(parents=True)
    (root / "kept" / "b").mkdir(parents=True)
    (inner / "file").touch()
    entries = file_trees.walk(root / "scope")
    assert [next(entries)[1].name for _ in range(3)] == ["a", "b", "file"]
    inner.rename(root / "kept" / "moved")
    with pytest.raises(OSError, match="tale"):
        list(entries)
    assert (root / "kept" / "b").is_dir()
