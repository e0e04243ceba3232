"""What is shipped: the packages with their types, templates and static files; not the site, not the tests."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    built = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False
    )
    assert built.returncode == 0, built.stderr
    [path] = target.glob("django_turnkeeper-*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_templates_and_static_files_lie_in_the_app_that_they_are_named_by(wheel):
    names = set(wheel.namelist())
    for folder in ("templates", "static"):
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
        assert files
        for path in files:
            parts = path.relative_to(ROOT / folder).parts
            app = parts[1] if parts[0] == "admin" else parts[0]
            assert f"{app}/{path.relative_to(ROOT)}" in names


def test_only_the_packages_are_shipped_each_with_its_types(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "governance",
        "turns",
        "webchat",
    }
    assert {f"{package}/py.typed" for package in ("governance", "turns", "webchat")} <= set(
        wheel.namelist()
    )


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150
