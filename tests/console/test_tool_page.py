"""The page of one tool: its figures, its slowest calls, its changes, and the way back from one of them."""

import re
from collections import Counter
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.timezone import localtime

from governance import rollups, services, statistics
from governance.db_clock import database_now
from governance.models import DefaultPolicy, PolicyChange, ToolCall, ToolPolicy
from governance.services import PolicyConflict

pytestmark = pytest.mark.usefixtures("whole_hour")

PROBE = reverse("admin:governance_toolpolicy_tool", args=["probe"])


def save(**values):
    return services.save_tool_policy(tool_name="probe", values=values, by=None)


def said(page):
    return [str(message) for message in page.context["messages"]]


def numbers(text, caption):
    """The rows of the table beside a chart."""
    [figure] = [part for part in re.findall(r"<figure.*?</figure>", text, re.S) if caption in part]
    rows = re.findall(r"<tr>(.*?)</tr>", figure, re.S)[1:]
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]


@pytest.fixture
def calls(probe, make_call):
    now = database_now()
    for second in (1, 1, 2, 2, 2, 9):
        make_call(status="succeeded", duration_ms=second * 1_000)
    make_call(status="failed", duration_ms=4_000)
    for days in (0, 0, 3):
        at = now - timedelta(days=days)
        make_call(status="timed_out", error_type="timeout", duration_ms=30_000, requested_at=at)
    make_call(status="cancelled", error_type="cancelled", duration_ms=20_000)
    make_call(tool_name="another", status="succeeded", duration_ms=77_000)


def test_the_charts_have_the_numbers_of_the_calls(admin_client, calls):
    save(timeout_ms=30_000)
    list(rollups.fill(timedelta(days=30)))
    text = admin_client.get(PROBE).content.decode()
    found = numbers(text, "Durations of calls")
    assert [sum(map(int, column)) for column in list(zip(*found, strict=True))[1:]] == [7, 2, 0]
    assert "9 calls, 2 (2 at the tool’s limit) timed out. Limit: 30 s. p95: unknown." in text
    today = localtime(database_now()).date()
    plain = Counter(
        localtime(at).date().isoformat()
        for at in ToolCall.objects.filter(error_type="timeout").values_list(
            "requested_at", flat=True
        )
    )
    by_day = {day: int(cut) for day, _calls, cut, *_by_limit in numbers(text, "Timeouts by day")}
    assert len(by_day) == 30
    assert today.isoformat() in by_day
    assert {day: cut for day, cut in by_day.items() if cut} == dict(plain)
    days = numbers(text, "Timeouts by day")
    assert sum(int(calls) for _day, calls, *_cut in days) == 10  # without the one that was stopped
    change = PolicyChange.objects.get()
    assert f'<a href="#change-{change.pk}">' in text
    assert f'id="change-{change.pk}"' in text


def default(by=None, **values):
    return services.save_default_policy(values=values, by=by)


def history(page):
    """The table of changes: for each its words, and whether it has a button to revert it."""
    table = page.content.decode()
    table = table[table.index('<table id="changes"') :]
    rows = re.findall(r'<tr id="change-(\d+)">(.*?)</tr>', table, re.S)
    return {int(number): " ".join(re.sub(r"<[^>]+>", " ", row).split()) for number, row in rows}


def marks(page):
    """The changes that have a mark in the chart of timeouts by day."""
    found = re.findall(r'<a href="#change-(\d+)">\s*<line class="mark"', page.content.decode())
    return {int(number) for number in found}


def test_changes_of_the_default_stand_where_they_changed_the_limits_of_the_tool(
    admin_client, admin_user, plain
):
    address = reverse("admin:governance_toolpolicy_tool", args=["plain"])
    followed = default(by=admin_user, timeout_ms=40_000)
    same = default(timeout_ms=40_000, note="only a note")
    own = services.save_tool_policy(tool_name="plain", values={"timeout_ms": 9_000}, by=None)
    hidden = default(timeout_ms=50_000)
    other = default(ceiling_ms=600_000)
    gone = services.delete_tool_policy(tool_name="plain", by=None)
    again = default(by=admin_user, timeout_ms=120_000)
    page = admin_client.get(address)
    shown = {own.pk, gone.pk, followed.pk, other.pk, again.pk}
    assert set(history(page)) == marks(page) == shown
    assert {same.pk, hidden.pk}.isdisjoint(shown)
    assert list(history(page)) == sorted(shown, reverse=True)
    words = history(page)[followed.pk]
    assert "Default limits : total limit: not set → 40 s boss" in words
    assert not words.endswith("Revert")  # it would change every tool
    assert history(page)[own.pk].endswith("Revert")
    link = reverse("admin:governance_policychange_change", args=[again.pk])
    assert f'<a href="{link}">Default limits</a>' in page.content.decode()
    assert "Default limits: total limit: 50 s → 2 min" in page.content.decode()  # of the mark
    assert page.content.decode().count("default limits changed") == 1
    assert admin_client.post(address, {"_revert": again.pk}).status_code == 404


def test_a_tool_with_a_limit_of_its_own_does_not_follow_the_default(client, db, probe, plain):
    """The tool `probe` declares its limit, so the default's total limit is none of its own."""
    change = default(timeout_ms=40_000)
    viewer = get_user_model().objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_toolpolicy"))
    client.force_login(viewer)
    page = client.get(PROBE)
    assert history(page) == {}
    assert marks(page) == set()
    assert "default limits changed" not in page.content.decode()
    text = client.get(PROBE.replace("probe", "plain")).content.decode()
    assert "Default limits: total limit: not set → 40 s" in text
    assert f"policychange/{change.pk}" not in text  # who may not read it there has no link


def test_the_default_is_followed_while_a_tools_row_is_out_of_force(admin_client, plain):
    services.save_tool_policy(
        tool_name="plain", values={"timeout_ms": 9_000, "is_active": False}, by=None
    )
    followed = default(timeout_ms=40_000)
    services.save_tool_policy(tool_name="plain", values={"is_active": True}, by=None)
    hidden = default(timeout_ms=50_000)
    page = admin_client.get(PROBE.replace("probe", "plain"))
    assert followed.pk in history(page)
    assert hidden.pk not in history(page)


def test_days_are_the_same_before_and_after_the_roll_up(calls):
    before = statistics.read_days("probe")[-4:]
    list(rollups.fill(timedelta(days=30)))
    assert (
        statistics.read_days("probe")[-4:-1] != before[:-1]
    )  # what was not rolled up is not known
    rolled = statistics.read_days("probe")
    ToolCall.objects.all().delete()
    assert [day.timeouts for day in rolled[-4:-1]] == [
        day.timeouts for day in statistics.read_days("probe")[-4:-1]
    ]


def test_a_day_may_begin_at_half_an_hour_of_utc(probe, make_call):
    late = {"status": "timed_out", "error_type": "timeout", "duration_ms": 30_000}
    with timezone.override("Asia/Kolkata"):
        today = localtime(database_now()).replace(hour=0, minute=0, second=0, microsecond=0)
        for minutes in (-10, 10, 20):
            midnight = today - timedelta(days=2)
            make_call(**late, requested_at=midnight + timedelta(minutes=minutes))
        list(rollups.fill(timedelta(days=30)))
        assert [day.timeouts for day in statistics.read_days("probe")[-4:]] == [1, 2, 0, 0]
        ToolCall.objects.all().delete()
        assert [day.timeouts for day in statistics.read_days("probe")[-4:]] == [3, 0, 0, 0]


def test_the_slowest_calls_come_first_and_only_to_those_who_may_see_calls(
    client, admin_client, calls
):
    text = admin_client.get(PROBE).content.decode()
    slowest = text[text.index('id="slowest"') :]
    ran = [unescape(cell) for cell in re.findall(r'<td class="number"[^>]*>([^<]+)</td>', slowest)]
    assert ran[:5:2] == ["30\xa0s", "30\xa0s", "20\xa0s"]
    viewer = get_user_model().objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_toolpolicy"))
    client.force_login(viewer)
    text = client.get(PROBE).content.decode()
    assert 'id="slowest"' not in text
    assert 'name="_save"' not in text


def test_the_limits_are_edited_on_the_page(admin_client, probe):
    form = {"probe-timeout_ms": "20 s", "probe-tool_enabled": "on", "why": "measured"}
    page = admin_client.post(PROBE, form, follow=True)
    assert ToolPolicy.objects.get().timeout_ms == 20_000
    assert "total limit: not set → 20 s" in said(page)[0]
    text = page.content.decode()
    assert "measured" in text
    assert "boss" in text
    page = admin_client.post(PROBE, form | {"probe-timeout_ms": "20", "probe-revision": "1"})
    assert "it could mean 20 ms, 20 s or 20 min" in page.content.decode()


def test_a_change_is_reverted_with_one_click(admin_client, admin_user, probe):
    save(timeout_ms=30_000)
    last = save(timeout_ms=10_000, max_running=2)
    page = admin_client.post(PROBE, {"_revert": last.pk}, follow=True)
    row = ToolPolicy.objects.get()
    assert (row.timeout_ms, row.max_running) == (30_000, None)
    change = PolicyChange.objects.first()
    assert (change.by, change.reason) == (admin_user, "Reverts version 2.")
    assert "total limit: 10 s → 30 s" in said(page)[0]


def test_a_reason_of_the_system_is_read_in_the_readers_language(admin_client, probe):
    for milliseconds in (30_000, 10_000):
        save(timeout_ms=milliseconds)
    with translation.override("de"):  # whoever reverts
        for why in ("", "Too low."):
            services.revert_change(PolicyChange.objects.first(), by=None, reason=why)
    reasons = list(PolicyChange.objects.values_list("reason", flat=True)[:2])
    assert reasons == ["Reverts version 3. Too low.", "Reverts version 2."]
    for page in (PROBE, reverse("admin:governance_policychange_changelist")):
        text = admin_client.get(page, headers={"accept-language": "de"}).content.decode()
        assert "Macht Version 3 rückgängig. Too low." in text
        assert "Macht Version 2 rückgängig.<" in text


def test_the_reverted_first_change_leaves_no_row_and_a_reverted_deletion_brings_it_back(
    admin_client, probe
):
    first = save(timeout_ms=30_000, tool_enabled=False)
    admin_client.post(PROBE, {"_revert": first.pk})
    assert not ToolPolicy.objects.exists()
    last = PolicyChange.objects.first()
    assert last.action == "delete"
    admin_client.post(PROBE, {"_revert": last.pk})
    row = ToolPolicy.objects.get()
    assert (row.timeout_ms, row.tool_enabled) == (30_000, False)


def test_a_revert_takes_the_reason_of_the_page_and_a_refused_one_loses_nothing(admin_client, probe):
    first, last = save(timeout_ms=30_000), save(timeout_ms=10_000)
    page = admin_client.get(PROBE)
    button = re.search(rf'<button[^>]*name="_revert" value="{last.pk}"', page.content.decode())
    assert 'form="governance-limits"' in button[0]  # where the reason is
    typed = {"why": "too short", "probe-timeout_ms": "75 s"}
    page = admin_client.post(PROBE, {"_revert": first.pk, **typed})
    assert "Someone else has changed" in said(page)[0]
    assert 'value="75 s"' in page.content.decode()
    assert 'value="too short"' in page.content.decode()
    admin_client.post(PROBE, {"_revert": last.pk, **typed})
    assert PolicyChange.objects.first().why.endswith("too short")
    assert ToolPolicy.objects.get().timeout_ms == 30_000


def test_a_change_of_another_field_than_the_last_one_is_reverted(admin_client, probe):
    first = save(timeout_ms=30_000, max_running=3)
    save(idle_timeout_ms=10_000)
    admin_client.post(PROBE, {"_revert": first.pk})
    row = ToolPolicy.objects.get()
    assert (row.timeout_ms, row.max_running, row.idle_timeout_ms) == (None, None, 10_000)


def test_a_change_of_the_default_limits_is_reverted(admin_user):
    change = services.save_default_policy(values={"timeout_ms": 5_000}, by=None)
    services.revert_change(change, by=admin_user)
    assert DefaultPolicy.objects.get().timeout_ms is None
    with pytest.raises(PolicyConflict):
        services.revert_change(change, by=admin_user)


def test_who_may_not_edit_has_no_button_that_reverts(client, db, probe):
    save(timeout_ms=30_000)
    viewer = get_user_model().objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_toolpolicy"))
    client.force_login(viewer)
    assert "Revert" not in client.get(PROBE).content.decode()


def test_a_name_that_no_tool_ever_had_is_not_found(admin_client, db):
    for name in ("nothing", "a/b", "<script>"):
        address = reverse("admin:governance_toolpolicy_tool", args=[name])
        assert admin_client.get(address).status_code == 404
    change = reverse("admin:governance_toolpolicy_tool", args=["probe"])
    assert admin_client.post(change, {"_revert": "1"}).status_code == 404
