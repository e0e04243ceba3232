"""Puts a strict Content-Security-Policy on every answer, and lets no address ask for the character NUL."""

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from webchat.conf import app_settings

HEADER = "Content-Security-Policy"

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
def NulCharacterMiddleware(get_response: GetResponse) -> GetResponse:  # noqa: N802 - the same
    """Replace NUL in what an address asks for: PostgreSQL compares nothing with it, so Django's admin would fail."""
    if iscoroutinefunction(get_response):

        async def replace_async(request: HttpRequest) -> HttpResponse:
            answer: HttpResponse = await get_response(_without_nul(request))
            return answer

        return replace_async

    def replace(request: HttpRequest) -> HttpResponse:
        return get_response(_without_nul(request))  # type: ignore[return-value]  # not a coroutine

    return replace


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
