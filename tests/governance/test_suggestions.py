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
from tests.console.test_limits_page import PAGE, posted, row_of, said

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
        f"Would have cut off {cut.count()} of 100 calls of the last 7 days ({cut.count()}.0 %),"
        f" {succeeded} of which had succeeded."
    )
    assert effect_text(last, 60_000) == (
        "Would have cut off 0 of 100 calls of the last 7 days (0.0 %)."
        " Unknown for 4 calls that timed out below this limit."
    )
    assert "Unknown for 4 calls" in effect_text(last, 0)
    assert effect_text(read_last_calls("plain"), 1_000) == "No call ran in the last 7 days."


def test_bins_count_only_beyond_the_rows(calls):
    list(rollups.fill(timedelta(days=7)))
    edge = rollups.full_hour(database_now() - timedelta(hours=20)) + timedelta(minutes=30)
    ToolCall.objects.filter(requested_at__lt=edge).delete()
    last = read_last_calls("probe")
    assert not last.is_exact
    assert last.durations.calls == 100
    assert "within 1/16" in effect_text(last, 5_000)
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
        (
            {"hint": [700] * 46, "idle": [2_000] * 3, "succeeded": [5] * 2},
            "Other calls were cut off: 3 at the idle limit, 46 at a limit that the agent requested.",
        ),
        (
            {"succeeded": [5] * 95, "timed_out": [30_000] * 5},
            "5 of 100 calls (5.0 %) were cut off. 95 % of the calls ended within 5 ms. No limit applies to them now.",
        ),
        ({"succeeded": [3_000_000] * 100}, "1 h 15 min would be above the highest limit"),
    ],
)
def test_what_cannot_be_suggested_is_said(calls, words):
    found = suggest(durations(**calls))
    assert found.limit_ms is None
    assert words in found.words


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
    assert told("85").startswith("“85” has no unit")
    assert told("99 h").startswith("Ensure") or "above" in told("99 h")
    assert told("") == ""
    assert not ToolPolicy.objects.exists()


def test_a_limit_under_the_p95_is_saved_only_after_a_warning(admin_client, calls):
    list(rollups.fill(timedelta(days=7)))
    week = f"{PAGE}?span=7d"
    form = posted(admin_client.get(week)) | {"probe-timeout_ms": "2 s"}
    page = admin_client.post(week, form)
    assert "12.3 s" in row_of(page, "probe")  # the end of its bin
    assert "2 s is below the current p95 (12.3\xa0s). Would have cut" in page.content.decode()
    assert not ToolPolicy.objects.exists()
    other = posted(page) | {"probe-timeout_ms": "3 s"}  # another value: another warning
    assert "3 s is below the current p95" in admin_client.post(week, other).content.decode()
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
    assert "20 s is below the current p95 (1\xa0min\xa01.4\xa0s)" in page.content.decode()
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
    assert "4 of 100 calls (4.0 %) were cut off" in " ".join(row_of(page, "probe"))
    assert "Would have cut off 0 of 100 calls" in " ".join(row_of(page, "plain"))
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


def test_the_warning_says_what_an_unknown_p95_is_at_least(admin_client, probe, make_call):
    for _ in range(20):
        make_call(status="timed_out", error_type="timeout", duration_ms=30_000, timeout_ms=30_000)
    page = admin_client.post(PROBE, {"probe-timeout_ms": "20 s", "probe-tool_enabled": "on"})
    assert "20 s is below the current p95 (at least 30\xa0s)" in page.content.decode()


def test_where_calls_are_cut_a_longer_limit_is_tried_for_a_day(settings):
    cut = durations(succeeded=[1_000] * 80 + [2_000] * 12, timed_out=[8_000] * 8)
    found = suggest(cut, present_ms=8_000)
    assert (found.limit_ms, found.is_trial) == (20_000, True)  # twice the limit, as people write it
    assert found.words == (
        "8 of 100 calls (8.0 %) were cut off. The current limit is 8 s. 90 % of the calls ended within 2 s."
        " Try 20 s for a day, then check again."
    )
    settings.GOVERNANCE_TIMEOUT_CEILING = 10
    assert suggest(cut, present_ms=8_000).limit_ms == 10_000
    assert suggest(cut, present_ms=10_000).limit_ms is None


@pytest.mark.parametrize(
    ("present_ms", "idle_ms", "words"),
    [
        (60_000, 4_000, "Try an idle limit of 4 s for a day, then check again."),
        (3_000, 3_000, "Try an idle limit of 3 s for a day, then check again."),
        (2_000, None, "It is as long as the total limit."),
    ],
)
def test_where_the_idle_limit_cuts_calls_a_longer_one_is_tried(present_ms, idle_ms, words):
    cut = durations(succeeded=[1_000] * 95, idle=[2_000] * 5)
    found = suggest(cut, present_ms=present_ms, present_idle_ms=2_000)
    assert (found.limit_ms, found.idle_ms, found.is_trial) == (None, idle_ms, idle_ms is not None)
    assert found.words == f"The idle limit of 2 s cut off 5 of 100 calls (5.0 %). {words}"


def test_both_limits_are_tried_where_both_cut_and_few_idle_calls_change_nothing():
    cut = durations(succeeded=[1_000] * 80, timed_out=[8_000] * 10, idle=[2_000] * 10)
    found = suggest(cut, present_ms=8_000, present_idle_ms=2_000)
    assert (found.limit_ms, found.idle_ms, found.is_trial) == (20_000, 4_000, True)
    rarely = durations(succeeded=[1_000] * 500, idle=[2_000] * 5)
    found = suggest(rarely, present_ms=3_000, present_idle_ms=2_000)
    assert (found.limit_ms, found.idle_ms) == (1_500, None)


def test_the_page_of_a_tool_fills_in_the_trial_of_an_idle_limit(admin_client, probe, make_call):
    services.save_tool_policy(tool_name="probe", values={"idle_timeout_ms": 2_000}, by=None)
    for _ in range(30):
        make_call(status="succeeded", duration_ms=1_000)
        make_call(status="timed_out", error_type="timeout", limit_reached="idle", duration_ms=2_000)
    fields = posted(admin_client.post(PROBE, posted(admin_client.get(PROBE)) | {"_suggest": "1"}))
    assert (fields["probe-idle_timeout_ms"], fields["until"]) == ("4 s", "24 h")


@pytest.mark.parametrize(
    ("present_ms", "is_left_alone"), [(0, True), (30_000, True), (3_000, False)]
)
def test_a_wide_limit_is_left_alone_unless_asked(present_ms, is_left_alone):
    calm = durations(succeeded=[1_000] * 500)
    assert suggest(calm, present_ms=present_ms).limit_ms == 1_500
    found = suggest(calm, present_ms=present_ms, may_tighten=False)
    assert (found.limit_ms is None) is is_left_alone


def test_the_page_of_a_tool_fills_in_a_trial_which_ends_by_itself(admin_client, calls):
    page = admin_client.post(PROBE, {"probe-tool_enabled": "on", "_suggest": "Suggest"})
    html = page.content.decode()
    assert posted(page)["until"] == "24 h"
    assert "Try 2 min for a day" in html
    assert "Unknown for 4 calls that timed out below this limit" in html
    form = {"probe-timeout_ms": "1 min", "probe-tool_enabled": "on", "until": "24 h"}
    admin_client.post(PROBE, form)
    stored = ToolPolicy.objects.get()
    assert stored.timeout_ms == 60_000
    left = stored.until - database_now()
    assert timedelta(hours=23) < left <= timedelta(hours=24)


def test_many_tools_get_either_trials_or_limits_for_good(admin_client, calls, plain, make_call):
    """One end is for all limits that are saved together."""
    for _ in range(100):
        make_call(tool_name="plain", status="succeeded", duration_ms=2_000)
    services.save_tool_policy(tool_name="plain", values={"timeout_ms": 30_000}, by=None)
    form = posted(admin_client.get(PAGE)) | {"_act": "1"}
    for action, filled, until in (
        ("suggest", ("", "3 s"), ""),
        ("suggest_trial", ("2 min", "30 s"), "24 h"),
    ):
        fields = posted(admin_client.post(PAGE, form | {"action": action}))
        assert (fields["probe-timeout_ms"], fields["plain-timeout_ms"]) == filled
        assert fields["until"] == until
