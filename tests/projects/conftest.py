"""The package as pip would install it."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.projects.hosts import ROOT
from tests.support import LONG_PATIENCE


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the package and unpack it."""
    target = tmp_path_factory.mktemp("installed")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LONG_PATIENCE,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    [wheel] = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target / "site")
    return target / "site"
