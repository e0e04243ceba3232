"""Checks of the project around the chat: what it has not named, serves nowhere, or does not answer is said."""

import re
import sys
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.staticfiles.storage import ManifestStaticFilesStorage
from django.core.checks import CheckMessage, run_checks
from django.core.management import CommandError, call_command
from django.test import override_settings
from django.urls import path, reverse_lazy

from webchat import checks as webchat_checks
from webchat.checks import STYLE


class FollowsImports(ManifestStaticFilesStorage):
    """Django's own remedy for modules that import modules."""

    support_js_module_import_aggregation = True
    max_post_process_passes = 20  # one for each level of imports


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


@override_settings(WHITENOISE_USE_FINDERS=False, DEBUG=False)
def test_hashed_names_alone_will_do_if_the_policy_lets_the_page_have_its_import_map(tmp_path):
    hashed = "whitenoise.storage.CompressedManifestStaticFilesStorage"
    storages = {**django_settings.STORAGES, "staticfiles": {"BACKEND": hashed}}
    with override_settings(
        STORAGES=storages, STATIC_ROOT=tmp_path, WHITENOISE_KEEP_ONLY_HASHED_FILES=True
    ):
        assert str(tmp_path) in str(found()["webchat.W020"].hint)
        call_command("collectstatic", interactive=False, verbosity=0)
        assert not (tmp_path / STYLE).exists()
        assert not found()
        with override_settings(WEBCHAT_CSP="default-src 'self'"):
            assert "{nonce}" in str(found()["webchat.W007"].hint)
        for policy in ("script-src 'self' 'unsafe-inline'", "script-src 'self' {nonce}", None):
            with override_settings(WEBCHAT_CSP=policy):
                assert not found()


def test_djangos_storage_that_follows_imports_finds_no_circle_in_our_scripts(tmp_path):
    storage = {"BACKEND": f"{__name__}.FollowsImports"}
    storages = {**django_settings.STORAGES, "staticfiles": storage}
    with override_settings(STORAGES=storages, STATIC_ROOT=tmp_path, DEBUG=False):
        call_command("collectstatic", interactive=False, verbosity=0)
    [chat] = tmp_path.glob("webchat/js/chat.????????????.js")
    imported = re.findall(r'^import .* from "(.+)";$', chat.read_text("utf-8"), re.MULTILINE)
    assert imported
    assert all(re.search(r"\.[0-9a-f]{12}\.js$", name) for name in imported)


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
    monkeypatch.setattr(webchat_checks, "get_commands", lambda: {"runserver": "django.core"})
    assert ("webchat.W023" in found()) == is_said
