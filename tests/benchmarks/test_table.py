"""The benchmark: a quick run fills every row of the table; its figures are nobody's business here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.measurement import spread
from benchmarks.report import BEGIN, END, write_into
from benchmarks.rows import Bar, latency, per_call

ROOT = Path(__file__).resolve().parents[2]
ROWS = {
    *(f"{who}_{shape}" for who in ("executor", "turn") for shape in ("8", "64", "50x1")),
    *(f"{who}_{shape}" for who in ("executor", "turn") for shape in ("200x1", "800x1")),
    "overshoot",
    *(f"sqlite_{what}" for what in ("turn", "reads", "writes", "transactions")),
    *(f"cancel_{what}" for what in ("coroutine", "exec", "process")),
}


@pytest.mark.timeout(120)
def test_a_quick_run_fills_every_row(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--output", str(tmp_path)],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    record = json.loads((tmp_path / "latest.json").read_text("utf-8"))
    assert {row["id"] for row in record["rows"]} == ROWS
    assert all(row["median"] > 0 and row["count"] > 0 for row in record["rows"])
    assert {row["id"] for row in record["rows"] if row["ratio"]} == {
        row for row in ROWS if row.startswith(("executor", "turn", "overshoot"))
    }
    table = (tmp_path / "latest.md").read_text("utf-8")
    assert all(row["what"] in table for row in record["rows"])
    assert table.strip() in run.stdout
    assert str(ROOT) not in json.dumps(record)


def test_the_spread_of_many_measurements():
    measured = spread([float(number) for number in range(200, 0, -1)])
    assert (measured.count, measured.best, measured.worst) == (200, 1, 200)
    assert (measured.median, measured.p99) == (100.5, 198)


@pytest.mark.parametrize(
    ("bar", "kept"),
    [
        (Bar(), None),
        (Bar(most=1000), True),
        (Bar(most=1000, most_ratio=10), True),
        (Bar(most=999), False),
        (Bar(most=1000, most_ratio=9), False),
    ],
)
def test_a_row_keeps_its_bar_only_if_it_keeps_both_parts(bar, kept):
    ours, bare = spread([0.010]), spread([0.001])
    row = per_call("x", "x", ours, bare=bare, calls=10, bar=bar)
    assert (row.median, row.ratio) == (pytest.approx(1000), pytest.approx(10))
    assert row.is_within is kept


def test_a_latency_is_told_in_milliseconds():
    row = latency("x", "x", spread([0.25]))
    assert (row.median, row.unit, row.ratio) == (250, "ms", None)


def test_the_table_goes_between_the_marks_of_the_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", "utf-8")
    write_into(page, "new\n")
    assert page.read_text("utf-8") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


def test_a_page_without_marks_is_left_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("no marks\n", "utf-8")
    with pytest.raises(ValueError, match="no marks"):
        write_into(page, "new\n")
    assert page.read_text("utf-8") == "no marks\n"
