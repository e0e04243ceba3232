"""How long the calls of tools ran in the last hour, day, week or month. Read from roll-ups and the rows beyond them (sync ORM)."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.timezone import localtime

from governance.core.histograms import Bins, CallDurations, End, add_up, end_of
from governance.db_clock import database_now
from governance.models import RolledUp, ToolDay, ToolHour
from governance.rollups import DAY, FIRST, HOUR, add_calls, calls_between, full_day, full_hour

MOST_ROWS = 10_000  # of one tool that are read to be exact
SPANS = {
    "1h": timedelta(hours=1),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The durations by tool since a moment. `is_partial`: the time before it is not rolled up, and was asked for too.

    `is_exact`: each duration is that of a call's row. Else past hours count by the bins of their roll-ups.
    """

    since: datetime
    is_partial: bool
    is_exact: bool
    by_tool: Mapping[str, CallDurations]

    def of(self, tool_name: str) -> CallDurations:
        return self.by_tool.get(tool_name) or CallDurations()


def read(span: timedelta, tool_name: str = "") -> Statistics:
    """Return the durations of the calls that were asked for within the span, of one tool or of all.

    The last hour is exact. A longer span begins with a full hour.
    """
    now = database_now()
    asked = now - span if span <= HOUR else full_hour(now - span)
    found: defaultdict[str, CallDurations] = defaultdict(CallDurations)
    since, rows_from, is_exact = asked, asked, True
    if span > HOUR:
        since, rows_from = _hours(now, asked)
        totals: defaultdict[str, Bins] = defaultdict(dict)
        for name, bins in _rolled_up(since, rows_from, tool_name):
            add_up(totals[name], bins)
        for name, total in totals.items():
            found[name].add_bins(total)
        is_exact = not found
    calls = calls_between(rows_from)
    add_calls(calls.filter(tool_name=tool_name) if tool_name else calls, found)
    return Statistics(since=since, is_partial=since > asked, is_exact=is_exact, by_tool=dict(found))


def _rolled_up(since: datetime, until: datetime, tool_name: str) -> Iterator[tuple[str, Bins]]:
    """Return the bins of full hours by tool: of whole days at once, of the hours before and after them one by one."""
    first, last = full_day(since + DAY - HOUR), full_day(until)
    hours = ToolHour.objects.filter(hour__gte=since, hour__lt=until)
    parts: list[QuerySet[Any]] = [hours]
    if first < last:
        days = ToolDay.objects.filter(day__gte=first, day__lt=last)
        parts = [days, hours.filter(Q(hour__lt=first) | Q(hour__gte=last))]
    for rows in parts:
        of_tool = rows.filter(tool_name=tool_name) if tool_name else rows
        yield from of_tool.order_by().values_list("tool_name", "bins")


def _hours(now: datetime, asked: datetime) -> tuple[datetime, datetime]:
    """Return since when calls are counted, and from when on by their rows."""
    state = RolledUp.objects.first()
    if state is None:
        first = max(asked, full_hour(now - FIRST))
        return first, first
    since = max(asked, state.since)
    return since, max(since, state.until)


@dataclass(slots=True, kw_only=True)
class Day:
    """How many calls of a tool ran on a day, and how many of them ran out of time."""

    date: date
    calls: int = 0
    timeouts: int = 0


def read_days(tool_name: str, count: int = 30) -> list[Day]:
    """Return the last days of a tool in the current time zone, today last."""
    today = localtime(database_now()).replace(hour=0, minute=0, second=0, microsecond=0)
    first = today - timedelta(days=count - 1)
    dates = [(first + timedelta(days=number)).date() for number in range(count)]
    days = {each: Day(date=each) for each in dates}
    since, rows_from = _hours(database_now(), full_hour(first.astimezone(UTC)))
    rows = _ran(tool_name, rows_from)
    hours = ToolHour.objects.filter(tool_name=tool_name, hour__gte=since, hour__lt=rows_from)
    for hour, calls, bins in hours.order_by().values_list("hour", "calls", "bins"):
        of_hour = _ran(tool_name, hour, hour + HOUR) if _has_midnight(hour) else []
        if of_hour and len(of_hour) >= calls:  # none of them was deleted
            rows += of_hour
        elif (day := days.get(localtime(hour).date())) is not None:
            day.calls += calls
            day.timeouts += sum(bins.get(End.TIMED_OUT, {}).values())
    for requested_at, status, error_type in rows:
        if (day := days.get(localtime(requested_at).date())) is not None:
            day.calls += 1
            day.timeouts += end_of(status, error_type) is End.TIMED_OUT
    return list(days.values())


def _has_midnight(hour: datetime) -> bool:
    """Whether a day of the current time zone ends within an hour of UTC, as days do in India."""
    last = hour + HOUR - timedelta(microseconds=1)
    return localtime(hour).date() != localtime(last).date()


def _ran(
    tool_name: str, start: datetime, end: datetime | None = None
) -> list[tuple[datetime, str, str]]:
    calls = calls_between(start, end).filter(tool_name=tool_name, duration_ms__isnull=False)
    return list(calls.values_list("requested_at", "status", "error_type"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCalls:
    """How long the last calls of a tool ran; `is_exact` = each to the millisecond."""

    durations: CallDurations
    is_exact: bool


def read_last(tool_name: str, span: timedelta) -> LastCalls:
    """Return the calls of a span: exact from rows, as far as these reach; beyond them from roll-ups."""
    since = full_hour(database_now() - span)
    ran = calls_between(since).filter(tool_name=tool_name, duration_ms__isnull=False)
    rows = list(
        ran.order_by("-requested_at").values_list(
            "requested_at", "status", "error_type", "duration_ms"
        )[:MOST_ROWS]
    )
    binned = _binned_hours(tool_name, since, [row[0] for row in rows])
    durations = CallDurations()
    for bins in binned.values():
        durations.add_bins(bins)
    for requested_at, status, error_type, duration_ms in rows:
        if full_hour(requested_at) not in binned:
            durations.add(end_of(status, error_type), duration_ms or 0)
    return LastCalls(durations=durations, is_exact=not binned)


def _binned_hours(
    tool_name: str, since: datetime, requested: Sequence[datetime]
) -> dict[datetime, Bins]:
    """Return the roll-ups of the hours that the rows, newest first, do not reach or not wholly."""
    oldest = full_hour(requested[-1]) if requested else full_hour(database_now())
    in_oldest = sum(at < oldest + HOUR for at in requested)
    hours = ToolHour.objects.filter(tool_name=tool_name, hour__gte=since, hour__lte=oldest)
    return {
        hour: bins
        for hour, calls, bins in hours.order_by().values_list("hour", "calls", "bins")
        if calls and (hour < oldest or calls > in_oldest)
    }
