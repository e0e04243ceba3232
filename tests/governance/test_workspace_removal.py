"""Removing the directory of a scope, whatever tools have made of it."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

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
