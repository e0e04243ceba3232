"""Decorators that make webchat's views independent of the settings of the project that includes them."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import DisallowedHost
from django.db import connections, transaction
from django.http import HttpRequest

from governance.csp import with_policy
from webchat.conf import app_settings

View = Callable[..., Any]


def chat_view(view: View) -> View:
    """Send `WEBCHAT_CSP` with the responses of a view, and run it outside `ATOMIC_REQUESTS`.

    Django cannot run a coroutine in a transaction, and a sign-in would keep one open while it waits for a password
    check.
    """
    decorated = _with_chat_policy(view)
    for alias in connections:  # any database may have `ATOMIC_REQUESTS`
        decorated = transaction.non_atomic_requests(using=alias)(decorated)
    return decorated


def open_view(view: View) -> View:
    """Apply `chat_view`, and exempt the view from `LoginRequiredMiddleware`, because the view checks access itself."""
    return login_not_required(chat_view(view))


def policy_for(request: HttpRequest) -> str | None:
    """Return the Content-Security-Policy of the chat's pages, or None if the setting is None."""
    policy: str | None = app_settings.CSP
    return policy and policy.replace("{websocket}", _websocket_origin(request))


def _websocket_origin(request: HttpRequest) -> str:
    # In older browsers 'self' does not include the page's own WebSocket (https://github.com/w3c/webappsec-csp/issues/7).
    try:
        host = request.get_host()
    except DisallowedHost:
        return ""
    return f"{'wss' if request.is_secure() else 'ws'}://{host}"


_with_chat_policy = with_policy(policy_for)
