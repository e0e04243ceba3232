"""Limits are edited through the real admin: in units, in words, audited, and never over somebody else's edit."""

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.urls import reverse

from governance import services
from governance.models import DefaultPolicy, PolicyChange, ToolPolicy
from governance.signals import policy_changed

LIST = "admin:governance_toolpolicy_changelist"
DEFAULT = reverse("admin:governance_defaultpolicy_change", args=[1])


def blank(**values):
    fields = {
        "timeout_ms": "",
        "idle_timeout_ms": "",
        "ceiling_ms": "",
        "max_running": "",
        "note": "",
    }
    return fields | values


def tool_form(**values):
    return blank(is_active="on", tool_enabled="on", **values)


def change_url(policy):
    return reverse("admin:governance_toolpolicy_change", args=[policy.pk])


def said(page):
    return [str(message) for message in page.context["messages"]]


def test_the_list_of_default_limits_is_its_one_row(admin_client):
    page = admin_client.get(reverse("admin:governance_defaultpolicy_changelist"), follow=True)
    assert page.redirect_chain[-1][0] == DEFAULT
    assert page.status_code == 200
    assert DefaultPolicy.objects.get().pk == 1


def test_the_default_limits_are_edited_in_units_and_read_back_in_words(admin_client, admin_user):
    page = admin_client.post(
        DEFAULT, blank(timeout_ms="1 min 30 s", idle_timeout_ms="20 s"), follow=True
    )
    row = DefaultPolicy.objects.get()
    assert (row.timeout_ms, row.idle_timeout_ms, row.version) == (90_000, 20_000, 1)
    assert any(
        "Version 1." in line and "total limit: not set → 1 min 30 s" in line for line in said(page)
    )
    assert 'value="1 min 30 s"' in admin_client.get(DEFAULT).content.decode()
    assert PolicyChange.objects.get().by == admin_user
    assert LogEntry.objects.count() == 1


OBEY_NOW = "The new limits now apply to running calls of this process, and to those of other processes within seconds."
FROM_NOW_ON = (
    "The new limits apply to calls that start from now on, in other processes within seconds."
    " Running calls keep theirs."
)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"timeout_ms": "20 s"}, f"total limit: 30 s → 20 s. {OBEY_NOW}"),
        ({"timeout_ms": "20 s", "approval": "always"}, OBEY_NOW),
        ({"approval": "always"}, f"approval: not set → always. {FROM_NOW_ON}"),
        ({"tool_enabled": ""}, f"tool may be used: yes → no. {FROM_NOW_ON}"),
        ({"max_running": "3"}, f"concurrent calls: not set → 3. {FROM_NOW_ON}"),
        ({"note": "why"}, "note: not set → why."),
        ({"is_active": ""}, f"active: yes → no. {OBEY_NOW}"),
    ],
)
def test_the_message_after_a_save_says_only_what_is_known(admin_client, policy, values, told):
    form = tool_form(timeout_ms="30 s", revision="1") | values
    page = admin_client.post(change_url(policy), {k: v for k, v in form.items() if v}, follow=True)
    [line] = [line for line in said(page) if "Version" in line]
    assert line.startswith("Version 2. probe: ")
    assert line.endswith(told)


def test_a_row_out_of_force_does_not_claim_that_calls_obey_it(admin_client, policy):
    services.save_tool_policy(tool_name="probe", values={"is_active": False}, by=None)
    form = blank(timeout_ms="20 s", tool_enabled="on", revision="2")
    page = admin_client.post(change_url(policy), form, follow=True)
    assert any(
        line.endswith("These limits are inactive and apply to no call.") for line in said(page)
    )


def test_a_deletion_says_for_which_calls_it_counts(admin_client, policy):
    url = reverse("admin:governance_toolpolicy_delete", args=[policy.pk])
    page = admin_client.post(url, {"post": "yes"}, follow=True)
    [line] = [line for line in said(page) if "Version" in line]
    assert line.startswith("Version 2. probe: ")
    assert "total limit: 30 s → not set" in line
    assert line.endswith(OBEY_NOW)


def test_a_reason_is_kept_with_the_change_and_can_be_required(admin_client, policy, settings):
    admin_client.post(change_url(policy), tool_form(timeout_ms="20 s", why="too slow"))
    assert PolicyChange.objects.first().reason == "too slow"
    settings.GOVERNANCE_LIMIT_NOTE_REQUIRED = True
    for url in (change_url(policy), DEFAULT):
        page = admin_client.post(url, tool_form(timeout_ms="25 s"))
        assert "This field is required" in page.content.decode()
    url = reverse("admin:governance_toolpolicy_delete", args=[policy.pk])
    page = admin_client.post(url, {"post": "yes"}, follow=True)
    assert said(page) == ["Enter a reason. This site requires one for each change of a limit."]
    assert ToolPolicy.objects.get().timeout_ms == 20_000
    assert PolicyChange.objects.count() == 2
    assert (
        'name="why" class="vTextField" maxlength="500" value="" required>'
        in admin_client.get(url).content.decode()
    )
    admin_client.post(url, {"post": "yes", "why": "no longer needed"})
    assert not ToolPolicy.objects.exists()
    assert PolicyChange.objects.first().reason == "no longer needed"


def test_a_row_that_says_nothing_is_not_kept(admin_client, probe):
    url = reverse("admin:governance_toolpolicy_add")
    page = admin_client.post(url, tool_form(tool_name="probe"))
    assert "Set at least one limit" in page.content.decode()
    assert not ToolPolicy.objects.exists()


def test_the_edit_is_announced_at_its_commit(admin_client):
    announced = []

    def hear(sender, **_):
        announced.append((sender, connection.in_atomic_block))

    policy_changed.connect(hear)
    try:
        admin_client.post(DEFAULT, blank(timeout_ms="90 s"))
    finally:
        policy_changed.disconnect(hear)
    assert announced == [(DefaultPolicy, False)]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"timeout_ms": "-5 s"}, "cannot be negative"),
        ({"timeout_ms": "soon"}, "“soon” is not a duration"),
        ({"timeout_ms": "90"}, "“90” has no unit: it could mean 90 ms, 90 s or 90 min."),
        ({"timeout_ms": "1.5"}, "it could mean 1.5 ms, 1.5 s or 1.5 min."),
        ({"timeout_ms": "0.0001 ms"}, "“0.0001 ms” is shorter than a millisecond."),
        ({"timeout_ms": "9 d"}, "longer than a week"),
        ({"timeout_ms": "2 h"}, "2 h is above 1 h, the highest limit that this site allows"),
        (
            {"timeout_ms": "10 s", "idle_timeout_ms": "1 min"},
            "idle limit (1 min) is longer than the total limit (10 s)",
        ),
        ({"max_running": "0"}, "disable the tool"),
    ],
)
def test_a_bad_value_is_a_form_error_in_words(admin_client, policy, values, words):
    for url, form in ((DEFAULT, blank(**values)), (change_url(policy), tool_form(**values))):
        page = admin_client.post(url, form)
        assert page.status_code == 200
        assert words in page.content.decode()
    assert ToolPolicy.objects.get().timeout_ms == 30_000
    assert PolicyChange.objects.count() == 1


def test_the_rule_of_approval_and_its_limit_are_edited_and_audited(admin_client, policy):
    values = {"approval": "always", "approval_timeout_ms": "2 d", "timeout_ms": "30 s"}
    page = admin_client.post(change_url(policy), tool_form(**values), follow=True)
    assert page.status_code == 200
    policy.refresh_from_db()
    assert (policy.approval, policy.approval_timeout_ms) == ("always", 172_800_000)
    change = PolicyChange.objects.first()
    assert change.changes["approval"] == ["", "always"]
    assert "approval: not set → always" in change.summary
    assert "approval limit: not set → 2 d" in change.summary
    assert "approval always" in admin_client.get(reverse(LIST)).content.decode()
    page = admin_client.post(change_url(policy), tool_form(approval_timeout_ms="9 d"))
    assert "longer than a week" in page.content.decode()
    page = admin_client.post(change_url(policy), tool_form(approval_timeout_ms="-1 s"))
    assert "cannot be negative" in page.content.decode()


def test_a_tools_limits_are_added_by_choice(admin_client, probe):
    url = reverse("admin:governance_toolpolicy_add")
    assert "probe (declared limit: 50 s)" in admin_client.get(url).content.decode()
    page = admin_client.post(
        url,
        tool_form(tool_name="probe", timeout_ms="500 ms", accepted="timeout_ms=500"),
        follow=True,
    )
    assert page.status_code == 200
    assert (ToolPolicy.objects.get().timeout_ms, ToolPolicy.objects.get().revision) == (500, 1)
    assert PolicyChange.objects.get().action == "add"


def test_an_unknown_tool_is_a_form_error_in_words(admin_client, probe):
    url = reverse("admin:governance_toolpolicy_add")
    page = admin_client.post(url, tool_form(tool_name="prob", timeout_ms="5 s"))
    assert "There is no tool named “prob”" in page.content.decode()
    assert not ToolPolicy.objects.exists()


def test_a_second_row_for_a_tool_is_a_form_error_in_words(admin_client, policy):
    url = reverse("admin:governance_toolpolicy_add")
    page = admin_client.post(url, tool_form(tool_name="probe", timeout_ms="5 s"))
    assert "This tool already has limits" in page.content.decode()


def test_limits_of_a_tool_that_is_not_installed_say_so_and_stay_editable(admin_client, db):
    gone = ToolPolicy.objects.create(tool_name="gone", timeout_ms=1_000)
    assert (
        "No tool with this name is installed" in admin_client.get(change_url(gone)).content.decode()
    )
    assert "not installed" in admin_client.get(reverse(LIST)).content.decode()
    admin_client.post(change_url(gone), tool_form(timeout_ms="2 s", revision="0"))
    assert ToolPolicy.objects.get().timeout_ms == 2_000


def test_a_tools_limits_are_changed_and_deleted_with_an_audit(admin_client, admin_user, policy):
    admin_client.post(change_url(policy), tool_form(timeout_ms="45 s", revision="1"))
    assert PolicyChange.objects.first().changes == {"timeout_ms": [30_000, 45_000]}
    admin_client.post(
        reverse("admin:governance_toolpolicy_delete", args=[policy.pk]), {"post": "yes"}
    )
    last = PolicyChange.objects.first()
    assert (last.action, last.by, last.version) == ("delete", admin_user, 3)
    assert not ToolPolicy.objects.exists()
    assert LogEntry.objects.filter(user=admin_user).count() == 2


def test_an_edit_on_top_of_a_newer_one_shows_both_values_and_saves_nothing(
    admin_client, admin_user, policy
):
    services.save_tool_policy(
        tool_name="probe", values={"timeout_ms": 40_000, "note": "theirs"}, by=admin_user
    )
    page = admin_client.post(
        change_url(policy), tool_form(timeout_ms="20 s", note="mine", revision="1")
    )
    text = page.content.decode()
    assert "boss changed these limits while you were editing" in text
    assert "Total limit: yours 20 s, now 40 s" in text
    assert "yours mine, now theirs" in text
    assert ToolPolicy.objects.get().timeout_ms == 40_000
    assert 'name="revision" value="2"' in text  # the editor has seen both: the next save counts
    admin_client.post(change_url(policy), tool_form(timeout_ms="20 s", note="mine", revision="2"))
    assert ToolPolicy.objects.get().timeout_ms == 20_000


def test_an_edit_that_slips_in_between_check_and_save_is_refused_in_words(
    admin_client, policy, overtake
):
    overtake()
    page = admin_client.post(
        change_url(policy), tool_form(timeout_ms="20 s", revision="1"), follow=True
    )
    assert any("Someone else has changed" in line for line in said(page))
    assert ToolPolicy.objects.get().timeout_ms == 30_000  # the whole request was rolled back


def test_an_administrator_is_told_how_commands_are_kept_in(admin_client, settings):
    """Also in a process that has run none yet, such as one that only serves pages."""
    settings.GOVERNANCE_EXEC_SANDBOX = "none"
    services.save_tool_policy(tool_name="exec", values={"timeout_ms": 30_000}, by=None)
    page = admin_client.get(change_url(ToolPolicy.objects.get())).content.decode()
    assert "in no sandbox" in page


def test_a_tool_that_is_switched_off_says_so_in_the_list(admin_client, settings, plain):
    settings.GOVERNANCE_EXEC_ENABLED = False
    services.save_tool_policy(tool_name="plain", values={"tool_enabled": False}, by=None)
    answer = admin_client.get(reverse(LIST))
    page = answer.content.decode()
    assert "no limit (from: the tool)" in page
    assert "Running commands is switched off on this server." in page
    row = next(row for row in answer.context["rows"] if row.name == "plain")
    assert row.other_limits == "disabled"
    agents = admin_client.get(reverse("admin:turns_agent_add")).content.decode()
    assert "</code> Running commands is switched off on this server." in agents


def test_who_may_only_look_sees_units(client, policy):
    viewer = get_user_model().objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_toolpolicy"))
    client.force_login(viewer)
    for url in (change_url(policy), reverse(LIST)):
        text = client.get(url).content.decode()
        assert "30 s" in text
        assert "30000" not in text
    assert client.post(change_url(policy), tool_form(timeout_ms="1 s")).status_code == 403
    assert ToolPolicy.objects.get().timeout_ms == 30_000


def test_the_audit_of_limits_can_be_read(admin_client, policy):
    url = reverse("admin:governance_policychange_changelist")
    text = admin_client.get(url, {"q": "probe", "action": "add"}).content.decode()
    assert "total limit: not set → 30 s" in text
    detail = reverse("admin:governance_policychange_change", args=[PolicyChange.objects.get().pk])
    assert "total limit: not set → 30 s" in admin_client.get(detail).content.decode()
