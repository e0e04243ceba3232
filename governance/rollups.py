"""Rolls up the durations of calls hour by hour, so that no page reads a month of calls (sync ORM).

Each hour is counted from the rows of its calls, so counting it again changes nothing. An hour of which calls were
deleted meanwhile keeps what it had. A day is the sum of its hours.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet

from governance.core.calls import OPEN_STATUSES
from governance.core.histograms import Bins, CallDurations, add_up, end_of
from governance.db_clock import database_now
from governance.models import RolledUp, ToolCall, ToolDay, ToolHour

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
FIRST = timedelta(
    hours=24
)  # how far back the first roll-up reaches; `roll_up_durations` goes further
LATE = timedelta(minutes=1)  # a row may be stored a little after the moment that it names


def full_hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


def full_day(moment: datetime) -> datetime:
    """Return the first moment of a day of UTC."""
    return full_hour(moment.astimezone(UTC)).replace(hour=0)


def roll_up() -> bool:
    """Roll up the next hour that is over, and those again of which calls were still open. Return whether there is more.

    Any number of processes may do this at once: an hour is written once.
    """
    end = full_hour(database_now() - LATE)
    state = RolledUp.objects.first()
    hour = state.until if state else end - FIRST
    if hour >= end:
        _recount_open()
        return False
    found = _count(hour)
    with transaction.atomic():
        RolledUp.objects.get_or_create(pk=1, defaults={"since": hour, "until": hour})
        state = RolledUp.objects.select_for_update().get(pk=1)
        if state.until == hour:
            _store(hour, found)
            RolledUp.objects.filter(pk=1).update(until=hour + HOUR)
    return True


def fill(span: timedelta) -> Iterator[datetime]:
    """Roll up every hour of the past again, the oldest first, and yield each when it is stored."""
    while roll_up():
        pass
    until = RolledUp.objects.get(pk=1).until
    first = hour = full_hour(until - span)
    while hour < until:
        found = _count(hour)
        with transaction.atomic():
            _store(hour, found)
        yield hour
        hour += HOUR
    RolledUp.objects.filter(pk=1, since__gt=first).update(since=first)


def calls_between(start: datetime, end: datetime | None = None) -> QuerySet[ToolCall]:
    """Return the calls that were asked for from one moment to before another."""
    calls = ToolCall.objects.filter(requested_at__gte=start).order_by()
    return calls if end is None else calls.filter(requested_at__lt=end)


def add_calls(calls: QuerySet[ToolCall], found: dict[str, CallDurations]) -> Counter[str]:
    """Count how long these calls ran, by tool; return how many of each tool have not ended."""
    still_open: Counter[str] = Counter()
    rows = calls.values_list("tool_name", "status", "error_type", "duration_ms")
    for tool_name, status, error_type, duration_ms in rows.iterator(chunk_size=2_000):
        if status in OPEN_STATUSES:
            still_open[tool_name] += 1
        elif duration_ms is not None:  # it ran, and it is known for how long
            found[tool_name].add(end_of(status, error_type), duration_ms)
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


def _store(hour: datetime, found: Iterable[ToolHour]) -> None:
    """Write what was counted, but nothing over a higher count: calls of that hour have been deleted since."""
    of_hour = ToolHour.objects.filter(hour=hour)
    known = dict(of_hour.values_list("tool_name", "calls"))
    whole = []
    for row in found:
        if row.calls >= known.get(row.tool_name, 0):
            whole.append(row)
        else:
            of_hour.filter(tool_name=row.tool_name).update(open_calls=row.open_calls)
    ToolHour.objects.bulk_create(
        whole,
        update_conflicts=True,
        unique_fields=["hour", "tool_name"],
        update_fields=["calls", "open_calls", "bins"],
    )
    _add_up_day(full_day(hour), [row.tool_name for row in whole])


def _add_up_day(day: datetime, tools: Iterable[str]) -> None:
    RolledUp.objects.select_for_update().get(pk=1)  # other hours of the day may change meanwhile
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
    """Count the hours again of which calls had not ended, each tool by itself."""
    waiting: defaultdict[datetime, list[str]] = defaultdict(list)
    rows = ToolHour.objects.filter(open_calls__gt=0).values_list("hour", "tool_name")
    for hour, tool_name in rows:
        waiting[hour].append(tool_name)
    for hour, tools in waiting.items():
        found = _count(hour, tools)
        gone = set(tools) - {row.tool_name for row in found}
        with transaction.atomic():
            _store(hour, found)
            ToolHour.objects.filter(hour=hour, tool_name__in=gone).update(open_calls=0)
