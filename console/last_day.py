"""Events per hour in the last 24 hours, counted by the database along an index."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Case, Count, QuerySet, Value, When

HOURS = 24
WIDTH, HEIGHT = 120, 28
_STEP = WIDTH // HOURS


@dataclass(frozen=True, slots=True)
class Series:
    """Counts per hour, oldest first. The last hour and the day end at the time of the count."""

    counts: tuple[int, ...] = (0,) * HOURS

    @property
    def hour(self) -> int:
        return self.counts[-1]

    @property
    def day(self) -> int:
        return sum(self.counts)

    @property
    def most(self) -> int:
        return max(self.counts)

    @property
    def bars(self) -> list[dict[str, float]]:
        """Return the non-empty hours as bars of a chart."""
        heights = [count and max(HEIGHT * count / self.most, 2) for count in self.counts]
        return [
            {"x": place * _STEP, "y": round(HEIGHT - height, 1), "height": round(height, 1)}
            for place, height in enumerate(heights)
            if height
        ]

    def __add__(self, other: "Series") -> "Series":
        pairs = zip(self.counts, other.counts, strict=True)
        return Series(tuple(one + another for one, another in pairs))


def total(series: Iterable[Series]) -> Series:
    return sum(series, Series())


def count_by_hour(
    rows: QuerySet[Any], field: str, at: datetime, *, by: str = ""
) -> dict[Any, Series]:
    """Count rows per hour of a time field, up to `at`, grouped by another field."""
    starts = [at - timedelta(hours=ago) for ago in range(1, HOURS + 1)]
    hours_ago = Case(
        *(When(**{f"{field}__gte": start}, then=Value(ago)) for ago, start in enumerate(starts))
    )
    recent = rows.filter(**{f"{field}__gte": starts[-1]}).order_by()
    groups = recent.values_list(by or Value(""), hours_ago).annotate(Count("pk"))
    counts: dict[Any, list[int]] = {}
    for key, ago, count in groups:
        counts.setdefault(key, [0] * HOURS)[HOURS - 1 - ago] += count
    return {key: Series(tuple(of_key)) for key, of_key in counts.items()}
