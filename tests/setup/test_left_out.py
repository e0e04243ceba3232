"""A machine that lacks a program: what needs it is left out by name, and under CI nothing may be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import run_program

ROOT = Path(__file__).resolve().parents[2]
BASH = "/bin/bash"


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return run_program(command, cwd=ROOT, env=environment)


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_a_missing_program_is_named_and_fails_only_under_ci(ci, code):
    script = (
        'source scripts/programs.bash; need nosuchthing nosuchpackage "the tests of it"; conclude'
    )
    answer = run([BASH, "-c", script], PATH="/nowhere", CI=ci)
    assert (
        "Left out: the tests of it (needs nosuchthing: install the package nosuchpackage)"
        in answer.stdout
    )
    assert answer.returncode == code


def test_a_step_that_fails_is_named_at_the_end_and_the_next_one_still_runs():
    answer = run(
        [BASH, "-c", "source scripts/programs.bash; run one false; run two echo done; conclude"],
        PATH="/bin",
    )
    assert answer.stdout.splitlines()[-2:] == ["done", "Failed: one"]
    assert answer.returncode == 1


@pytest.mark.parametrize(
    ("ci", "expected"), [("", "Tests with a browser: no Chromium"), ("true", "2 failed, 1 passed")]
)
def test_without_a_browser_its_tests_are_left_out_in_so_many_words(tmp_path, ci, expected):
    file = tmp_path / "test_page.py"
    file.write_text(
        "import pytest\n"
        "@pytest.mark.browser\n"
        "@pytest.mark.parametrize('n', [1, 2])\n"
        "def test_page(n): assert False\n"
        "def test_plain(): pass\n",
        "utf-8",
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-c",
        "pyproject.toml",
        str(file),
    ]
    answer = run(command, PATH="/nowhere", CI=ci, HOME=os.environ.get("HOME", "/"))
    assert expected in answer.stdout, answer.stdout + answer.stderr
