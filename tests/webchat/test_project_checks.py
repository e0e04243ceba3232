"""Checks of the project around the chat: what it has not named, serves nowhere, or does not answer is said."""

import sys
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, run_checks
from django.core.management import CommandError, call_command
from django.test import override_settings
from django.urls import path, reverse_lazy

from webchat.project_checks import STYLE


def found() -> dict[str | None, CheckMessage]:
    """Return what the checks of webchat say, by id."""
    return {message.id: message for message in run_checks(tags=["webchat"])}


def test_a_missing_asgi_application_is_said_and_serve_ends_with_a_sentence():
    with override_settings(ASGI_APPLICATION=None):
        assert "manage.py serve" in found()["webchat.W021"].msg
        with pytest.raises(CommandError, match="ASGI_APPLICATION"):
            call_command("serve")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere.asgi.application", "No module named 'nowhere'"),
        ("config.asgi.aplication", "aplication"),
        ("application", "module path"),
        (3, "module path"),
    ],
)
def test_an_asgi_application_that_cannot_be_imported_is_named_with_the_reason(name, reason):
    with override_settings(ASGI_APPLICATION=name):
        message = found()["webchat.E021"]
    assert repr(name) in message.msg
    assert reason in message.msg


def test_an_asgi_application_whose_module_fails_is_no_traceback(tmp_path, monkeypatch):
    (tmp_path / "asgi_that_fails.py").write_text("{}['KEY']", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with override_settings(ASGI_APPLICATION="asgi_that_fails.application"):
        assert "KeyError: 'KEY'" in found()["webchat.E021"].msg


def test_a_channel_layer_that_is_not_there_is_named_with_the_reason():
    with override_settings(CHANNEL_LAYERS={"default": {}}):
        assert "webchat.E002" in found()
    with override_settings(CHANNEL_LAYERS={"default": {"BACKEND": "channels_rabbit.Layer"}}):
        message = found()["webchat.E008"]
    assert "No module named 'channels_rabbit'" in message.msg
    assert message.hint


def test_a_site_without_an_address_for_its_files_is_told():
    with override_settings(STATIC_URL=None):
        assert found()["webchat.E020"].hint


@override_settings(WHITENOISE_USE_FINDERS=False, STATIC_ROOT=None)
def test_where_nothing_serves_scripts_and_styles_it_is_said_with_what_to_do(tmp_path):
    assert "Set STATIC_ROOT" in found()["webchat.W020"].hint
    with override_settings(STATIC_ROOT=tmp_path):
        assert "collectstatic" in found()["webchat.W020"].hint
        collected = tmp_path / STYLE
        collected.parent.mkdir(parents=True)
        collected.touch()
        assert not found()


@pytest.mark.parametrize(
    "served",
    [
        {"DEBUG": True},
        {"STATIC_URL": "https://files.example.org/"},
        {
            "STORAGES": {
                "default": django_settings.STORAGES["default"],
                "staticfiles": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
            }
        },
    ],
)
@override_settings(WHITENOISE_USE_FINDERS=False, STATIC_ROOT=None)
def test_what_serves_them_is_believed(served: dict[str, Any]):
    with override_settings(**served):
        assert "webchat.W020" not in found()


def test_a_view_of_the_project_may_serve_them():
    view = path("static/<path:name>", lambda _request, name: name)
    for patterns in ((), (view,)):
        with override_settings(ROOT_URLCONF=patterns, WHITENOISE_USE_FINDERS=False):
            assert ("webchat.W020" in found()) != bool(patterns)


@pytest.mark.parametrize(
    ("login_url", "is_answered"),
    [
        ("/accounts/login/", False),
        ("no_such_name", False),
        (None, False),
        ("webchat:login", True),
        ("/login/", True),
        ("/login/?with=query", True),
        ("https://sso.example.org/login", True),
        (reverse_lazy("webchat:login"), True),
    ],
)
def test_a_sign_in_that_nobody_answers_is_said(login_url: Any, is_answered: bool):
    with override_settings(LOGIN_URL=login_url):
        assert ("webchat.W022" in found()) != is_answered


@override_settings(FORCE_SCRIPT_NAME="/site")
def test_a_site_below_a_prefix_is_understood():
    from django.urls import set_script_prefix

    set_script_prefix("/site/")
    try:
        with override_settings(LOGIN_URL="webchat:login"):
            assert not found()
    finally:
        set_script_prefix("/")


@pytest.mark.parametrize(("command", "is_said"), [("runserver", True), ("check", False)])
def test_djangos_own_runserver_says_that_it_knows_no_websockets(
    monkeypatch: pytest.MonkeyPatch, command: str, is_said: bool
):
    monkeypatch.setattr(sys, "argv", ["manage.py", command])
    assert ("webchat.W023" in found()) == is_said
