"""The page of limits. Every tool is a row, its figures are those of its calls, and edits never overwrite each other."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from governance import make_tool, registry, rollups, services
from governance.db_clock import database_now
from governance.models import DefaultPolicy, PolicyChange, ToolCall, ToolPolicy

PAGE = reverse("admin:governance_toolpolicy_changelist")


def posted(page):
    """The fields of the page's form as a browser would send them back."""
    text = page.content.decode()
    form = text[text.index('id="governance-limits"') :]
    fields = {}
    for tag in re.findall(r"<input[^>]*>", form):
        name = re.search(r'name="([^"]+)"', tag)
        if name is None or 'type="submit"' in tag or name[1] == "chosen":
            continue
        value = re.search(r'value="([^"]*)"', tag)
        if 'type="checkbox"' not in tag:
            fields[name[1]] = unescape(value[1]) if value else ""
        elif " checked" in tag:
            fields[name[1]] = value[1] if value else "on"
    for name, options in re.findall(r'<select name="([^"]+)".*?>(.*?)</select>', form, re.S):
        chosen = re.search(r'value="([^"]*)" selected', options)
        fields[name] = chosen[1] if chosen else ""
    assert "probe-revision" in fields
    return fields | {"_save": "Save"}


def said(page):
    return [str(message) for message in page.context["messages"]]


def row_of(page, tool):
    """The cells of a tool's row as text, and last what is below it."""
    rows = r"<tr>((?:(?!<tr).)*)</tr>\s*<tr class=\"console-detail\">(.*?)</tr>"
    for row in map("".join, re.findall(rows, page.content.decode(), re.S)):
        cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)
        texts = [
            " ".join(unescape(re.sub(r"<[^>]+>", " ", cell)).replace("\xa0", " ").split())
            for cell in cells
        ]
        if tool in texts[:2] or any(text.startswith(f"{tool} ") for text in texts[:2]):
            return texts
    raise AssertionError(f"no row of {tool}")


def test_every_tool_is_a_row_with_what_is_in_force_and_no_row_is_stored(
    admin_client, policy, plain
):
    page = admin_client.get(PAGE)
    assert "30 s (from: admin limit for this tool)" in " ".join(row_of(page, "probe"))
    assert "2 min (from: built in)" in " ".join(row_of(page, "plain"))
    assert ToolPolicy.objects.count() == 1
    services.save_tool_policy(tool_name="probe", values={"tool_enabled": False}, by=None)
    assert "disabled" in " ".join(row_of(admin_client.get(PAGE), "probe"))


def test_the_permission_that_a_tool_demands_stands_with_it(admin_client):
    registry.register(
        make_tool(lambda: None, name="odd", description="odd", permission="auth.add_group")
    )
    try:
        page = admin_client.get(PAGE)
    finally:
        registry.unregister("odd")
    assert "needs the permission auth.add_group" in " ".join(row_of(page, "odd"))


def test_what_a_tool_inherits_stands_under_its_fields_with_its_source(client, admin_user, policy):
    """The fields are empty where the tool has no limit of its own: what counts then is said below them."""
    default = {"idle_timeout_ms": 20_000, "approval": "always"}
    services.save_default_policy(values=default, by=None)
    services.save_tool_policy(tool_name="probe", values={"max_running": 3}, by=None)
    viewer = get_user_model().objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_toolpolicy"))
    for user, place in ((admin_user, 1), (viewer, 0)):  # who may edit has a column of ticks
        client.force_login(user)
        _name, limit, *_, below = row_of(client.get(PAGE), "probe")[place:]
        assert "idle 20 s (from: admin default)" in limit
        for words in ("20 s (from: admin default)", "1 h (from: this site’s setting)"):
            assert words in below
        assert "always (from: admin default)" in below
        assert "no limit" not in below  # of its concurrent calls: that limit is its own
    services.save_tool_policy(tool_name="probe", values={"is_active": False}, by=None)
    assert "3 no limit (from: built in)" in row_of(client.get(PAGE), "probe")[-1]  # its row is off
    client.force_login(admin_user)
    page = client.get(reverse("admin:governance_toolpolicy_tool", args=["probe"]))
    assert "1 h (from: this site’s setting)" in page.content.decode()
    page = client.get(reverse("admin:governance_toolpolicy_change", args=[policy.pk]))
    assert "approval limit: 10 min (from: this site’s setting)" in page.content.decode()


def test_a_tool_that_follows_the_default_says_who_changed_that_last(
    admin_client, admin_user, policy, plain
):
    words = "default limits changed"
    assert words not in admin_client.get(PAGE).content.decode()
    services.save_default_policy(values={"timeout_ms": 40_000}, by=admin_user)
    page = admin_client.get(PAGE)
    assert re.search(f"{words}.*, boss", row_of(page, "plain")[-1])
    assert words not in row_of(page, "probe")[-1]  # it has its own
    services.save_default_policy(values={"ceiling_ms": 600_000}, by=None)
    assert words in row_of(admin_client.get(PAGE), "probe")[-1]  # its ceiling follows


def test_a_tool_that_is_gone_keeps_its_row(admin_client, probe):
    ToolPolicy.objects.create(tool_name="gone", timeout_ms=1_000)
    assert "not installed" in " ".join(row_of(admin_client.get(PAGE), "gone"))


def test_the_figures_are_those_of_the_calls(admin_client, policy, make_call):
    now = database_now()
    for second in range(1, 99):
        make_call(
            status="succeeded",
            duration_ms=second * 100,
            requested_at=now - timedelta(minutes=second / 2),
        )
    for _ in range(2):
        make_call(status="timed_out", error_type="timeout", duration_ms=30_000)
    make_call(status="denied")
    make_call(
        status="succeeded", duration_ms=900_000, requested_at=now - timedelta(minutes=61)
    )  # before the last hour
    cells = row_of(admin_client.get(PAGE, {"span": "1h"}), "probe")
    assert cells[3:8] == ["9.5 s", "32 %", "3.2 ×", "2 of 100 (2.0 %) 2 at the tool’s limit", "100"]
    assert row_of(admin_client.get(PAGE, {"span": "24h"}), "probe")[7] == "101"
    tool = admin_client.get(reverse("admin:governance_toolpolicy_tool", args=["probe"]))
    shares = dict(tool.context["row"].shares)
    assert shares["p50"].replace("\xa0", " ") == "5.1 s"  # of the whole day: one call more
    assert shares["p99"] == "unknown"


def test_a_limit_is_judged_by_the_calls_that_it_governed(admin_client, policy, make_call):
    """The agent's own hints and idle limits cut calls long before the limit of the tool."""
    for number in range(60):
        make_call(status="succeeded", duration_ms=1_000, timeout_source="tool")
        make_call(status="cancelled", error_type="cancelled", duration_ms=20_000)
        if number % 3 == 0:
            cut = {"status": "timed_out", "error_type": "timeout", "timeout_ms": 700}
            make_call(**cut, timeout_source="hint", limit_reached="total", duration_ms=700)
    idle = {"status": "abandoned", "error_type": "timeout", "limit_reached": "idle"}
    make_call(**idle, timeout_source="tool", duration_ms=2_000)
    make_call(status="cancelled", error_type="cancelled", limit_reached="turn", duration_ms=25_000)
    for _again in range(2):  # from the rows, then from the roll-ups
        page = admin_client.get(PAGE, {"span": "24h"})
        *_, p95, _bar, headroom, timeouts, calls, _edit, _below = row_of(page, "probe")
        assert (calls, p95) == ("142", "1 s")
        assert timeouts == (
            "21 of 81 (25.9 %) 1 at the idle limit, 20 at a limit that the agent requested,"
            " 1 at the turn’s limit"
        )
        assert headroom in ("30 ×, wide", "29 ×, wide")  # to the end of the bin
        assert not next(row for row in page.context["rows"] if row.name == "probe").is_near_limit
        ToolCall.objects.update(requested_at=database_now() - timedelta(hours=2))
        list(rollups.fill(timedelta(days=1)))


def test_figures_say_whether_they_are_exact_or_from_roll_ups(admin_client, policy, make_call):
    tool = reverse("admin:governance_toolpolicy_tool", args=["probe"])
    exact, binned = "These figures are exact", "read from hourly summaries"
    long_ago = database_now() - timedelta(hours=3)
    make_call(status="succeeded", duration_ms=1_000, requested_at=long_ago)

    def told(address, span):
        text = admin_client.get(address, {"span": span}).content.decode()
        assert (exact in text) != (binned in text)
        return exact in text

    for address in (PAGE, tool):
        assert all(told(address, span) for span in ("1h", "24h", "7d", "30d"))  # of rows so far
    list(rollups.fill(timedelta(days=30)))
    for address in (PAGE, tool):
        assert [told(address, span) for span in ("1h", "24h", "7d", "30d")] == [True] + 3 * [False]
    p95 = row_of(admin_client.get(PAGE, {"span": "7d"}), "probe")[3]
    assert p95 == "1 s"  # the longest of its bin, in tenths of seconds


def test_rows_are_chosen_and_ordered(admin_client, policy, plain, make_call):
    make_call(status="timed_out", error_type="timeout", duration_ms=1_000)

    def shown(**query):
        page = admin_client.get(PAGE, query)
        return [row.name for row in page.context["rows"]]

    assert {"probe", "plain"} <= set(shown())
    assert shown(q="PROB") == ["probe"]
    assert shown(show="own") == ["probe"]
    assert shown(show="timeouts") == ["probe"]
    assert shown(o="timeouts")[0] == "probe"
    assert "No tools match" in admin_client.get(PAGE, {"q": "zzz"}).content.decode()
    assert shown(span="nonsense", show="nonsense", o="nonsense", p="nonsense") == shown()


def test_a_tool_without_limits_gets_them_in_place(admin_client, admin_user, probe):
    form = posted(admin_client.get(PAGE)) | {"probe-timeout_ms": "75 s", "why": "slow site"}
    page = admin_client.post(PAGE, form, follow=True)
    change = PolicyChange.objects.get()
    assert (change.tool_name, change.changes) == ("probe", {"timeout_ms": [None, 75_000]})
    assert (change.action, change.by, change.reason) == ("add", admin_user, "slow site")
    assert any("total limit: not set → 1 min 15 s" in line for line in said(page))
    assert ToolPolicy.objects.get().revision == 1


def test_every_limit_of_a_row_is_edited_in_place(admin_client, policy):
    values = {
        "probe-timeout_ms": "1 min",
        "probe-idle_timeout_ms": "20 s",
        "probe-ceiling_ms": "5 min",
        "probe-max_running": "3",
        "probe-approval": "always",
    }
    form = posted(admin_client.get(PAGE)) | values
    del form["probe-tool_enabled"]
    admin_client.post(PAGE, form)
    policy.refresh_from_db()
    assert (policy.timeout_ms, policy.idle_timeout_ms, policy.ceiling_ms) == (
        60_000,
        20_000,
        300_000,
    )
    assert (policy.max_running, policy.approval, policy.tool_enabled) == (3, "always", False)
    assert PolicyChange.objects.count() == 2


def test_a_bad_value_is_an_error_in_words_and_nothing_is_saved(admin_client, policy, plain):
    form = posted(admin_client.get(PAGE)) | {"plain-timeout_ms": "5 s"}
    for value, words in (("75 s", "would never be reached"), ("75", "has no unit")):
        page = admin_client.post(PAGE, form | {"probe-idle_timeout_ms": value})
        assert words in page.content.decode()
        assert "Nothing was saved" in page.content.decode()
    assert ToolPolicy.objects.get().idle_timeout_ms is None


def test_a_row_that_nobody_touched_never_overwrites_a_newer_edit(admin_client, policy, plain):
    form = posted(admin_client.get(PAGE))
    values = {"timeout_ms": 40_000, "tool_enabled": False}
    services.save_tool_policy(tool_name="probe", values=values, by=None)
    admin_client.post(PAGE, form | {"plain-timeout_ms": "6 s"})
    assert ToolPolicy.objects.get(tool_name="plain").timeout_ms == 6_000
    probe = ToolPolicy.objects.get(tool_name="probe")
    assert (probe.timeout_ms, probe.tool_enabled) == (40_000, False)


def test_a_touched_row_that_is_out_of_date_shows_both_values_and_saves_nothing(
    admin_client, admin_user, policy, plain
):
    form = posted(admin_client.get(PAGE))
    services.save_tool_policy(tool_name="probe", values={"timeout_ms": 40_000}, by=admin_user)
    services.save_tool_policy(tool_name="plain", values={"timeout_ms": 1_000}, by=admin_user)
    edit = {"plain-timeout_ms": "6 s", "probe-timeout_ms": "20 s"}
    page = admin_client.post(PAGE, form | edit)
    text = page.content.decode()
    assert (
        "boss changed these limits while you were editing. Total limit: yours 20 s, now 40 s"
        in text
    )
    assert "Total limit: yours 6 s, now 1 s" in text  # it had no row when the page was shown
    assert ToolPolicy.objects.get(tool_name="plain").timeout_ms == 1_000
    admin_client.post(PAGE, posted(page))  # the editor has seen both
    assert ToolPolicy.objects.get(tool_name="probe").timeout_ms == 20_000
    assert ToolPolicy.objects.get(tool_name="plain").timeout_ms == 6_000


def test_a_touched_row_whose_limits_were_taken_away_meanwhile_is_refused(
    admin_client, admin_user, policy
):
    form = posted(admin_client.get(PAGE)) | {"probe-timeout_ms": "20 s"}
    services.delete_tool_policy(tool_name="probe", by=admin_user)
    page = admin_client.post(PAGE, form)
    assert "Total limit: yours 20 s, now not set" in page.content.decode()
    assert not ToolPolicy.objects.exists()


def test_a_touched_row_that_has_left_the_list_meanwhile_is_shown_and_saved(
    admin_client, policy, plain, make_call
):
    make_call(status="timed_out", error_type="timeout", duration_ms=1_000)
    address = f"{PAGE}?show=timeouts"
    form = posted(admin_client.get(address)) | {"probe-timeout_ms": "75 s"}
    ToolCall.objects.all().delete()
    page = admin_client.post(address, form | {"_preview": "1"})
    assert posted(page)["probe-timeout_ms"] == "75 s"
    assert [row.name for row in page.context["rows"]] == ["probe"]
    page = admin_client.post(address, form, follow=True)
    assert "total limit: 30 s → 1 min 15 s" in said(page)[0]
    assert ToolPolicy.objects.get().timeout_ms == 75_000


def test_an_edit_that_is_overtaken_is_refused_in_words(admin_client, policy, overtake):
    form = posted(admin_client.get(PAGE)) | {"probe-timeout_ms": "75 s"}
    overtake()
    page = admin_client.post(PAGE, form)
    assert any("Someone else has changed" in line for line in said(page))
    assert ToolPolicy.objects.get().timeout_ms == 30_000
    assert posted(page)["probe-timeout_ms"] == "75 s"


def chosen_in(page):
    """The tools whose boxes are ticked."""
    return re.findall(r'name="chosen" value="([^"]*)" checked', page.content.decode())


def act(client, action, *tools, **values):
    form = {"_act": "1", "action": action, "chosen": tools, **values}
    return client.post(PAGE, form, follow=True)


@pytest.mark.parametrize(
    ("action", "back", "expected"),
    [
        ("put_out_of_force", "put_in_force", {"is_active": False, "tool_enabled": True}),
        ("forbid", "allow", {"is_active": True, "tool_enabled": False}),
    ],
)
def test_what_is_done_with_chosen_tools_is_audited(
    admin_client, admin_user, policy, action, back, expected
):
    act(admin_client, action, "probe", "made_up", why="night")
    policy.refresh_from_db()
    assert {name: getattr(policy, name) for name in expected} == expected
    change = PolicyChange.objects.first()
    assert (change.by, change.reason) == (admin_user, "night")
    act(admin_client, back, "probe")
    policy.refresh_from_db()
    assert policy.is_active
    assert policy.tool_enabled
    assert DefaultPolicy.objects.get().version == 3
    assert said(act(admin_client, back, "probe")) == ["No changes to save."]


def test_chosen_tools_stay_chosen_until_something_is_done(admin_client, policy, plain):
    form = posted(admin_client.get(PAGE)) | {"why": "night"}
    for sent in (
        {"_preview": "1"},
        {"_act": "1", "action": "suggest"},
        {"_act": "1", "action": ""},
    ):
        page = admin_client.post(PAGE, form | sent | {"chosen": ["plain", "probe"]})
        assert chosen_in(page) == ["plain", "probe"]
        assert (
            'name="why" class="vTextField" maxlength="500" value="night"' in page.content.decode()
        )
    wrong = form | {"_save": "1", "probe-timeout_ms": "75 parsecs", "chosen": ["probe"]}
    assert chosen_in(admin_client.post(PAGE, wrong)) == ["probe"]
    page = act(admin_client, "forbid")
    assert said(page) == ["Nothing was done. Select tools and an action."]
    assert '<option value="forbid" selected>' in page.content.decode()
    page = act(admin_client, "forbid", "probe", **form)
    assert chosen_in(page) == []


def test_limits_of_chosen_tools_are_taken_away(admin_client, admin_user, policy, plain):
    page = act(admin_client, "reset", "probe", "plain")
    assert not ToolPolicy.objects.exists()
    assert (PolicyChange.objects.first().action, PolicyChange.objects.first().by) == (
        "delete",
        admin_user,
    )
    assert "total limit: 30 s → not set" in said(page)[0]


def test_an_action_on_a_row_that_makes_no_sense_any_more_says_so(admin_client, policy, settings):
    settings.GOVERNANCE_TIMEOUT_CEILING = 10
    page = act(admin_client, "put_out_of_force", "probe")
    assert any("30 s is above 10 s" in line for line in said(page))
    assert ToolPolicy.objects.get().is_active


def test_a_reason_can_be_required(admin_client, policy, settings):
    settings.GOVERNANCE_LIMIT_NOTE_REQUIRED = True
    form = posted(admin_client.get(PAGE)) | {"probe-timeout_ms": "75 s"}
    page = admin_client.post(PAGE, form)
    assert "Enter a reason" in said(page)[0]
    assert "Reason (required; saved with the change)" in page.content.decode()
    assert posted(page)["probe-timeout_ms"] == "75 s"  # nobody types it twice
    page = act(admin_client, "forbid", "probe", **form)
    assert "Enter a reason" in said(page)[0]
    assert chosen_in(page) == ["probe"]
    assert '<option value="forbid" selected>' in page.content.decode()
    assert posted(page)["probe-timeout_ms"] == "75 s"
    assert ToolPolicy.objects.get().timeout_ms == 30_000
    admin_client.post(PAGE, form | {"why": "slow site"})
    assert ToolPolicy.objects.get().timeout_ms == 75_000


def test_the_page_costs_the_same_number_of_queries_for_many_tools(
    admin_client, policy, django_assert_num_queries
):
    admin_client.get(PAGE)
    with CaptureQueriesContext(connection) as few:
        admin_client.get(PAGE)
    for number in range(60):
        ToolPolicy.objects.create(tool_name=f"tool-{number}", timeout_ms=1_000)
    with django_assert_num_queries(len(few)):
        page = admin_client.get(PAGE)
    assert len(page.context["rows"]) == 50
    assert len(admin_client.get(PAGE, {"p": "2"}).context["rows"]) > 10


def test_who_may_only_look_can_change_nothing(client, policy, plain):
    viewer = get_user_model().objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_toolpolicy"))
    client.force_login(viewer)
    page = client.get(PAGE)
    assert "30 s" in row_of(page, "probe")[-1]
    assert 'name="_save"' not in page.content.decode()
    client.post(PAGE, {"probe-timeout_ms": "1 s", "probe-revision": "1", "_save": "Save"})
    assert ToolPolicy.objects.get().timeout_ms == 30_000
    viewer.user_permissions.add(Permission.objects.get(codename="change_toolpolicy"))
    form = posted(client.get(PAGE))
    assert "plain-timeout_ms" not in form  # that would be a new row
    client.post(PAGE, form | {"probe-timeout_ms": "1 s", "plain-timeout_ms": "1 s"})
    assert ToolPolicy.objects.get().timeout_ms == 1_000
