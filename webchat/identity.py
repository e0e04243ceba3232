"""Finds the user of a connection.

The user is read from the database each time, because a socket can outlive its session, its token and its user's
account.
"""

import hashlib
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib import auth
from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest

from governance.db import run_in_query_thread
from webchat import api_tokens
from webchat.exceptions import SignedOut


class _ReadOnlySession(dict[str, Any]):
    """A session that Django can only verify, because a socket cannot send the browser a new cookie."""

    def cycle_key(self) -> None:
        """Keep the session's key if one of `SECRET_KEY_FALLBACKS` verified it. The next page request rotates the key."""

    def flush(self) -> None:
        """Keep a session that could not be verified. It authenticates no user."""


def user_of_session(session_key: str) -> AbstractBaseUser | None:
    request: Any = HttpRequest()
    session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    request.session = _ReadOnlySession(session.items())
    user = auth.get_user(request)
    return user if isinstance(user, AbstractBaseUser) and user.is_active else None


def user_of(scope: Mapping[str, Any]) -> AbstractBaseUser:
    """Return the current user of a socket from the database. Raise `SignedOut` if there is none."""
    user = (
        api_tokens.find_user(scope["token"])
        if "token" in scope
        else user_of_session(_session_key(scope) or "")
    )
    if user is None:
        raise SignedOut("signed_out", "")
    return user


current_user = run_in_query_thread(user_of)


def fingerprint(session_key: str | None) -> str:
    """Return a hash of a session's key. Unlike the key itself, it may be sent through the channel layer."""
    return hashlib.sha256((session_key or "").encode()).hexdigest()


def session_fingerprint(scope: Mapping[str, Any]) -> str | None:
    """Return the fingerprint of a socket's session, or None if the socket has no session."""
    key = _session_key(scope)
    return fingerprint(key) if key else None


def _session_key(scope: Mapping[str, Any]) -> str | None:
    session = scope.get("session")
    return session.session_key if session is not None else None
