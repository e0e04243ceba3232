"""Routes of WebSockets, and their authentication: browsers by session, programs by token."""

from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import OriginValidator
from channels.sessions import SessionMiddlewareStack
from django.urls import path, re_path

from webchat import api_tokens
from webchat.consumers import NO_LAYER, ChatConsumer
from webchat.origins import SiteOriginValidator
from webchat.protocol.constants import CloseCode


class TokenAuthentication:
    """Accepts `Authorization: Bearer`. The Origin of a browser is checked all the same."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._for_browsers = SiteOriginValidator(SessionMiddlewareStack(inner))
        self._with_origin = SiteOriginValidator(inner)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Choose the authentication by the headers of the request."""
        headers = dict(scope.get("headers", ()))
        token = api_tokens.bearer_of(headers.get(b"authorization", b"").decode("latin1"))
        if token is None:
            await self._for_browsers(scope, receive, send)
            return
        user = await api_tokens.find_user_async(token)
        if user is None:
            await Refusal.as_asgi(code=CloseCode.SIGNED_OUT)(scope, receive, send)
            return
        known: Any = {**scope, "user": user, "token": token}
        await (self._with_origin if b"origin" in headers else self._inner)(known, receive, send)


def accepts_every_site(application: Any) -> bool:
    """Return whether an ASGI application serves the chat without a check of the Origin header."""
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
    """Accepts a socket and closes it with a code: browsers see no code of a socket that was never accepted."""

    channel_layer_alias = NO_LAYER  # it hears nothing, and refuses while the broker is away, too

    def __init__(self, *, code: int) -> None:
        super().__init__()
        self.code = code

    async def connect(self) -> None:
        await self.accept()
        await self.close(self.code)


# Django's functions take applications here, which their types do not know.
_chat: Any = ChatConsumer.as_asgi()
_not_found: Any = Refusal.as_asgi(code=CloseCode.NO_SUCH_CONVERSATION)
websocket_urlpatterns: Any = [
    path("ws/conversations/<str:conversation_id>/", _chat),
    re_path(r"", _not_found),
]
websocket_application = TokenAuthentication(URLRouter(websocket_urlpatterns))
