"""The disconnect policy in the admin: in words and durations, audited, and in force at once (C11)."""

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

from tests.staff import sign_in
from turns.models import DisconnectPolicy
from turns.presence import disconnects

pytestmark = pytest.mark.django_db

PAGE = "/admin/turns/disconnectpolicy/1/change/"


@pytest.fixture
def admin() -> Client:
    return sign_in(get_user_model().objects.create_superuser("root"))


def test_without_a_row_the_defaults_count():
    policy = disconnects.read()
    assert (policy.policy, policy.grace_ms) == ("cancel_after_grace", 30_000)
    assert not DisconnectPolicy.objects.exists()


def test_a_policy_that_does_not_exist_is_refused():
    with pytest.raises(ValidationError):
        disconnects.save({"policy": "shrug"})
    assert disconnects.read().policy == "cancel_after_grace"


def test_the_one_row_is_shown_and_edited_in_units_and_the_edit_is_audited(admin: Client):
    listed = admin.get(reverse("admin:turns_disconnectpolicy_changelist"))
    assert listed.headers["Location"] == PAGE
    assert 'value="30 s"' in admin.get(PAGE).content.decode()
    form = {"policy": "detach", "grace_ms": "30 s", "unattended_limit_ms": "2 h"}
    answer = admin.post(PAGE, form, follow=True)
    assert answer.status_code == 200
    policy = disconnects.read()
    assert (policy.policy, policy.unattended_limit_ms) == ("detach", 7_200_000)
    entry = LogEntry.objects.get()
    assert "cancel after a grace period → let it continue" in entry.change_message
    assert "unattended limit: 1 h → 2 h" in entry.change_message
    assert "grace:" not in entry.change_message
    assert "unattended limit: 1 h → 2 h" in str(next(iter(answer.context["messages"])))


@pytest.mark.parametrize("name", ["grace_ms", "unattended_limit_ms"])
def test_a_span_below_a_second_is_saved_after_a_warning(admin: Client, name: str):
    form = {"policy": "detach", "grace_ms": "30 s", "unattended_limit_ms": "1 h", name: "500 ms"}
    shown = admin.post(PAGE, form).context["adminform"].form
    assert "500 ms is shorter than a second. Save again to confirm." in str(shown.errors)
    assert disconnects.read().policy == "cancel_after_grace"
    again = {field: shown[field].value() or "" for field in shown.fields}
    assert admin.post(PAGE, again).status_code == 302
    assert getattr(disconnects.read(), name) == 500
    assert admin.post(PAGE, form | {name: "0"}).status_code == 302  # none, or no limit


@pytest.mark.parametrize("wrong", ["", "soon", "-1 s", "9999 d"])
def test_nonsense_is_refused_with_words(admin: Client, wrong: str):
    admin.get(PAGE)
    form = {"policy": "detach", "grace_ms": wrong, "unattended_limit_ms": "2 h"}
    assert "grace_ms" in admin.post(PAGE, form).context["adminform"].form.errors
    assert disconnects.read().policy == "cancel_after_grace"


def test_an_edit_on_top_of_a_newer_one_is_refused_with_words(admin: Client):
    seen = admin.get(PAGE).context["adminform"].form.initial["seen"]
    disconnects.save({"grace_ms": 15_000})
    form = {"policy": "detach", "grace_ms": "20 s", "unattended_limit_ms": "2 h", "seen": seen}
    answer = admin.post(PAGE, form, follow=True)
    [message] = answer.context["messages"]
    assert "Someone else has changed" in str(message)
    policy = disconnects.read()
    assert (policy.policy, policy.grace_ms) == ("cancel_after_grace", 15_000)
    assert not LogEntry.objects.exists()


def test_who_may_only_look_sees_durations_and_cannot_edit():
    user = get_user_model().objects.create_user("vera", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_disconnectpolicy"))
    client = sign_in(user)
    assert "30 s" in client.get(PAGE).content.decode()
    assert client.post(PAGE, {"policy": "detach"}).status_code == 403
