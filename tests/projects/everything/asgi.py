"""HTTP to Django, WebSockets to the chat, start and end of the server to the turns."""

import os

from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "everything.settings")

http_application = get_asgi_application()  # sets Django up; the imports below need its apps

from turns.lifespan import LifespanApplication  # noqa: E402
from webchat.routing import websocket_application  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": http_application,
        "websocket": websocket_application,
        "lifespan": LifespanApplication(),
    }
)
