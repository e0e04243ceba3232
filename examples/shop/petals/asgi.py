"""The ASGI application: pages, the socket of the chat, and the turns behind it."""

import os

from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "petals.settings")
http_application = get_asgi_application()

from turns.lifespan import LifespanApplication  # noqa: E402
from webchat.routing import websocket_application  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": http_application,
        "websocket": websocket_application,
        "lifespan": LifespanApplication(),
    }
)
