"""Routes WebSockets and authenticates them. Browsers need a session and a page of this site, and programs a token."""

import logging
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

from channels.generic.websocket import AsyncWebsocketConsumer
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import OriginValidator
from channels.sessions import SessionMiddlewareStack
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from django.urls import path, re_path
from django.utils.http import is_same_domain

from webchat import api_tokens
from webchat.consumers import NO_LAYER, ChatConsumer
from webchat.protocol.server_frames import CloseCode

logger = logging.getLogger(__name__)

DEFAULT_PORTS = {"http": 80, "https": 443}
SOCKET_SCHEMES = {"ws": "http", "wss": "https"}


class TokenAuthentication:
    """Authenticates sockets by an `Authorization: Bearer` header or else by a session. Each Origin header is checked."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._for_browsers = SiteOriginValidator(SessionMiddlewareStack(inner))
        self._with_origin = SiteOriginValidator(inner)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass the socket on with the user of its token, or to the authentication by session if it has no token."""
        scope = _without_script_name(scope)
        headers = dict(scope.get("headers", ()))
        token = api_tokens.bearer_of(headers.get(b"authorization", b"").decode("latin1"))
        if token is None:
            await self._for_browsers(scope, receive, send)
            return
        user = await api_tokens.find_user_async(token)
        if user is None:
            await Refusal.as_asgi(code=CloseCode.SIGNED_OUT)(scope, receive, send)
            return
        new_scope: Any = {**scope, "user": user, "token": token}
        await (self._with_origin if b"origin" in headers else self._inner)(new_scope, receive, send)


def _without_script_name(scope: Any) -> Any:
    """Return the scope with the site's prefix removed from its path, like Django removes it from a request's path.

    Channels' router raises an error if the path does not begin with `root_path`, and ignores `FORCE_SCRIPT_NAME`.
    """
    prefix = (settings.FORCE_SCRIPT_NAME or scope.get("root_path", "")).rstrip("/")
    if not prefix:
        return scope
    path = scope["path"]
    if path.startswith(f"{prefix}/"):
        path = path.removeprefix(prefix)
    return {**scope, "path": path, "root_path": ""}


def accepts_every_site(application: Any) -> bool:
    """Return whether an ASGI application serves the chat without checking the Origin header."""
    if isinstance(application, (OriginValidator, SiteOriginValidator, TokenAuthentication)):
        return False
    consumer = getattr(application, "consumer_class", None)
    if isinstance(consumer, type):
        return issubclass(consumer, ChatConsumer)
    if isinstance(application, ProtocolTypeRouter):
        return accepts_every_site(application.application_mapping.get("websocket"))
    if isinstance(application, URLRouter):
        return any(
            accepts_every_site(getattr(route, "callback", route)) for route in application.routes
        )
    inner = getattr(application, "inner", None) or getattr(application, "app", None)
    return inner is not None and accepts_every_site(inner)


class Refusal(AsyncWebsocketConsumer):
    """A consumer that accepts a socket and closes it with a code. Browsers do not see the code of a rejected socket."""

    channel_layer_alias = (
        NO_LAYER  # it needs no layer, so it works even if the broker is unreachable
    )

    def __init__(self, *, code: int) -> None:
        super().__init__()
        self.code = code

    async def connect(self) -> None:
        await self.accept()
        await self.close(self.code)


class SiteOriginValidator:
    """Refuses sockets of pages with another scheme, host or port, unless their origin is in `CSRF_TRUSTED_ORIGINS`."""

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass the socket on if its origin is allowed. Otherwise reject it before it opens."""
        request = _as_request(scope)
        origin = request.headers.get("Origin", "")
        if _is_own(origin, request):
            await self._application(scope, receive, send)
            return
        logger.warning(
            "A socket was refused: its page is of another site", extra={"origin": origin}
        )
        # The consumer of Channels for this fails if the broker of the channel layer is unreachable.
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
    trusted_origin = _parsed(trusted)
    return (
        trusted_origin is not None
        and trusted_origin[0] == origin[0]
        and is_same_domain(origin[1], trusted_origin[1].removeprefix("*"))
    )


def _parsed(origin: str) -> tuple[str, str] | None:
    """Return the scheme of an origin and its host with port, even a default port.

    Return None if the text is not an origin.
    """
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        return None
    return parts.scheme, f"{parts.hostname}:{DEFAULT_PORTS[parts.scheme] if port is None else port}"


def _as_request(scope: Any) -> HttpRequest:
    """Return a socket's handshake as an HTTP request, from which Django can determine the scheme and host."""
    scheme = scope.get("scheme", "ws")
    http = {"method": "GET", "scheme": SOCKET_SCHEMES.get(scheme, scheme), "query_string": b""}
    # Django determines scheme and host behind proxies only for requests, and documents no other way to create one from
    # a scope.
    request = ASGIRequest({**scope, **http}, BytesIO())
    believed: tuple[str, str] | None = getattr(settings, "SECURE_PROXY_SSL_HEADER", None)
    if believed and (value := request.META.get(believed[0])):
        request.META[believed[0]] = SOCKET_SCHEMES.get(value, value)  # some proxies send "wss" here
    return request


# Django's URL functions accept ASGI applications, but their type annotations do not.
_chat: Any = ChatConsumer.as_asgi()
_not_found: Any = Refusal.as_asgi(code=CloseCode.NO_SUCH_CONVERSATION)
websocket_urlpatterns: Any = [
    path("ws/conversations/<str:conversation_id>/", _chat),
    re_path(r"", _not_found),
]
websocket_application = TokenAuthentication(URLRouter(websocket_urlpatterns))
