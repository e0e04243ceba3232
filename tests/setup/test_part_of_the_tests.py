"""`make test ARGS=…`: runs that and nothing else, and what failed stands at the end."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import run_program

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "WORKERS": "2"}
    return run_program([ROOT / "scripts" / "test", *arguments], env=environment)


@pytest.mark.parametrize("is_directory", [False, True])
def test_a_part_is_run_alone_and_its_failure_comes_last(tmp_path, is_directory):
    file = tmp_path / "test_part.py"
    file.write_text("def test_good(): pass\ndef test_bad(): assert False\n", "utf-8")
    config = ("-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider")
    answer = run(str(tmp_path if is_directory else file), *config)
    assert answer.returncode == 1
    *_before, failed, summary = answer.stdout.strip().splitlines()
    assert failed.startswith("FAILED")
    assert "test_bad" in failed
    assert "1 failed, 1 passed" in summary
    assert "node" not in answer.stdout
    assert "Installing" not in answer.stdout


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_a_file_of_the_pages_tests_is_run_alone():
    answer = run("tests/js/view/labels.test.js")
    assert answer.returncode == 0, answer.stdout
    assert "fail 0" in answer.stdout
    assert "pytest" not in answer.stdout
