"""Rows of the table: what was measured, what it is compared with, the bar it is held to."""

from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.measurement import Spread

MICROSECONDS = 1e6
MILLISECONDS = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What a row shall stay below: a median, a p99, a ratio, a ratio of CPU times. None = no such bar."""

    most: float | None = None
    most_p99: float | None = None
    most_ratio: float | None = None
    most_cpu_ratio: float | None = None


NO_BAR = Bar()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line: seconds are turned into `unit`. `bare` is what it is compared with, of the same run.

    `cpu` and `bare_cpu` are what was computed in that time, where that was measured.
    """

    id: str
    what: str
    unit: str
    count: int
    best: float
    median: float
    p99: float
    worst: float
    cpu: float | None = None
    bare: float | None = None
    bare_cpu: float | None = None
    bar: Bar = NO_BAR

    @property
    def ratio(self) -> float | None:
        """How many times as long as what is bare it takes."""
        return self.median / self.bare if self.bare else None

    @property
    def cpu_ratio(self) -> float | None:
        """How many times as much as for what is bare is computed."""
        return self.cpu / self.bare_cpu if self.cpu is not None and self.bare_cpu else None

    @property
    def is_within(self) -> bool | None:
        """Whether every bar is kept; None where there is none."""
        bars = (
            (self.median, self.bar.most),
            (self.p99, self.bar.most_p99),
            (self.ratio, self.bar.most_ratio),
            (self.cpu_ratio, self.bar.most_cpu_ratio),
        )
        kept = [value <= most for value, most in bars if value is not None and most is not None]
        return all(kept) if kept else None

    def as_json(self) -> dict[str, Any]:
        """Return the row as it is stored."""
        return {
            **asdict(self),
            "ratio": self.ratio,
            "cpu_ratio": self.cpu_ratio,
            "is_within": self.is_within,
        }


def per_call(
    row_id: str, what: str, measured: Spread, *, bare: Spread, calls: int, bar: Bar = NO_BAR
) -> Row:
    """Return a row of microseconds for one call, of runs of many."""
    return _row(row_id, what, measured, scale=MICROSECONDS / calls, unit="µs", bare=bare, bar=bar)


def latency(
    row_id: str, what: str, measured: Spread, *, bare: Spread | None = None, bar: Bar = NO_BAR
) -> Row:
    """Return a row of milliseconds."""
    return _row(row_id, what, measured, scale=MILLISECONDS, unit="ms", bare=bare, bar=bar)


def amount(
    row_id: str, what: str, measured: Spread, *, unit: str = "", bare: Spread | None = None
) -> Row:
    """Return a row that counts something."""
    return _row(row_id, what, measured, scale=1, unit=unit, bare=bare, bar=NO_BAR)


def _row(
    row_id: str,
    what: str,
    measured: Spread,
    *,
    scale: float,
    unit: str,
    bare: Spread | None,
    bar: Bar,
) -> Row:
    return Row(
        id=row_id,
        what=what,
        unit=unit,
        count=measured.count,
        best=measured.best * scale,
        median=measured.median * scale,
        p99=measured.p99 * scale,
        worst=measured.worst * scale,
        cpu=None if measured.cpu is None else measured.cpu * scale,
        bare=bare.median * scale if bare else None,
        bare_cpu=None if bare is None or bare.cpu is None else bare.cpu * scale,
        bar=bar,
    )
