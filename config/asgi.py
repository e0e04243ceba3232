"""The ASGI application: it routes HTTP to Django, WebSockets to the chat, and the lifespan to the turns."""

import os

from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

# Django sets itself up here; the imports below need its apps.
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
