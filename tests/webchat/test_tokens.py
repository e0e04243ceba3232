"""API tokens: shown once, kept as a hash, recognised, revoked; and their page in the admin."""

import hashlib
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from webchat import tokens
from webchat.models import ApiToken


@pytest.fixture
def user(db: None) -> User:
    return User.objects.create_user("ada")


@pytest.fixture
def admin(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def test_a_token_stands_for_its_user_and_is_not_stored(user: User):
    row, token = tokens.issue(user=user, name="script")
    assert tokens.find_user(token) == user
    row.refresh_from_db()
    assert row.sha256 == hashlib.sha256(token.encode()).hexdigest()
    assert token not in {str(value) for value in vars(row).values()}
    assert len(token) >= 43


@pytest.mark.parametrize("wrong", ["", "tk_", "tk_" + "x" * 43, "\ud800", "é"])
def test_an_unknown_token_stands_for_nobody(user: User, wrong: str):
    tokens.issue(user=user, name="script")
    assert tokens.find_user(wrong) is None


def test_a_revoked_token_stands_for_nobody(user: User):
    _, token = tokens.issue(user=user, name="script")
    assert tokens.revoke(ApiToken.objects.all()) == 1
    assert tokens.find_user(token) is None
    assert tokens.revoke(ApiToken.objects.all()) == 0


def test_the_token_of_a_deactivated_user_stands_for_nobody(user: User):
    _, token = tokens.issue(user=user, name="script")
    user.is_active = False
    user.save()
    assert tokens.find_user(token) is None


def test_the_last_use_is_written_once_a_minute(user: User):
    row, token = tokens.issue(user=user, name="script")
    tokens.find_user(token)
    row.refresh_from_db()
    first = row.last_used_at
    assert first is not None
    tokens.find_user(token)
    row.refresh_from_db()
    assert row.last_used_at == first
    ApiToken.objects.update(last_used_at=timezone.now() - timedelta(seconds=61))
    tokens.find_user(token)
    row.refresh_from_db()
    assert row.last_used_at >= first


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("Basic abc", None),
        ("", None),
        ("Bearer", ""),
    ],
)
def test_the_header_is_read_as_browsers_and_programs_write_it(header: str, token: str | None):
    assert tokens.bearer_of(header) == token


def test_the_admin_shows_a_new_token_once(admin: Client, user: User):
    answer = admin.post(
        reverse("admin:webchat_apitoken_add"), {"name": "script", "user": user.pk}, follow=True
    )
    row = ApiToken.objects.get()
    shown = [str(message) for message in answer.context["messages"]]
    token = next(
        word.rstrip(":") for text in shown for word in text.split() if word.startswith("tk_")
    )
    assert tokens.find_user(token) == user
    page = admin.get(reverse("admin:webchat_apitoken_change", args=[row.pk])).content.decode()
    assert row.start in page
    assert token not in page


def test_in_the_admin_a_token_can_be_revoked_but_not_edited_or_deleted(admin: Client, user: User):
    row, token = tokens.issue(user=user, name="script")
    change = reverse("admin:webchat_apitoken_change", args=[row.pk])
    assert admin.post(change, {"name": "other", "user": user.pk}).status_code == 403
    assert admin.post(reverse("admin:webchat_apitoken_delete", args=[row.pk])).status_code == 403
    chosen = {"action": "revoke", "_selected_action": [row.pk]}
    admin.post(reverse("admin:webchat_apitoken_changelist"), chosen)
    assert tokens.find_user(token) is None


def test_the_command_prints_a_token_for_a_user_and_nothing_else(
    user: User, capsys: pytest.CaptureFixture[str]
):
    call_command("issue_token", "ada", "nightly report")
    printed = capsys.readouterr().out
    assert tokens.find_user(printed.strip()) == user
    assert ApiToken.objects.get().name == "nightly report"
    for nobody in ("eve", ""):
        with pytest.raises(CommandError, match="no active user"):
            call_command("issue_token", nobody, "x")
