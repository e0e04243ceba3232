"""Git as the owner of a workspace runs it, beside the tools."""

import os
import subprocess
from pathlib import Path

IDENTITY = {
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.org",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}


def git(directory: Path, *arguments: str, check: bool = True) -> str:
    """Run git as its owner would, and return what it says."""
    return subprocess.run(
        ["git", *arguments],
        cwd=directory,
        check=check,
        text=True,
        capture_output=True,
        env={**os.environ, **IDENTITY},
    ).stdout
