"""The table as text, as Markdown and as JSON, with a description of the machine in general words."""

import json
import os
import platform
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import django

from benchmarks.rows import Row

BEGIN, END = "<!-- results -->", "<!-- end of results -->"


def describe_machine() -> dict[str, str]:
    """Return what helps to compare two runs, and nothing that names the machine."""
    return {
        "cores": str(len(os.sched_getaffinity(0)) if _has_affinity() else os.cpu_count()),
        "system": platform.system(),
        "python": platform.python_version(),
        "django": django.get_version(),
        "sqlite": sqlite3.sqlite_version,
    }


def as_markdown(rows: Sequence[Row], *, is_quick: bool) -> str:
    """Return both tables with the machine above them."""
    machine = describe_machine()
    when = datetime.now(UTC).date().isoformat()
    kind = "Quick run, too short to mean anything" if is_quick else "Full run"
    head = (
        f"{kind}, {when}: {machine['cores']} cores, {machine['system']}, "
        f"Python {machine['python']}, Django {machine['django']}, SQLite {machine['sqlite']}."
    )
    costs = [row for row in rows if row.unit == "µs"]
    times = [row for row in rows if row.unit in ("ms", "")]
    loads = [row for row in rows if row not in costs and row not in times]
    tables = (
        *([_cost_table(costs)] if costs else []),
        *([_spread_table("Time of the whole path", times)] if times else []),
        *([_spread_table("Load and room", loads)] if loads else []),
    )
    return "\n".join((head, *(line for table in tables for line in ("", *table)), ""))


def store(rows: Sequence[Row], *, directory: Path, is_quick: bool) -> None:
    """Write `latest.md` and `latest.json` into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "is_quick": is_quick,
        "machine": describe_machine(),
        "rows": [row.as_json() for row in rows],
    }
    text = json.dumps(record, indent=2, ensure_ascii=False)
    (directory / "latest.json").write_text(f"{text}\n", "utf-8")
    (directory / "latest.md").write_text(as_markdown(rows, is_quick=is_quick), "utf-8")


def write_into(page: Path, table: str) -> None:
    """Replace what stands between the marks of a page."""
    before, begin, rest = page.read_text("utf-8").partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page.name} has no marks for the results.")
    page.write_text(f"{before}{BEGIN}\n{table}{END}{after}", "utf-8")


def _cost_table(rows: Sequence[Row]) -> Iterator[str]:
    yield "| Cost of a governed call, µs | × bare | median | best | bare | CPU, × bare | CPU | bare's CPU | bar | kept |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|---|---|"
    for row in rows:
        cells = (
            row.what,
            _number(row.ratio),
            _number(row.median),
            _number(row.best),
            _number(row.bare),
            _number(row.cpu_ratio),
            _number(row.cpu),
            _number(row.bare_cpu),
            _bar(row),
            _kept(row),
        )
        yield f"| {' | '.join(cells)} |"


def _spread_table(title: str, rows: Sequence[Row]) -> Iterator[str]:
    yield f"| {title} | × bare | n | median | p99 | worst | bare | CPU, × bare | CPU | bare's CPU | bar | kept |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|---|"
    for row in rows:
        unit = f" {row.unit}" if row.unit else ""
        cells = (
            row.what,
            _number(row.ratio),
            str(row.count),
            *(f"{_number(value)}{unit}" for value in (row.median, row.p99, row.worst)),
            _with_unit(row.bare, unit),
            _number(row.cpu_ratio),
            _with_unit(row.cpu, unit),
            _with_unit(row.bare_cpu, unit),
            _bar(row),
            _kept(row),
        )
        yield f"| {' | '.join(cells)} |"


def _bar(row: Row) -> str:
    bars = (
        (row.bar.most, f" {row.unit}"),
        (row.bar.most_p99, f" {row.unit} (p99)"),
        (row.bar.most_ratio, " ×"),
        (row.bar.most_cpu_ratio, " × (CPU)"),
    )
    return ", ".join(f"≤ {most:g}{unit}" for most, unit in bars if most is not None)


def _with_unit(value: float | None, unit: str) -> str:
    return "" if value is None else f"{_number(value)}{unit}"


def _kept(row: Row) -> str:
    return {None: "", True: "yes", False: "**no**"}[row.is_within]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def _has_affinity() -> bool:
    return hasattr(os, "sched_getaffinity")
