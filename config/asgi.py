"""The ASGI application: it passes HTTP to Django, WebSockets to the chat, and lifespan events to the turn supervisor."""

import os

from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

# This call sets Django up. The imports below need its apps to be loaded.
http_application = get_asgi_application()

from turns.lifespan import LifespanApplication  # noqa: E402
from webchat.body_limit import BodyLimit  # noqa: E402
from webchat.routing import websocket_application  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": BodyLimit(http_application),
        "websocket": websocket_application,
        "lifespan": LifespanApplication(),
    },
)
