"""A quick run of the benchmarks fills every row of its table. What the figures are is no question here."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HAS_LANGGRAPH = find_spec("langgraph") is not None and find_spec("aiosqlite") is not None


@pytest.mark.skipif(sys.platform != "linux", reason="processes are measured on Linux only")
@pytest.mark.parametrize(
    ("part", "rows"),
    [("one-process", 7 + HAS_LANGGRAPH), ("across-processes", 2), ("admin", 1)],
)
def test_a_quick_run_fills_every_row(part, rows):
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--only", part],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=390,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    if "not installed" in run.stderr and part == "across-processes":
        assert os.environ.get("CI") != "true", run.stderr
        pytest.skip(run.stderr)
    table = [line for line in run.stdout.splitlines() if line.startswith("|")]
    assert len(table) == 2 + rows, run.stdout
