"""Django's own middleware for coroutines: each half that waits for nothing runs at once. `webchat.asgi` puts it in.

Django hands both halves of each to the request's thread, and waits for it. For most requests that takes longer than what
they ask for.
"""

from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.conf.urls.i18n import is_language_prefix_patterns_used
from django.contrib.auth import middleware as auth
from django.contrib.messages import middleware as messages
from django.contrib.sessions import middleware as sessions
from django.http import HttpRequest
from django.middleware import clickjacking, common, csrf, locale, security
from django.utils.deprecation import MiddlewareMixin

MOST_KNOWN, LONGEST_KNOWN = 500, 200  # wishes for languages, and characters of one


class _AsyncMiddleware(MiddlewareMixin):
    """A middleware of Django's that says whether its halves may wait for a database or a file."""

    def request_waits(self, request: HttpRequest) -> bool:
        """Return whether `process_request` may wait, and needs a thread."""
        return False

    def response_waits(self, request: HttpRequest) -> bool:
        """Return whether `process_response` may wait, and needs a thread."""
        return False

    async def __acall__(self, request: HttpRequest) -> Any:
        """Do what Django's own does, and take a thread only where one is needed."""
        answer: Any = None
        if before := getattr(self, "process_request", None):
            answer = await _run(before, request, waits=self.request_waits(request))
        go_on: Any = self.get_response
        answer = answer or await go_on(request)
        if after := getattr(self, "process_response", None):
            answer = await _run(after, request, answer, waits=self.response_waits(request))
        return answer


async def _run(half: Callable[..., Any], *given: Any, waits: bool) -> Any:
    return await sync_to_async(half, thread_sensitive=True)(*given) if waits else half(*given)


class SecurityMiddleware(_AsyncMiddleware, security.SecurityMiddleware):
    """Waits for nothing."""


class SessionMiddleware(_AsyncMiddleware, sessions.SessionMiddleware):
    """Needs a thread to store a session."""

    def response_waits(self, request: HttpRequest) -> bool:
        """Return whether the session is to be stored."""
        session = getattr(request, "session", None)
        return session is not None and (session.modified or settings.SESSION_SAVE_EVERY_REQUEST)


class LocaleMiddleware(_AsyncMiddleware, locale.LocaleMiddleware):
    """Needs a thread to look for a language and to read its texts, once for what browsers ask for."""

    _known: set[tuple[str, str]] = set()

    def request_waits(self, request: HttpRequest) -> bool:
        """Return whether nobody has asked for the same languages yet, or the address may name another."""
        urls = getattr(request, "urlconf", settings.ROOT_URLCONF)
        are_in_addresses, _ = is_language_prefix_patterns_used(urls)
        return are_in_addresses or _languages_asked_for(request) not in self._known

    def process_request(self, request: HttpRequest) -> None:
        """Activate the language, and remember that its texts are there."""
        super().process_request(request)
        asked_for = _languages_asked_for(request)
        if len(self._known) < MOST_KNOWN and len("".join(asked_for)) <= LONGEST_KNOWN:
            self._known.add(asked_for)


def _languages_asked_for(request: HttpRequest) -> tuple[str, str]:
    chosen = request.COOKIES.get(settings.LANGUAGE_COOKIE_NAME, "")
    return chosen, request.META.get("HTTP_ACCEPT_LANGUAGE", "")


class CommonMiddleware(_AsyncMiddleware, common.CommonMiddleware):
    """Waits for nothing."""


class CsrfViewMiddleware(_AsyncMiddleware, csrf.CsrfViewMiddleware):
    """Needs a thread to compare a token: it may be in a form, and a refusal is a page."""

    def __init__(self, get_response: Any) -> None:
        super().__init__(get_response)
        if self.async_mode:
            self.process_view = self._process_view  # type: ignore[method-assign, assignment]  # Django looks what it is

    def request_waits(self, request: HttpRequest) -> bool:
        """Return whether the secret is in the session."""
        return settings.CSRF_USE_SESSIONS

    def response_waits(self, request: HttpRequest) -> bool:
        """Return whether the secret is in the session."""
        return settings.CSRF_USE_SESSIONS

    async def _process_view(self, request: HttpRequest, view: Any, *given: Any) -> Any:
        is_accepted = request.method in _SAFE or getattr(view, "csrf_exempt", False)
        return await _run(super().process_view, request, view, *given, waits=not is_accepted)


_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # Django compares no token of these


class AuthenticationMiddleware(_AsyncMiddleware, auth.AuthenticationMiddleware):
    """Waits for nothing: who it is, is asked for where somebody needs to know."""


class MessageMiddleware(_AsyncMiddleware, messages.MessageMiddleware):
    """Needs a thread to store messages, which may be in the session."""

    def response_waits(self, request: HttpRequest) -> bool:
        """Return whether messages were added or shown."""
        storage = getattr(request, "_messages", None)
        return storage is not None and (storage.used or storage.added_new)


class XFrameOptionsMiddleware(_AsyncMiddleware, clickjacking.XFrameOptionsMiddleware):
    """Waits for nothing."""
