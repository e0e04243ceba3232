"""The benchmark: a quick run fills every row of the table; its figures are nobody's business here."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.measurement import Timed, on_one_core, process_clock, spread, spread_of
from benchmarks.peers import OPTIONAL
from benchmarks.report import BEGIN, END, write_into
from benchmarks.rows import Bar, latency, per_call
from scripts.servers import are_installed
from tests.support import browser_path, run_program

ROOT = Path(__file__).resolve().parents[2]
PEERS = {
    "pydantic_ai",
    *(name for name, (wanted, _) in OPTIONAL.items() if all(map(find_spec, wanted))),
}
ROWS = {
    *(f"{who}_{shape}" for who in ("executor", "turn") for shape in ("8", "64", "50x1")),
    *(f"{who}_{shape}" for who in ("executor", "turn") for shape in ("200x1", "800x1")),
    *(f"library{what}_{shape}" for what in ("", "_governed") for shape in ("8", "64", "50x1")),
    "overshoot",
    *(f"disk_{what}" for what in ("sync", "commit")),
    *(f"sqlite_{what}" for what in ("reads", "writes", "transactions")),
    *(f"sqlite_turn_{peer}" for peer in PEERS),
    *(f"cancel_{what}" for what in ("coroutine", "many", "exec", "process", "provider")),
    "chunk",
    "chunk_agent",
    "mcp_call",
}
STREAMS = {
    *(f"streams_{n}_{what}" for n in (1, 2, 3) for what in ("rate", "pushed")),
    *(f"streams_{n}_{what}" for n in (1, 2, 3) for what in ("delay", "core", "busy")),
    *(f"streams_{n}_apart_{what}" for n in (1, 2, 3, 4) for what in ("delay", "core", "busy")),
}
LENGTHS = {f"messages_{n}{what}" for n in (10, 20, 30) for what in ("", "_look", "_first")}
PASTS = {f"finished_{n}_sqlite{what}" for n in (10, 100) for what in ("", "_look")}
PROCESSES = {
    "click_embedded",
    "cancel_embedded",
    "socket_turn",
    *STREAMS,
    "socket_memory",
    "turn_memory",
    *LENGTHS,
    *PASTS,
}
PAGES = {"page_open", "page_calls_open", "page_flood_200", "page_flood_1000", "page_model"}
PAGES |= {
    f"page{shown}_{what}"
    for shown in ("", "_all")
    for what in ("key", "long_key", "stream", "stream_task")
}
SCALED = {
    *(f"postgres_turn_{peer}" for peer in PEERS),
    "click_scaled",
    "cancel_heard",
    "cancel_dead",
    "cancel_lost",
}
SCALED |= {row.replace("sqlite", "postgres") for row in PASTS}


def expected_rows() -> set[str]:
    """Those that this machine can fill."""
    if sys.platform != "linux":
        return ROWS
    packages = find_spec("procrastinate") and find_spec("channels_redis")
    pages = PAGES if browser_path() else set()
    return ROWS | PROCESSES | pages | (SCALED if are_installed() and packages else set())


def is_compared(row: str) -> bool:
    """Whether a row has something to be compared with."""
    beginnings = (
        "executor",
        "turn_",
        "sqlite_turn",
        "postgres_turn",
        "socket_turn",
        "library",
        "overshoot",
        "chunk",
        "mcp",
        "messages",
        "finished",
    )
    endings = ("_rate", "page_open", "page_calls_open", "_long_key")
    is_one = row.startswith(beginnings) or row.endswith(endings) or row == "click_scaled"
    return is_one and row != "turn_memory"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "options",
    [
        ["--in-process"],
        pytest.param(
            [],
            marks=pytest.mark.skipif(
                not os.environ.get("FAULTS_LONG"), reason="starts many processes: FAULTS_LONG=1"
            ),
        ),
    ],
)
def test_a_quick_run_fills_every_row(tmp_path, options):
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", *options, "--output", str(tmp_path)],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=890,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    record = json.loads((tmp_path / "latest.json").read_text("utf-8"))
    assert {row["id"] for row in record["rows"]} == (rows := ROWS if options else expected_rows())
    # A few sockets may fit into memory that a process has already. A short page has no task that counts as long.
    unsure = ("KiB", "%")
    surely = [
        row
        for row in record["rows"]
        if row["unit"] not in unsure and not row["id"].endswith("_task")
    ]
    assert all(row["median"] > 0 and row["count"] > 0 for row in surely)
    assert {row["id"] for row in record["rows"] if row["ratio"]} == set(filter(is_compared, rows))
    table = (tmp_path / "latest.md").read_text("utf-8")
    assert all(row["what"] in table for row in record["rows"])
    assert table.strip() in run.stdout
    assert str(ROOT) not in json.dumps(record)


def test_a_part_of_the_rows_is_not_written_into_the_page():
    options = ["--quick", "--only", "core", "--write-docs"]
    run = run_program([sys.executable, "-m", "benchmarks", *options], cwd=ROOT)
    assert run.returncode == 2
    assert "--write-docs wants a whole run" in run.stderr


def test_the_spread_of_many_measurements():
    measured = spread([float(number) for number in range(200, 0, -1)])
    assert (measured.count, measured.best, measured.worst) == (200, 1, 200)
    assert (measured.median, measured.p99) == (100.5, 198)


@pytest.mark.parametrize(
    ("bar", "kept"),
    [
        (Bar(most_p99=1000, most_cpu_ratio=2), True),
        (Bar(most_p99=999), False),
        (Bar(most_cpu_ratio=1.9), False),
        (Bar(), None),
        (Bar(most=1000), True),
        (Bar(most=1000, most_ratio=10), True),
        (Bar(most=999), False),
        (Bar(most=1000, most_ratio=9), False),
    ],
)
def test_a_row_keeps_its_bar_only_if_it_keeps_every_part(bar, kept):
    ours, bare = spread_of([Timed(wall=0.010, cpu=0.004)]), spread([0.001], cpu=[0.002])
    row = per_call("x", "x", ours, bare=bare, calls=10, bar=bar)
    assert (row.median, row.ratio) == (pytest.approx(1000), pytest.approx(10))
    assert (row.cpu, row.bare_cpu, row.cpu_ratio) == pytest.approx((400, 200, 2))
    assert row.is_within is kept


def test_a_latency_is_told_in_milliseconds():
    row = latency("x", "x", spread([0.25]))
    assert (row.median, row.unit, row.ratio) == (250, "ms", None)


@pytest.mark.skipif(sys.platform != "linux", reason="there is such a clock on Linux")
def test_the_clock_of_another_process_counts_what_it_computes():
    spinning = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", spinning], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        clock = process_clock(process.pid)
        assert clock() >= 0.2
        process.stdin.close()


@pytest.mark.skipif(sys.platform != "linux", reason="cores are chosen on Linux")
def test_what_is_compared_runs_on_one_core():
    before = os.sched_getaffinity(0)
    spawned = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with spawned as other, ThreadPoolExecutor(1) as beside:

        def cores():
            of_thread = beside.submit(os.sched_getaffinity, 0).result()
            return [os.sched_getaffinity(0), of_thread, os.sched_getaffinity(other.pid)]

        assert cores() == [before] * 3
        with on_one_core(other.pid):
            one = os.sched_getaffinity(0)
            assert (len(one), cores()) == (1, [one] * 3)
        assert cores() == [before] * 3
        other.stdin.close()


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
