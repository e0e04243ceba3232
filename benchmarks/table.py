"""The table: one row for each promise, as Markdown."""

import math
import os
import platform
import sqlite3
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import django

_VERDICTS = {True: "yes", False: "**no**", None: "—"}
_COLUMNS = ("What", "Server", "Measured", "Bar", "Kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement, its server, and whether it is within its bar; None = it is only reported."""

    what: str
    server: str
    measured: str
    bar: str
    is_kept: bool | None


def row_of_times(
    what: str,
    server: str,
    seconds: Sequence[float],
    *,
    most_median: float | None = None,
    most_p99: float | None = None,
) -> Row:
    """Return a row of durations. Pass one of the bars, in milliseconds."""
    median, p99 = 1000 * statistics.median(seconds), 1000 * _p99(seconds)
    measured = f"median {median:.0f} ms, p99 {p99:.0f} ms, n = {len(seconds):,}"
    if most_p99 is not None:
        bar, is_kept = f"p99 ≤ {most_p99:g} ms", p99 <= most_p99
    else:
        assert most_median is not None
        bar, is_kept = f"median ≤ {most_median:g} ms", median <= most_median
    return Row(what=what, server=server, measured=measured, bar=bar, is_kept=is_kept)


def as_markdown(rows: Sequence[Row], *, is_quick: bool) -> str:
    """Return the table below a line about the run and its machine."""
    kind = "Quick run, too short to be judged" if is_quick else "Full run"
    head = (
        f"{kind}, {datetime.now(UTC).date().isoformat()}: {os.cpu_count()} cores, {platform.system()}, "
        f"Python {platform.python_version()}, Django {django.get_version()}, SQLite {sqlite3.sqlite_version}."
    )
    lines = [_line(_COLUMNS), _line(["---"] * len(_COLUMNS))]
    for row in rows:
        verdict = _VERDICTS[row.is_kept]
        lines.append(_line((row.what, row.server, row.measured, row.bar, verdict)))
    return "\n".join((head, "", *lines, ""))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]
