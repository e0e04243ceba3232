"""The Content-Security-Policy: sent by our own views, beside whatever a project sends with its pages."""

from pathlib import Path
from typing import Any

import pytest
from django import VERSION
from django.contrib import admin
from django.test import Client, RequestFactory
from django.urls import reverse

from governance.conf import app_settings
from webchat.sign_in import locked_out


@pytest.fixture
def without_middleware(settings: Any) -> None:
    """Take the middleware away that the shipped site has for all its pages: a host has none."""
    ours = "webchat.middleware.ContentSecurityPolicyMiddleware"
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if name != ours]


@pytest.mark.usefixtures("without_middleware")
def test_the_chat_has_its_policy_by_itself_and_other_pages_have_none(
    admin_client: Client, client: Client, rf: RequestFactory
) -> None:
    for path in ("/", reverse("webchat:new_conversation"), reverse("webchat:healthz")):
        assert "script-src" in admin_client.get(path)["Content-Security-Policy"]
    assert "script-src" in client.get(reverse("webchat:login"))["Content-Security-Policy"]
    # A sign-in that found no room is answered by a middleware, and no view.
    assert "script-src" in locked_out(rf.get("/login/"))["Content-Security-Policy"]
    for path in (
        reverse("admin:auth_group_changelist"),
        reverse("admin:auth_user_changelist"),
        "/nowhere/",
    ):
        assert "Content-Security-Policy" not in admin_client.get(path)


@pytest.mark.usefixtures("without_middleware")
def test_our_pages_of_the_admin_have_a_policy_unless_a_theme_is_around_them(
    admin_client: Client, settings: Any, tmp_path: Path
) -> None:
    ours = [
        reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        for model in admin.site._registry
        if model._meta.app_label in ("governance", "turns", "webchat")
    ]
    assert len(ours) > 10
    for path in (*ours, reverse("admin:turns_overview")):
        assert admin_client.get(path)["Content-Security-Policy"] == app_settings.ADMIN_CSP
    settings.GOVERNANCE_ADMIN_CSP = None
    assert "Content-Security-Policy" not in admin_client.get(ours[0])
    del settings.GOVERNANCE_ADMIN_CSP
    theme = tmp_path / "admin" / "base_site.html"
    theme.parent.mkdir()
    theme.write_text('{% extends "admin/base.html" %}', "utf-8")
    [engine] = settings.TEMPLATES
    settings.TEMPLATES = [{**engine, "DIRS": [tmp_path, *engine["DIRS"]]}]
    assert "Content-Security-Policy" not in admin_client.get(ours[0])


def test_the_sites_middleware_sends_the_chats_policy_where_a_view_has_none(
    admin_client: Client,
) -> None:
    ours = admin_client.get(reverse("admin:turns_overview"))["Content-Security-Policy"]
    other = admin_client.get(reverse("admin:auth_group_changelist"))["Content-Security-Policy"]
    assert ours == app_settings.ADMIN_CSP
    assert other.startswith("default-src 'self'; script-src 'self' 'nonce-")


class OwnPolicy:
    """A middleware of a project that sends a policy with a nonce, as django-csp does."""

    sync_capable, async_capable = True, False

    def __init__(self, get_response: Any) -> None:
        self._get_response = get_response

    def __call__(self, request: Any) -> Any:
        request.csp_nonce = "of-the-project"
        answer = self._get_response(request)
        answer.setdefault("Content-Security-Policy", "script-src 'nonce-of-the-project'")
        return answer


@pytest.mark.usefixtures("without_middleware")
def test_a_policy_of_the_project_leaves_ours_alone_and_its_nonce_is_good_for_both(
    admin_client: Client, settings: Any
) -> None:
    settings.MIDDLEWARE = [f"{__name__}.OwnPolicy", *settings.MIDDLEWARE]
    policy = admin_client.get("/")["Content-Security-Policy"]
    assert policy.startswith("default-src 'self'; script-src 'self' 'nonce-of-the-project';")
    index = admin_client.get(reverse("admin:auth_group_changelist"))["Content-Security-Policy"]
    assert index == "script-src 'nonce-of-the-project'"
    settings.WEBCHAT_CSP = None
    assert admin_client.get("/")["Content-Security-Policy"] == index


@pytest.mark.skipif(VERSION < (6, 0), reason="Django has no policy of its own before 6.0")
@pytest.mark.usefixtures("without_middleware")
def test_djangos_own_policy_leaves_ours_alone_and_its_nonce_is_good_for_both(
    admin_client: Client, settings: Any
) -> None:
    settings.SECURE_CSP = {"default-src": ["'self'"]}
    settings.SECURE_CSP_REPORT_ONLY = {"script-src": ["<CSP_NONCE_SENTINEL>"]}
    settings.MIDDLEWARE = [
        "django.middleware.csp.ContentSecurityPolicyMiddleware",
        *settings.MIDDLEWARE,
    ]
    answer = admin_client.get("/")
    reported = answer["Content-Security-Policy-Report-Only"].removeprefix("script-src ")
    assert f"script-src 'self' {reported};" in answer["Content-Security-Policy"]
    settings.WEBCHAT_CSP = None
    assert admin_client.get("/")["Content-Security-Policy"] == "default-src 'self'"
