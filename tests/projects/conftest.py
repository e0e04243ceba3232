"""The package as pip would install it."""

import compileall
import sys
import zipfile
from pathlib import Path

import pytest

from tests.made_once import made_once
from tests.projects.hosts import ROOT
from tests.support import run_program


@pytest.fixture(scope="session")
def installed() -> Path:
    """Build the package and unpack it."""
    return made_once("installed", _install) / "site"


def _install(target: Path) -> None:
    built = run_program(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)], cwd=ROOT
    )
    assert built.returncode == 0, built.stderr
    [wheel] = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target / "site")
    compileall.compile_dir(target / "site", quiet=2, workers=0)
