"""Edits of limits: validated in words, audited with both values, never overwriting somebody else's (acceptance 94)."""

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import ValidationError

from governance import services
from governance.models import DefaultPolicy, PolicyChange, ToolPolicy
from governance.services import PolicyConflict
from governance.signals import policy_changed


def test_an_edit_is_audited_with_old_and_new_values(admin_user):
    services.save_default_policy(values={"timeout_ms": 60_000}, by=admin_user)
    services.save_default_policy(values={"timeout_ms": 30_000, "note": "faster"}, by=admin_user)
    change = PolicyChange.objects.first()
    assert change.changes == {"timeout_ms": [60_000, 30_000], "note": ["", "faster"]}
    assert (change.tool_name, change.action, change.version) == ("", "change", 2)
    assert (change.by, change.by_name) == (admin_user, "boss")
    assert change.summary == "total limit: 1 min → 30 s; note: not set → faster"
    assert DefaultPolicy.objects.get().version == 2


def test_the_admins_own_history_has_the_values_too(admin_user):
    services.save_default_policy(values={"timeout_ms": 60_000}, by=admin_user)
    entry = LogEntry.objects.get()
    assert (entry.action_flag, entry.user) == (CHANGE, admin_user)
    assert "not set → 1 min" in entry.change_message


def test_an_edit_that_changes_nothing_leaves_no_trace(admin_user):
    services.save_default_policy(values={"timeout_ms": 60_000}, by=admin_user)
    assert services.save_default_policy(values={"timeout_ms": 60_000}, by=admin_user) is None
    assert DefaultPolicy.objects.get().version == 1
    assert PolicyChange.objects.count() == 1


def test_adding_changing_and_deleting_a_tools_limits(admin_user, probe):
    added = services.save_tool_policy(
        tool_name="probe", values={"timeout_ms": 10_000}, by=admin_user, revision=0
    )
    changed = services.save_tool_policy(
        tool_name="probe", values={"timeout_ms": 0}, by=admin_user, revision=1
    )
    deleted = services.delete_tool_policy(tool_name="probe", by=admin_user, revision=2)
    assert [(c.action, c.version) for c in (added, changed, deleted)] == [
        ("add", 1),
        ("change", 2),
        ("delete", 3),
    ]
    assert deleted.changes["timeout_ms"] == [0, None]
    assert "10 s → no limit" in changed.summary
    assert not ToolPolicy.objects.exists()
    assert services.delete_tool_policy(tool_name="probe", by=admin_user) is None


def test_an_edit_on_top_of_a_newer_one_is_refused(admin_user, probe):
    services.save_tool_policy(tool_name="probe", values={"timeout_ms": 10_000}, by=admin_user)
    services.save_tool_policy(
        tool_name="probe", values={"timeout_ms": 20_000}, by=admin_user, revision=1
    )
    with pytest.raises(PolicyConflict):
        services.save_tool_policy(
            tool_name="probe", values={"timeout_ms": 30_000}, by=admin_user, revision=1
        )
    with pytest.raises(PolicyConflict):
        services.delete_tool_policy(tool_name="probe", by=admin_user, revision=1)
    with pytest.raises(PolicyConflict):
        services.save_tool_policy(
            tool_name="probe", values={"timeout_ms": 30_000}, by=admin_user, revision=0
        )
    services.save_default_policy(values={"timeout_ms": 10_000}, by=admin_user, revision=0)
    with pytest.raises(PolicyConflict):
        services.save_default_policy(values={"timeout_ms": 30_000}, by=admin_user, revision=0)
    assert ToolPolicy.objects.get().timeout_ms == 20_000
    assert PolicyChange.objects.count() == 3


def test_an_edit_on_top_of_a_row_that_was_made_again_is_refused(admin_user, probe):
    for timeout_ms in (10_000, 20_000):
        services.delete_tool_policy(tool_name="probe", by=admin_user)
        services.save_tool_policy(
            tool_name="probe", values={"timeout_ms": timeout_ms}, by=admin_user
        )
    for seen in (1, 2):
        with pytest.raises(PolicyConflict):
            services.save_tool_policy(
                tool_name="probe", values={"note": "mine"}, by=admin_user, revision=seen
            )
    assert ToolPolicy.objects.get().revision == 3  # it was added, deleted and added


def test_edits_of_other_tools_are_no_conflict(admin_user, probe, plain):
    services.save_tool_policy(tool_name="probe", values={"timeout_ms": 10_000}, by=admin_user)
    services.save_tool_policy(tool_name="plain", values={"timeout_ms": 10_000}, by=admin_user)
    services.save_tool_policy(
        tool_name="probe", values={"timeout_ms": 20_000}, by=admin_user, revision=1
    )
    assert DefaultPolicy.objects.get().version == 3


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"timeout_ms": -1}, "timeout_ms", "cannot be negative"),
        ({"idle_timeout_ms": -1}, "idle_timeout_ms", "cannot be negative"),
        ({"ceiling_ms": 8 * 86_400_000}, "ceiling_ms", "longer than a week"),
        ({"timeout_ms": 7_200_000}, "timeout_ms", "2 h is above 1 h"),
        (
            {"timeout_ms": 10_000, "idle_timeout_ms": 20_000},
            "idle_timeout_ms",
            "would never be reached",
        ),
        ({"idle_timeout_ms": 55_000}, "idle_timeout_ms", "longer than the total limit (50 s)"),
        ({"max_running": 0}, "max_running", "disable the tool"),
        ({"max_running": 1_000_000}, "max_running", "Leave the field blank"),
    ],
)
def test_a_bad_value_is_refused_in_words_and_nothing_is_saved(values, field, words, db, probe):
    with pytest.raises(ValidationError) as refusal:
        services.save_tool_policy(tool_name="probe", values=values, by=None)
    assert words in " ".join(refusal.value.message_dict[field])
    assert not ToolPolicy.objects.exists()
    assert not PolicyChange.objects.exists()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"timeout_ms": "soon"}, "whole number"),
        ({"timeout_ms": "90000"}, "whole number"),
        ({"timeout_ms": float("inf")}, "whole number"),
        ({"timeout_ms": float("nan")}, "whole number"),
        ({"max_running": 1.5}, "whole number"),
        ({"max_running": True}, "whole number"),
        ({"timeout_ms": 10**30}, "longer than a week"),
        ({"approval_timeout_ms": 10**30}, "longer than a week"),
        ({"tool_enabled": "no"}, "true or false"),
        ({"tool_enabled": None}, "true or false"),
        ({"note": 7}, "text"),
        ({"note": None}, "text"),
    ],
)
def test_a_value_of_another_type_is_refused_in_words(values, words, db, probe):
    (field,) = values
    with pytest.raises(ValidationError) as refusal:
        services.save_tool_policy(tool_name="probe", values=values, by=None)
    assert words in " ".join(refusal.value.message_dict[field])
    assert not PolicyChange.objects.exists()


def test_limits_of_an_unknown_tool_are_refused(db, probe):
    with pytest.raises(ValidationError, match="There is no tool named “prob”"):
        services.save_tool_policy(tool_name="prob", values={"timeout_ms": 1_000}, by=None)


def test_limits_of_a_tool_that_went_away_can_still_be_edited(db):
    ToolPolicy.objects.create(tool_name="gone", timeout_ms=1_000)
    services.save_tool_policy(tool_name="gone", values={"timeout_ms": 2_000}, by=None)
    assert ToolPolicy.objects.get().timeout_ms == 2_000


def test_the_ceiling_of_the_site_can_be_lifted(db, probe, settings):
    settings.GOVERNANCE_TIMEOUT_CEILING = 0
    services.save_tool_policy(tool_name="probe", values={"timeout_ms": 7_200_000}, by=None)
    assert ToolPolicy.objects.get().timeout_ms == 7_200_000


def test_no_limit_is_a_limit_of_zero_and_allows_any_idle_limit(db, probe):
    services.save_tool_policy(
        tool_name="probe", values={"timeout_ms": 0, "idle_timeout_ms": 300_000}, by=None
    )
    assert ToolPolicy.objects.get().as_limits().timeout == 0


def test_an_inherited_limit_counts_for_the_idle_limit(db, plain):
    services.save_default_policy(values={"timeout_ms": 20_000}, by=None)
    with pytest.raises(ValidationError, match=r"total limit \(20 s\)"):
        services.save_tool_policy(tool_name="plain", values={"idle_timeout_ms": 30_000}, by=None)


def test_an_unknown_field_is_a_programming_error(db):
    with pytest.raises(TypeError, match="version"):
        services.save_default_policy(values={"version": 5}, by=None)  # type: ignore[typeddict-unknown-key]  # the point


def test_the_signal_is_sent_after_the_commit(db, probe, django_capture_on_commit_callbacks):
    heard = []

    def hear(**arguments):
        heard.append((arguments["sender"], arguments["tool_name"], arguments["version"]))

    policy_changed.connect(hear)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            services.save_tool_policy(tool_name="probe", values={"timeout_ms": 1_000}, by=None)
            assert heard == []
        assert heard == [(ToolPolicy, "probe", 1)]
    finally:
        policy_changed.disconnect(hear)
