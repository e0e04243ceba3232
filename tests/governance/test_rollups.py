"""Durations by tool and hour: the figures of a recount of the calls, and longer than the calls live."""

import random
from collections import defaultdict
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from governance import rollups, statistics
from governance.core.histograms import CallDurations, End, bin_of, end_of
from governance.db_clock import database_now
from governance.models import RolledUp, ToolCall, ToolDay, ToolHour
from governance.statistics import SPANS

pytestmark = pytest.mark.django_db

ENDINGS = (  # status, error type, limit that ran out
    ("succeeded", "", ""),
    ("succeeded", "", ""),
    ("failed", "execution_error", ""),
    ("timed_out", "timeout", "total"),
    ("timed_out", "timeout", "idle"),
    ("abandoned", "timeout", "total"),
    ("cancelled", "cancelled", ""),
    ("cancelled", "cancelled", "turn"),
)
SOURCES = ("tool", "override", "built_in", "hint", "argument", "manual")
ASKED = ("hint", "argument")
NEVER_RAN = ("denied", "not_started", "repaired")


@pytest.fixture
def past(make_call):
    """Calls of three tools over four days, of every ending."""
    chance, now = random.Random(7), database_now()
    for _ in range(300):
        status, error_type, limit_reached = chance.choice(ENDINGS)
        make_call(
            tool_name=chance.choice(("probe", "web_fetch", "gone")),
            status=status,
            error_type=error_type,
            limit_reached=limit_reached,
            timeout_source=chance.choice(SOURCES),
            duration_ms=round(chance.lognormvariate(7, 2)),
            requested_at=now - timedelta(minutes=chance.randrange(4 * 24 * 60)),
        )
    for status in NEVER_RAN:
        make_call(status=status, duration_ms=None, requested_at=now - timedelta(hours=5))


def all_rolled_up():
    while rollups.roll_up():
        pass


def recounted(since):
    """The plain way: every row of the span."""
    found = defaultdict(CallDurations)
    for row in ToolCall.objects.filter(requested_at__gte=since, duration_ms__isnull=False):
        end = end_of(row.status, row.error_type, row.timeout_source, row.limit_reached)
        found[row.tool_name].add(end, row.duration_ms)
    return found


def figures(durations):
    shares = [durations.percentile(share) for share in (50, 95, 99)]
    bins = [None if share is None else bin_of(share) for share in shares]
    return durations.calls, durations.timeouts, bins, durations.as_bins()


@pytest.mark.parametrize("span", SPANS)
def test_the_figures_of_a_span_are_those_of_its_calls(past, span):
    call_command("roll_up_durations", days=30, stdout=StringIO())
    found = statistics.read(SPANS[span])
    plain = recounted(found.since)
    assert found.by_tool.keys() == plain.keys()
    assert not found.is_partial
    for name, durations in plain.items():
        assert figures(found.of(name)) == figures(durations)
        assert figures(statistics.read(SPANS[span], name).of(name)) == figures(durations)
    assert figures(found.of("nothing")) == figures(CallDurations())


@pytest.mark.parametrize("is_rolled_up", [False, True])
def test_timeouts_are_counted_by_the_limit_that_fired(past, is_rolled_up):
    if is_rolled_up:
        call_command("roll_up_durations", days=30, stdout=StringIO())
    found = statistics.read(SPANS["7d"], "probe")
    ran = ToolCall.objects.filter(
        tool_name="probe", duration_ms__isnull=False, requested_at__gte=found.since
    )
    timeouts = ran.filter(error_type="timeout")
    total = timeouts.filter(limit_reached="total")
    durations = found.of("probe")
    plain = {
        End.TIMED_OUT: total.exclude(timeout_source__in=(*ASKED, "manual")),
        End.HINT: total.filter(timeout_source__in=ASKED),
        End.MANUAL: total.filter(timeout_source="manual"),
        End.IDLE: timeouts.filter(limit_reached="idle"),
        End.TURN: ran.filter(limit_reached="turn"),
    }
    assert {end: durations.count(end) for end in plain} == {
        end: rows.count() for end, rows in plain.items()
    }
    assert min(rows.count() for rows in plain.values()) > 0
    assert durations.timeouts == timeouts.count()
    assert durations.not_stopped == ran.exclude(status="cancelled").count()
    own = ran.filter(timeout_source__in=("tool", "override", "built_in"))
    governed = own.exclude(status="cancelled").exclude(limit_reached="idle")
    assert durations.judged == governed.count()


def test_a_month_is_read_by_whole_days(past):
    call_command("roll_up_durations", days=30, stdout=StringIO())
    before = {name: figures(of) for name, of in statistics.read(SPANS["30d"]).by_tool.items()}
    today = rollups.full_day(database_now())
    ToolHour.objects.filter(hour__gte=today - 3 * rollups.DAY, hour__lt=today).delete()
    after = {name: figures(of) for name, of in statistics.read(SPANS["30d"]).by_tool.items()}
    assert after == before
    assert figures(statistics.read(SPANS["7d"], "probe").of("probe")) == before["probe"]


def days_by_hours():
    """What the days have to be, by the rows of their hours."""
    found = defaultdict(CallDurations)
    for row in ToolHour.objects.all():
        found[rollups.full_day(row.hour), row.tool_name].add_bins(row.bins)
    return {key: of.as_bins() for key, of in found.items() if of.calls}


def days():
    return {(row.day, row.tool_name): row.bins for row in ToolDay.objects.all() if row.bins}


def test_a_day_is_the_sum_of_its_hours_whatever_happens_to_them(past, make_call):
    row = make_call(status="running", requested_at=database_now() - timedelta(hours=30))
    call_command("roll_up_durations", days=3, stdout=StringIO())
    assert days() == days_by_hours()
    known = days()
    ToolCall.objects.filter(pk=row.pk).update(status="succeeded", duration_ms=70)
    all_rolled_up()
    assert days() == days_by_hours() != known
    call_command("roll_up_durations", days=30, stdout=StringIO())
    assert days() == days_by_hours()
    known = days()
    ToolCall.objects.filter(pk__gt=row.pk - 100).delete()
    call_command("roll_up_durations", days=30, stdout=StringIO())
    assert days() == days_by_hours() == known


def test_what_is_rolled_up_again_is_the_same(past):
    all_rolled_up()
    rows = list(ToolHour.objects.values())
    assert rows
    all_rolled_up()
    call_command("roll_up_durations", days=0.5, stdout=StringIO())
    assert list(ToolHour.objects.values()) == rows


def test_without_a_roll_up_and_while_it_is_behind_rows_are_counted(past):
    found = statistics.read(SPANS["24h"])
    assert figures(found.of("probe")) == figures(recounted(found.since)["probe"])
    rollups.roll_up()
    found = statistics.read(SPANS["24h"])
    assert figures(found.of("probe")) == figures(recounted(found.since)["probe"])


def test_a_span_that_is_not_rolled_up_says_since_when_it_counts(past):
    all_rolled_up()
    found = statistics.read(SPANS["7d"])
    assert found.is_partial
    assert found.since == RolledUp.objects.get().since
    assert figures(found.of("probe")) == figures(recounted(found.since)["probe"])


def test_a_call_that_ends_after_its_hour_was_counted_is_counted_then(make_call):
    asked = database_now() - timedelta(hours=3)
    make_call(status="succeeded", duration_ms=10, requested_at=asked)
    row = make_call(status="awaiting_approval", requested_at=asked)
    all_rolled_up()
    assert statistics.read(SPANS["24h"]).of("probe").calls == 1
    ToolCall.objects.filter(pk=row.pk).update(status="succeeded", duration_ms=70)
    all_rolled_up()
    assert statistics.read(SPANS["24h"]).of("probe").slowest_success == 71  # the longest of its bin
    assert not ToolHour.objects.filter(open_calls__gt=0).exists()


def test_durations_outlive_their_calls(past, make_call):
    make_call(status="running", requested_at=database_now() - timedelta(hours=3))
    call_command("roll_up_durations", stdout=StringIO())
    before = {name: figures(of) for name, of in statistics.read(SPANS["7d"]).by_tool.items()}
    ToolCall.objects.filter(requested_at__lt=RolledUp.objects.get().until).delete()
    all_rolled_up()
    call_command("roll_up_durations", stdout=StringIO())
    after = {name: figures(of) for name, of in statistics.read(SPANS["7d"]).by_tool.items()}
    assert after == before
    assert not ToolHour.objects.filter(open_calls__gt=0).exists()


@pytest.mark.parametrize("past_the_hour", ["00:20", "01:20", "30:00", "59:59"])
def test_the_command_rolls_up_as_many_hours_as_asked_at_any_minute(monkeypatch, past_the_hour):
    minutes, seconds = map(int, past_the_hour.split(":"))
    now = rollups.full_hour(database_now()) + timedelta(minutes=minutes, seconds=seconds)
    monkeypatch.setattr(rollups, "database_now", lambda: now)
    said = StringIO()
    call_command("roll_up_durations", days=2, stdout=said)
    assert "24 hours." in said.getvalue()
    assert "Rolled up: 48 hours." in said.getvalue()


def test_the_command_refuses_nonsense():
    with pytest.raises(CommandError, match="above 0"):
        call_command("roll_up_durations", days=0)
