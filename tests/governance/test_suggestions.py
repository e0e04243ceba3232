"""What a limit would have done, and which one the calls suggest: as in a plain recount, said honestly."""

from datetime import timedelta

import pytest
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from governance import rollups, services, statistics
from governance.core.histograms import CallDurations, End
from governance.db_clock import database_now
from governance.models import PolicyChange, ToolCall, ToolPolicy
from governance.suggestions import (
    effect_text,
    is_under_the_usual,
    read_last_calls,
    round_up,
    suggest,
)
from tests.governance.test_limits_page import PAGE, posted, row_of, said

pytestmark = pytest.mark.django_db

PROBE = reverse("admin:governance_toolpolicy_tool", args=["probe"])


def durations(**spans):
    found = CallDurations()
    for end, values in spans.items():
        for value in values:
            found.add(End(end), value)
    return found


@pytest.fixture
def calls(probe, make_call):
    """A hundred calls: 90 succeeded within 9 s, 6 failed after 12 s, 4 were cut at 30 s."""
    now = database_now()
    for number in range(90):
        at = now - timedelta(hours=number)
        make_call(status="succeeded", duration_ms=(number + 1) * 100, requested_at=at)
    for number in range(6):
        at = now - timedelta(hours=number)
        make_call(status="failed", duration_ms=12_000, requested_at=at)
    for _ in range(4):
        make_call(status="timed_out", error_type="timeout", duration_ms=30_000)


def test_the_effect_is_exact_while_the_rows_are_there(calls):
    list(rollups.fill(timedelta(days=7)))
    last = read_last_calls("probe")
    assert last.is_exact
    cut = ToolCall.objects.filter(duration_ms__gte=8_500)
    succeeded = cut.filter(status="succeeded").count()
    assert effect_text(last, 8_500) == (
        f"Would have cut {cut.count()} of 100 calls of the last 7 days ({cut.count()}.0 %),"
        f" {succeeded} of which had succeeded."
    )
    assert effect_text(last, 60_000) == (
        "Would have cut 0 of 100 calls of the last 7 days (0.0 %)."
        " Of 4 that ran out of time below this limit it is unknown."
    )
    assert "Of 4 that" in effect_text(last, 0)
    assert effect_text(read_last_calls("plain"), 1_000) == "No call ran in the last 7 days."


def test_bins_count_only_beyond_the_rows(calls):
    list(rollups.fill(timedelta(days=7)))
    edge = rollups.full_hour(database_now() - timedelta(hours=20)) + timedelta(minutes=30)
    ToolCall.objects.filter(requested_at__lt=edge).delete()
    last = read_last_calls("probe")
    assert not last.is_exact
    assert last.durations.calls == 100
    assert "within a sixteenth" in effect_text(last, 5_000)
    kept = ToolCall.objects.filter(requested_at__gte=edge + timedelta(minutes=30))
    exact = set(kept.values_list("duration_ms", flat=True))
    known = {span for spans in last.durations.spans.values() for span in spans}
    assert exact <= known


def test_only_the_last_calls_are_read_of_very_many(calls, monkeypatch):
    monkeypatch.setattr(statistics, "MOST_ROWS", 30)
    list(rollups.fill(timedelta(days=7)))
    last = read_last_calls("probe")
    assert last.durations.calls == 100
    assert not last.is_exact


def test_a_suggestion_is_the_p99_with_room_and_never_under_the_slowest_success():
    calm = durations(succeeded=[1_000] * 500, failed=[4_000] * 2)
    assert suggest(calm).limit_ms == 1_500
    odd = durations(succeeded=[*[1_000] * 500, 40_000])
    assert suggest(odd).limit_ms == 45_000
    assert suggest(odd, may_cut_successes=True).limit_ms == 1_500


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ({"succeeded": [5] * 19, "stopped": [5] * 50}, "19 calls in 7 days are too few"),
        ({"succeeded": [5] * 95, "timed_out": [30_000] * 5}, "it lies among cut calls"),
        ({"succeeded": [3_000_000] * 100}, "1 h 15 min would be above the highest limit"),
    ],
)
def test_what_cannot_be_suggested_is_said(calls, words):
    found = suggest(durations(**calls))
    assert found.limit_ms is None
    assert words in found.problem


@given(st.integers(1, 10**9))
def test_a_rounded_limit_is_never_shorter_and_not_much_longer(span):
    assert span <= round_up(span)
    assert round_up(span) <= max(1_000, span * 1.7) or span > 60 * 60_000


def test_preview_says_what_a_typed_limit_would_have_done_and_saves_nothing(admin_client, calls):
    form = posted(admin_client.get(PAGE)) | {"probe-timeout_ms": "8500 ms"}
    del form["_save"]
    page = admin_client.post(PAGE, form | {"_preview": "Preview"})
    assert effect_text(read_last_calls("probe"), 8_500) in " ".join(row_of(page, "probe"))
    assert "nothing is saved yet" in page.content.decode()
    page = admin_client.post(PROBE, {"probe-timeout_ms": "8500 ms", "_preview": "Preview"})
    assert effect_text(read_last_calls("probe"), 8_500) in page.content.decode()
    assert not ToolPolicy.objects.exists()


@pytest.mark.parametrize("address", [PAGE, PROBE])
def test_the_page_asks_while_somebody_types(admin_client, calls, address):
    def told(typed):
        form = {"probe-timeout_ms": typed, "probe-tool_enabled": "on", "_tell": "probe"}
        return admin_client.post(address, form).json()["told"]

    assert told("8500 ms") == effect_text(read_last_calls("probe"), 8_500)
    assert told("85") == told("") == ""
    assert not ToolPolicy.objects.exists()


def test_a_limit_under_the_p95_is_saved_only_after_a_warning(admin_client, calls):
    list(rollups.fill(timedelta(days=7)))
    week = f"{PAGE}?span=7d"
    form = posted(admin_client.get(week)) | {"probe-timeout_ms": "2 s"}
    page = admin_client.post(week, form)
    assert row_of(page, "probe")[-4] == "12.3 s"  # the end of its bin
    assert "2 s is under the present p95 (12.3\xa0s). Would have cut" in page.content.decode()
    assert not ToolPolicy.objects.exists()
    other = posted(page) | {"probe-timeout_ms": "3 s"}  # another value: another warning
    assert "3 s is under the present p95" in admin_client.post(week, other).content.decode()
    admin_client.post(week, posted(page))
    assert ToolPolicy.objects.get().timeout_ms == 2_000


@pytest.mark.parametrize(
    ("calls", "total_ms", "is_under"),
    [
        ({"succeeded": [10_000] * 20, "stopped": [1_000] * 900}, 5_000, True),
        ({"succeeded": [1_000] * 20, "stopped": [60_000] * 900}, 20_000, False),
        ({"succeeded": [1_000] * 20}, 1_000, False),
        ({"succeeded": [1_000] * 20}, 999, True),
        ({"succeeded": [1_000] * 9, "timed_out": [30_000]}, 5_000, True),  # at least 30 s
        ({"succeeded": [1_000] * 9, "timed_out": [30_000]}, 40_000, False),
        ({"succeeded": [1_000] * 20}, 0, False),
        ({"stopped": [60_000] * 20}, 1, False),
    ],
)
def test_a_limit_is_under_the_p95_that_the_page_shows(calls, total_ms, is_under):
    assert is_under_the_usual(durations(**calls), total_ms) is is_under


def test_the_warning_goes_by_the_span_that_the_page_shows(admin_client, probe, make_call):
    now = database_now()
    for hours, span in ((0, 1_000), (48, 60_000)):
        for _ in range(20):
            at = now - timedelta(hours=hours)
            make_call(status="succeeded", duration_ms=span, requested_at=at)
    list(rollups.fill(timedelta(days=7)))
    form = {"probe-timeout_ms": "20 s", "probe-tool_enabled": "on"}
    page = admin_client.post(f"{PROBE}?span=7d", form)
    assert "20 s is under the present p95 (1\xa0min\xa01.4\xa0s)" in page.content.decode()
    admin_client.post(PROBE, form)  # of the last day the p95 is a second
    assert ToolPolicy.objects.get().timeout_ms == 20_000


def test_a_limit_below_a_second_is_saved_only_after_a_warning(admin_client, probe):
    form = posted(admin_client.get(PAGE)) | {"probe-idle_timeout_ms": "900 ms"}
    page = admin_client.post(PAGE, form)
    assert "Idle limit: 900 ms is shorter than a second" in page.content.decode()
    assert not ToolPolicy.objects.exists()
    admin_client.post(PAGE, posted(page))
    assert ToolPolicy.objects.get().idle_timeout_ms == 900


def test_suggestions_for_many_tools_are_previewed_and_then_applied(
    admin_client, calls, plain, make_call
):
    for _ in range(100):
        make_call(tool_name="plain", status="succeeded", duration_ms=2_000)
    services.save_tool_policy(tool_name="plain", values={"timeout_ms": 90_000}, by=None)
    form = posted(admin_client.get(PAGE))
    form |= {"_act": "1", "action": "suggest", "chosen": ["probe", "plain"]}
    page = admin_client.post(PAGE, form)
    assert "the p99 is unknown" in " ".join(row_of(page, "probe"))
    assert "Would have cut 0 of 100 calls" in " ".join(row_of(page, "plain"))
    fields = posted(page)
    assert (fields["plain-timeout_ms"], fields["probe-timeout_ms"]) == ("3 s", "")
    assert PolicyChange.objects.count() == 1
    told = said(admin_client.post(PAGE, fields, follow=True))
    assert ["plain: total limit: 1 min 30 s → 3 s" in line for line in told] == [True]


def test_a_suggestion_on_the_page_of_a_tool(admin_client, plain, make_call):
    for number in range(200):
        span = 50_000 if number == 7 else 2_000
        make_call(tool_name="plain", status="succeeded", duration_ms=span)
    address = reverse("admin:governance_toolpolicy_tool", args=["plain"])
    form = {"plain-tool_enabled": "on", "_suggest": "Suggest"}
    assert 'value="1 min"' in admin_client.post(address, form).content.decode()
    assert 'value="3 s"' in admin_client.post(address, form | {"tight": "1"}).content.decode()
    assert not ToolPolicy.objects.exists()
