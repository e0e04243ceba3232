"""API tokens: shown once, kept as a hash, recognised, revoked; and their page in the admin."""

import hashlib
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.staff import sign_in, staff_client
from webchat import api_tokens
from webchat.models import ApiToken, ApiTokenChange


@pytest.fixture
def user(db: None) -> User:
    return User.objects.create_user("ada")


@pytest.fixture
def admin(db: None) -> Client:
    return sign_in(User.objects.create_superuser("root"))


def test_a_token_stands_for_its_user_and_is_not_stored(user: User):
    row, token = api_tokens.issue(user=user, name="script")
    assert api_tokens.find_user(token) == user
    row.refresh_from_db()
    assert row.sha256 == hashlib.sha256(token.encode()).hexdigest()
    assert token not in {str(value) for value in vars(row).values()}
    assert len(token) >= 43


def shown_token(answer: Any) -> str:
    """Return the token in the messages of a page."""
    shown = [str(message) for message in answer.context["messages"]]
    return next(
        word.rstrip(":.") for text in shown for word in text.split() if word.startswith("tk_")
    )


def history() -> list[tuple[str, str, str]]:
    """Return what the audit says, oldest first: what, whose token, by whom."""
    return list(ApiTokenChange.objects.order_by("pk").values_list("action", "whose", "by_name"))


@pytest.mark.parametrize("wrong", ["", "tk_", "tk_" + "x" * 43, "\ud800", "é"])
def test_an_unknown_token_stands_for_nobody(user: User, wrong: str):
    api_tokens.issue(user=user, name="script")
    assert api_tokens.find_user(wrong) is None


def test_a_revoked_token_stands_for_nobody(user: User):
    _, token = api_tokens.issue(user=user, name="script")
    assert api_tokens.revoke(ApiToken.objects.all()) == 1
    assert api_tokens.find_user(token) is None
    assert api_tokens.revoke(ApiToken.objects.all()) == 0


def test_the_token_of_a_deactivated_user_stands_for_nobody(user: User):
    _, token = api_tokens.issue(user=user, name="script")
    user.is_active = False
    user.save()
    assert api_tokens.find_user(token) is None


def test_the_last_use_is_written_once_a_minute(user: User):
    row, token = api_tokens.issue(user=user, name="script")
    api_tokens.find_user(token)
    row.refresh_from_db()
    first = row.last_used_at
    assert first is not None
    api_tokens.find_user(token)
    row.refresh_from_db()
    assert row.last_used_at == first
    ApiToken.objects.update(last_used_at=timezone.now() - timedelta(seconds=61))
    api_tokens.find_user(token)
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
    assert api_tokens.bearer_of(header) == token


def test_the_admin_shows_a_new_token_once(admin: Client, user: User):
    answer = admin.post(
        reverse("admin:webchat_apitoken_add"), {"name": "script", "user": user.pk}, follow=True
    )
    row = ApiToken.objects.get()
    token = shown_token(answer)
    assert api_tokens.find_user(token) == user
    page = admin.get(reverse("admin:webchat_apitoken_change", args=[row.pk])).content.decode()
    assert row.start in page
    assert token not in page


def test_the_command_prints_a_token_for_a_user_and_nothing_else(
    user: User, capsys: pytest.CaptureFixture[str]
):
    call_command("issue_token", "ada", "nightly report")
    printed = capsys.readouterr().out
    assert api_tokens.find_user(printed.strip()) == user
    assert ApiToken.objects.get().name == "nightly report"
    for nobody in ("eve", ""):
        with pytest.raises(CommandError, match="no active user"):
            call_command("issue_token", nobody, "x")


@pytest.mark.parametrize("wanted", ["root", "ada", "clerk"])
def test_staff_make_tokens_for_themselves_only_whatever_they_send(
    admin: Client, user: User, wanted: str
):
    clerk = staff_client("clerk", "add_apitoken", "view_apitoken", "change_apitoken")
    address = reverse("admin:webchat_apitoken_add")
    assert "user" not in clerk.get(address).context["adminform"].form.fields
    form = {"name": "script", "user": User.objects.get(username=wanted).pk}
    answer = clerk.post(address, form, follow=True)
    assert api_tokens.find_user(shown_token(answer)) == User.objects.get(username="clerk")
    assert ApiToken.objects.get().user.get_username() == "clerk"


def test_code_that_names_who_makes_a_token_makes_none_for_somebody_else(user: User):
    other = User.objects.create_user("eve", is_staff=True)
    root = User.objects.create_superuser("root")
    for target in (user, root):
        with pytest.raises(PermissionDenied):
            api_tokens.issue(user=target, name="x", by=other)
    assert not ApiToken.objects.exists()
    for maker, target in ((other, other), (root, other), (root, root)):
        assert api_tokens.find_user(api_tokens.issue(user=target, name="x", by=maker)[1]) == target


def test_every_token_that_is_made_or_revoked_is_audited(admin: Client, user: User):
    form = {"name": "script", "user": user.pk}
    admin.post(reverse("admin:webchat_apitoken_add"), form)
    clerk = staff_client("clerk", "change_apitoken", "view_apitoken", "view_apitokenchange")
    chosen = {"action": "revoke", "_selected_action": [ApiToken.objects.get().pk]}
    listed = reverse("admin:webchat_apitoken_changelist")
    clerk.post(listed, chosen)
    clerk.post(listed, chosen)  # nothing left to revoke
    assert history() == [("add", "ada", "root"), ("change", "ada", "clerk")]
    assert {entry.user.get_username() for entry in LogEntry.objects.all()} == {"root", "clerk"}
    assert LogEntry.objects.count() == 2
    page = clerk.get(reverse("admin:webchat_apitokenchange_changelist")).content.decode()
    assert ">issued<" in page
    assert ">revoked<" in page
    user.delete()
    assert history() == [("add", "ada", "root"), ("change", "ada", "clerk")]


def test_a_token_of_the_command_is_audited_too(user: User, capsys: pytest.CaptureFixture[str]):
    call_command("issue_token", "ada", "report")
    [(action, whose, by)] = history()
    assert (action, whose) == ("add", "ada")
    assert by.startswith("manage.py issue_token (uid ")


def test_superusers_are_told_of_their_tokens_that_nobody_knows_who_made(admin: Client, user: User):
    root = User.objects.get(username="root")
    listed = reverse("admin:webchat_apitoken_changelist")
    api_tokens.issue(user=root, name="known", by=root)
    api_tokens.issue(user=user, name="of an ordinary user")
    assert "no recorded issuer" not in admin.get(listed).content.decode()
    _, token = api_tokens.issue(user=root, name="old")
    ApiTokenChange.objects.filter(token__name__in=["old", "of an ordinary user"]).delete()
    clerk = staff_client("clerk", "view_apitoken", "change_apitoken")
    assert "no recorded issuer" not in clerk.get(listed).content.decode()
    assert "1 superuser token has no recorded issuer" in admin.get(listed).content.decode()
    found = admin.get(listed, {"origin": "unknown"}).context["cl"].result_list
    assert [row.name for row in found] == ["old"]
    nonsense = admin.get(listed, {"origin": "unknwon"}).context["cl"].result_list
    assert list(nonsense) == []
    chosen = {"action": "revoke", "_selected_action": [row.pk for row in found]}
    admin.post(f"{listed}?origin=unknown", chosen)
    assert api_tokens.find_user(token) is None
    assert "no recorded issuer" not in admin.get(listed).content.decode()
