"""Reads how long the calls of tools ran in the last hour, day, week or month, from roll-ups and newer rows (sync
ORM).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.timezone import localtime

from governance.core.histograms import (
    TIMEOUTS,
    Bins,
    CallDurations,
    End,
    add_up,
    end_of,
    is_of_the_call,
)
from governance.db_clock import database_now
from governance.models import RolledUp, ToolDay, ToolHour
from governance.rollups import (
    DAY,
    FIRST,
    HOUR,
    HOW_IT_ENDED,
    add_calls,
    calls_between,
    full_day,
    full_hour,
)

MOST_ROWS = 10_000  # the most rows of one tool to read for exact durations
SPANS = {
    "1h": timedelta(hours=1),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
CUT_BY = {  # the end of a call that a limit cut → the name of that limit in metrics
    End.TIMED_OUT: "total",
    End.IDLE: "idle",
    End.HINT: "hint",
    End.MANUAL: "manual",
    End.TURN: "turn",
}


def limit_that_cut(status: str, error_type: str, timeout_source: str, limit_reached: str) -> str:
    """Return the name that metrics use for the limit that cut a call off, or an empty string if no limit did."""
    return CUT_BY.get(end_of(status, error_type, timeout_source, limit_reached), "")


def limit_origin(timeout_source: str) -> str:
    """Return "call" if a total limit was set for one call, or "policy" if it came from the tool's policy."""
    return "call" if is_of_the_call(timeout_source) else "policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The durations of calls since a time, by tool.

    `is_partial` means that the requested span starts before the first roll-up, `is_exact` that each duration comes from
    a call's row. Otherwise, the durations of past hours come from the bins of their roll-ups.
    """

    since: datetime
    is_partial: bool
    is_exact: bool
    by_tool: Mapping[str, CallDurations]

    def of(self, tool_name: str) -> CallDurations:
        return self.by_tool.get(tool_name) or CallDurations()


def read(span: timedelta, tool_name: str = "") -> Statistics:
    """Return the durations of the calls that were requested within the span, of one tool or of all.

    A span of up to an hour is exact. A longer span starts with a full hour.
    """
    now = database_now()
    range_start = now - span if span <= HOUR else full_hour(now - span)
    durations: defaultdict[str, CallDurations] = defaultdict(CallDurations)
    counted_from, rows_from, is_exact = range_start, range_start, True
    if span > HOUR:
        counted_from, rows_from = _hours(now, range_start)
        totals: defaultdict[str, Bins] = defaultdict(dict)
        for name, bins in _rolled_up(counted_from, rows_from, tool_name):
            add_up(totals[name], bins)
        for name, total in totals.items():
            durations[name].add_bins(total)
        is_exact = not durations
    calls = calls_between(rows_from)
    add_calls(calls.filter(tool_name=tool_name) if tool_name else calls, durations)
    return Statistics(
        since=counted_from,
        is_partial=counted_from > range_start,
        is_exact=is_exact,
        by_tool=dict(durations),
    )


def _rolled_up(since: datetime, until: datetime, tool_name: str) -> Iterator[tuple[str, Bins]]:
    """Yield the bins of full hours with the name of their tool: whole days in one row each, the other hours one by one."""
    first, last = full_day(since + DAY - HOUR), full_day(until)
    hours = ToolHour.objects.filter(hour__gte=since, hour__lt=until)
    parts: list[QuerySet[Any]] = [hours]
    if first < last:
        days = ToolDay.objects.filter(day__gte=first, day__lt=last)
        parts = [days, hours.filter(Q(hour__lt=first) | Q(hour__gte=last))]
    for rows in parts:
        of_tool = rows.filter(tool_name=tool_name) if tool_name else rows
        yield from of_tool.order_by().values_list("tool_name", "bins")


def _hours(now: datetime, start: datetime) -> tuple[datetime, datetime]:
    """Return the start of the statistics and of the range counted from individual rows."""
    state = RolledUp.objects.first()
    if state is None:
        first = max(start, full_hour(now - FIRST))
        return first, first
    counted_from = max(start, state.since)
    return counted_from, max(counted_from, state.until)


@dataclass(slots=True, kw_only=True)
class Day:
    """The number of calls of a tool on one day, by how they ended."""

    date: date
    calls: int = 0
    ends: Counter[End] = field(default_factory=Counter)

    @property
    def timeouts(self) -> int:
        return sum(self.ends[end] for end in TIMEOUTS)

    @property
    def not_stopped(self) -> int:
        return self.calls - self.ends[End.STOPPED] - self.ends[End.TURN]


def read_days(tool_name: str, count: int = 30) -> list[Day]:
    """Return the calls of a tool on each of the last `count` days of the current time zone, today last."""
    today = localtime(database_now()).replace(hour=0, minute=0, second=0, microsecond=0)
    first = today - timedelta(days=count - 1)
    dates = [(first + timedelta(days=number)).date() for number in range(count)]
    days = {each: Day(date=each) for each in dates}
    counted_from, rows_from = _hours(database_now(), full_hour(first.astimezone(UTC)))
    rows = _ran(tool_name, rows_from)
    hours = ToolHour.objects.filter(tool_name=tool_name, hour__gte=counted_from, hour__lt=rows_from)
    for hour, calls, bins in hours.order_by().values_list("hour", "calls", "bins"):
        of_hour = _ran(tool_name, hour, hour + HOUR) if _has_midnight(hour) else []
        if of_hour and len(of_hour) >= calls:  # none of them was deleted
            rows += of_hour
        elif (day := days.get(localtime(hour).date())) is not None:
            day.calls += calls
            day.ends.update({End(end): sum(counts.values()) for end, counts in bins.items()})
    for requested_at, *how in rows:
        if (day := days.get(localtime(requested_at).date())) is not None:
            day.calls += 1
            day.ends[end_of(*how)] += 1
    return list(days.values())


def _has_midnight(hour: datetime) -> bool:
    """Return whether a day of the current time zone ends within this UTC hour, as days in India do."""
    last = hour + HOUR - timedelta(microseconds=1)
    return localtime(hour).date() != localtime(last).date()


def _ran(
    tool_name: str, start: datetime, end: datetime | None = None
) -> list[tuple[datetime, str, str, str, str]]:
    calls = calls_between(start, end).filter(tool_name=tool_name, duration_ms__isnull=False)
    return list(calls.values_list("requested_at", *HOW_IT_ENDED))


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCalls:
    """The durations of the last calls of a tool. `is_exact` means that every duration is exact to the millisecond."""

    durations: CallDurations
    is_exact: bool


def read_last(tool_name: str, span: timedelta) -> LastCalls:
    """Return the durations of the calls in a span: exact ones from the newest rows, older ones from roll-ups."""
    first_hour = full_hour(database_now() - span)
    ran = calls_between(first_hour).filter(tool_name=tool_name, duration_ms__isnull=False)
    rows = list(
        ran.order_by("-requested_at").values_list("requested_at", "duration_ms", *HOW_IT_ENDED)[
            :MOST_ROWS
        ]
    )
    binned = _binned_hours(tool_name, first_hour, [row[0] for row in rows])
    durations = CallDurations()
    for bins in binned.values():
        durations.add_bins(bins)
    for requested_at, duration_ms, *how in rows:
        if full_hour(requested_at) not in binned:
            durations.add(end_of(*how), duration_ms or 0)
    return LastCalls(durations=durations, is_exact=not binned)


def _binned_hours(
    tool_name: str, since: datetime, requested: Sequence[datetime]
) -> dict[datetime, Bins]:
    """Return the roll-ups of the hours for which rows are missing; `requested` contains the times of the rows, newest
    first.
    """
    oldest = full_hour(requested[-1]) if requested else full_hour(database_now())
    in_oldest = sum(at < oldest + HOUR for at in requested)
    hours = ToolHour.objects.filter(tool_name=tool_name, hour__gte=since, hour__lte=oldest)
    return {
        hour: bins
        for hour, calls, bins in hours.order_by().values_list("hour", "calls", "bins")
        if calls and (hour < oldest or calls > in_oldest)
    }
