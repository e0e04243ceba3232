"""Puts a strict Content-Security-Policy on every answer, and lets no lookup be an error of Django's admin."""

import logging
from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import DisallowedHost
from django.db import DataError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.decorators import sync_and_async_middleware

from webchat.conf import app_settings

logger = logging.getLogger(__name__)

HEADER = "Content-Security-Policy"
_ERROR = "e"  # of a list's address, by Django: what it was asked for is left out

GetResponse = (
    Callable[[HttpRequest], HttpResponse] | Callable[[HttpRequest], Awaitable[HttpResponse]]
)


@sync_and_async_middleware
def ContentSecurityPolicyMiddleware(get_response: GetResponse) -> GetResponse:  # noqa: N802 - Django names middleware so
    """Add the policy of `WEBCHAT_CSP`. None leaves it to the host project, as does a header that a view has set."""
    if iscoroutinefunction(get_response):

        async def add_policy_async(request: HttpRequest) -> HttpResponse:
            return _with_policy(request, await get_response(request))

        return add_policy_async

    def add_policy(request: HttpRequest) -> HttpResponse:
        return _with_policy(request, get_response(request))  # type: ignore[arg-type]  # not a coroutine: checked above

    return add_policy


@sync_and_async_middleware
def AdminLookupsMiddleware(get_response: GetResponse) -> GetResponse:  # noqa: N802 - the same
    """Let lists of the admin that are Django's or another app's answer lookups that no database compares.

    The character NUL is replaced in every address: PostgreSQL compares nothing with it.
    """
    if iscoroutinefunction(get_response):

        async def replace_async(request: HttpRequest) -> HttpResponse:
            answer: HttpResponse = await get_response(_without_nul(request))
            return answer

        return _answering_lookups(replace_async)

    def replace(request: HttpRequest) -> HttpResponse:
        return get_response(_without_nul(request))  # type: ignore[return-value]  # not a coroutine

    return _answering_lookups(replace)


def _answering_lookups(middleware: GetResponse) -> GetResponse:
    middleware.process_exception = _list_without_lookups  # type: ignore[union-attr]  # Django asks for it
    return middleware


def _list_without_lookups(request: HttpRequest, problem: Exception) -> HttpResponse | None:
    """Answer such a lookup, or such a key of a chosen row, as Django answers unknown lookups."""
    match = request.resolver_match
    is_list = (
        match is not None and match.app_name == "admin" and match.view_name.endswith("_changelist")
    )
    is_asked = bool(request.GET) or ACTION_CHECKBOX_NAME in request.POST
    if not is_list or not is_asked or _ERROR in request.GET:
        return None
    if not isinstance(problem, DataError | OverflowError | ValueError):
        return None
    logger.warning("A list of the admin was asked for what makes no sense", exc_info=problem)
    return HttpResponseRedirect(f"{request.path}?{_ERROR}=1")


def _without_nul(request: HttpRequest) -> HttpRequest:
    query = request.META.get("QUERY_STRING", "")
    request.META["QUERY_STRING"] = query.replace("%00", "%EF%BF%BD")
    return request


def _with_policy(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    policy: str | None = app_settings.CSP
    if policy is not None and HEADER not in response:
        response[HEADER] = policy.replace("{websocket}", _websocket_origin(request))
    return response


def _websocket_origin(request: HttpRequest) -> str:
    # Older browsers do not count a page's own WebSocket as 'self' (https://github.com/w3c/webappsec-csp/issues/7).
    try:
        host = request.get_host()
    except DisallowedHost:
        return ""
    return f"{'wss' if request.is_secure() else 'ws'}://{host}"
