"""A browser may open a socket from a page of this site, as Django judges forms (scheme, host, port)."""

import logging
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from django.utils.http import is_same_domain

logger = logging.getLogger(__name__)

DEFAULT_PORTS = {"http": 80, "https": 443}
SOCKET_SCHEMES = {"ws": "http", "wss": "https"}


class SiteOriginValidator:
    """Refuses browsers that stand on another site: with another scheme, host or port, and not in `CSRF_TRUSTED_ORIGINS`."""

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Let it pass, or close the socket before it is open."""
        request = _as_request(scope)
        origin = request.headers.get("Origin", "")
        if _is_own(origin, request):
            await self._application(scope, receive, send)
            return
        logger.warning(
            "A socket was refused: its page is of another site", extra={"origin": origin}
        )
        # Not by Channels' consumer for it, which fails where the channel layer's broker is away.
        await receive()
        await send({"type": "websocket.close"})


def _is_own(origin: str, request: HttpRequest) -> bool:
    parsed = _parsed(origin)
    if parsed is None:
        return False
    if any(_allows(trusted, parsed) for trusted in settings.CSRF_TRUSTED_ORIGINS):
        return True
    try:
        return parsed == _parsed(f"{request.scheme}://{request.get_host()}")
    except DisallowedHost:
        return False


def _allows(trusted: str, origin: tuple[str, str]) -> bool:
    known = _parsed(trusted)
    return (
        known is not None
        and known[0] == origin[0]
        and is_same_domain(origin[1], known[1].removeprefix("*"))
    )


def _parsed(origin: str) -> tuple[str, str] | None:
    """Return the scheme, and the host with its port also where it is the default one. None for what is no origin."""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        return None
    return parts.scheme, f"{parts.hostname}:{DEFAULT_PORTS[parts.scheme] if port is None else port}"


def _as_request(scope: Any) -> HttpRequest:
    """Return a socket's opening as an HTTP request, so that Django finds its scheme and host as usual."""
    scheme = scope.get("scheme", "ws")
    http = {"method": "GET", "scheme": SOCKET_SCHEMES.get(scheme, scheme), "query_string": b""}
    request = ASGIRequest({**scope, **http}, BytesIO())
    believed: tuple[str, str] | None = getattr(settings, "SECURE_PROXY_SSL_HEADER", None)
    if believed and (said := request.META.get(believed[0])):
        request.META[believed[0]] = SOCKET_SCHEMES.get(said, said)  # some proxies say "wss" here
    return request
