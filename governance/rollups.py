"""Rolls up the durations of calls hour by hour, so that no page reads a month of calls (sync ORM).

Each hour is counted from the rows of its calls, so counting it again changes nothing. An hour whose calls have been
deleted keeps its counts. A day is the sum of its hours.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from django.db.models import QuerySet

from governance.core.calls import OPEN_STATUSES
from governance.core.histograms import Bins, CallDurations, add_up, end_of
from governance.db import atomic
from governance.db_clock import database_now
from governance.models import RolledUp, ToolCall, ToolDay, ToolHour

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
# How far back the first roll-up goes; the command `roll_up_durations` goes back further.
FIRST = timedelta(hours=24)
HOW_IT_ENDED = ("status", "error_type", "timeout_source", "limit_reached")
LATE = timedelta(minutes=1)  # a row may be stored shortly after its `requested_at`


def full_hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


def full_day(moment: datetime) -> datetime:
    """Return the start of the UTC day."""
    return full_hour(moment.astimezone(UTC)).replace(hour=0)


def roll_up() -> bool:
    """Roll up the next full hour, or else recount the hours that had open calls. Return whether there may be more hours
    to roll up.

    Several processes may do this concurrently, because each hour is written once.
    """
    end = full_hour(database_now() - LATE)
    state = RolledUp.objects.first()
    hour = state.until if state else end - FIRST
    if hour >= end:
        _recount_open()
        return False
    rows = _count(hour)
    with atomic():
        RolledUp.objects.get_or_create(pk=1, defaults={"since": hour, "until": hour})
        state = RolledUp.objects.select_for_update().get(pk=1)
        if state.until == hour:
            _store(hour, rows)
            RolledUp.objects.filter(pk=1).update(until=hour + HOUR)
    return True


def fill(span: timedelta) -> Iterator[datetime]:
    """Roll up every hour within the last `span` again, the oldest first, and yield each when it is stored."""
    while roll_up():
        pass
    fill_end = RolledUp.objects.get(pk=1).until
    first = hour = full_hour(fill_end - span)
    while hour < fill_end:
        rows = _count(hour)
        with atomic():
            _store(hour, rows)
        yield hour
        hour += HOUR
    RolledUp.objects.filter(pk=1, since__gt=first).update(since=first)


def calls_between(start: datetime, end: datetime | None = None) -> QuerySet[ToolCall]:
    """Return the calls requested from `start` up to, but not including, `end`."""
    calls = ToolCall.objects.filter(requested_at__gte=start).order_by()
    return calls if end is None else calls.filter(requested_at__lt=end)


def add_calls(calls: QuerySet[ToolCall], durations: dict[str, CallDurations]) -> Counter[str]:
    """Add the durations of these calls, by tool. Return how many calls of each tool have not ended."""
    still_open: Counter[str] = Counter()
    rows = calls.values_list("tool_name", "duration_ms", *HOW_IT_ENDED)
    for tool_name, duration_ms, status, *why in rows.iterator(chunk_size=2_000):
        if status in OPEN_STATUSES:
            still_open[tool_name] += 1
        elif duration_ms is not None:  # it ran, and its duration is known
            durations[tool_name].add(end_of(status, *why), duration_ms)
    return still_open


def _count(hour: datetime, tools: Iterable[str] | None = None) -> list[ToolHour]:
    calls = calls_between(hour, hour + HOUR)
    if tools is not None:
        calls = calls.filter(tool_name__in=list(tools))
    durations: defaultdict[str, CallDurations] = defaultdict(CallDurations)
    still_open = add_calls(calls, durations)
    return [
        ToolHour(
            hour=hour,
            tool_name=name,
            calls=durations[name].calls,
            open_calls=still_open[name],
            bins=durations[name].as_bins(),
        )
        for name in sorted(durations.keys() | still_open.keys())
    ]


def _store(hour: datetime, rows: Iterable[ToolHour]) -> None:
    """Store the counts, except where the stored count is higher because calls of that hour were deleted."""
    of_hour = ToolHour.objects.filter(hour=hour)
    stored_counts = dict(of_hour.values_list("tool_name", "calls"))
    complete = []
    for row in rows:
        if row.calls >= stored_counts.get(row.tool_name, 0):
            complete.append(row)
        else:
            of_hour.filter(tool_name=row.tool_name).update(open_calls=row.open_calls)
    ToolHour.objects.bulk_create(
        complete,
        update_conflicts=True,
        unique_fields=["hour", "tool_name"],
        update_fields=["calls", "open_calls", "bins"],
    )
    _add_up_day(full_day(hour), [row.tool_name for row in complete])


def _add_up_day(day: datetime, tools: Iterable[str]) -> None:
    # Locked, because other processes may change other hours of the day.
    RolledUp.objects.select_for_update().get(pk=1)
    hours = ToolHour.objects.filter(hour__gte=day, hour__lt=day + DAY, tool_name__in=tools)
    totals: defaultdict[str, Bins] = defaultdict(dict)
    for name, bins in hours.order_by().values_list("tool_name", "bins"):
        add_up(totals[name], bins)
    ToolDay.objects.bulk_create(
        [ToolDay(day=day, tool_name=name, bins=total) for name, total in totals.items()],
        update_conflicts=True,
        unique_fields=["day", "tool_name"],
        update_fields=["bins"],
    )


def _recount_open() -> None:
    """Recount the hours with open calls, separately for each tool."""
    tools_by_hour: defaultdict[datetime, list[str]] = defaultdict(list)
    rows = ToolHour.objects.filter(open_calls__gt=0).values_list("hour", "tool_name")
    for hour, tool_name in rows:
        tools_by_hour[hour].append(tool_name)
    for hour, tools in tools_by_hour.items():
        counted_rows = _count(hour, tools)
        vanished_tools = set(tools) - {row.tool_name for row in counted_rows}
        with atomic():
            _store(hour, counted_rows)
            ToolHour.objects.filter(hour=hour, tool_name__in=vanished_tools).update(open_calls=0)
