"""Signs of life for whatever watches the server: `/healthz` (it answers) and `/readyz` (it can work)."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from channels.layers import get_channel_layer
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.http import require_safe

from governance.doors import database_door
from turns import runtime
from webchat.conf import app_settings

logger = logging.getLogger(__name__)


@require_safe
async def healthz(request: HttpRequest) -> JsonResponse:
    """Say that the process answers; nothing else is asked."""
    return JsonResponse({"ok": True})


@require_safe
async def readyz(request: HttpRequest) -> JsonResponse:
    """Say whether the database and the channel layer answer in time; 503 if one does not, or if the process goes down."""
    if await runtime.is_draining():
        return JsonResponse({"ok": False, "draining": True}, status=503)
    database, layer = await asyncio.gather(
        _answers(_ask_database(), "database"), _answers(_ask_layer(), "channel layer")
    )
    ok = database and layer
    return JsonResponse(
        {"ok": ok, "database": database, "channel_layer": layer, "draining": False},
        status=200 if ok else 503,
    )


async def _answers(question: Coroutine[Any, Any, None], what: str) -> bool:
    try:
        async with asyncio.timeout(app_settings.READY_TIMEOUT):
            await question
    except Exception:
        logger.exception("Not ready: the %s does not answer", what)
        return False
    return True


@database_door
def _ask_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


async def _ask_layer() -> None:
    layer = get_channel_layer()
    if layer is None:
        raise LookupError("no channel layer is configured")
    # To a group that nobody joins: it reaches the broker and leaves nothing behind there.
    await layer.group_send("webchat.ready", {"type": "ready.ask"})


urlpatterns = [path("healthz", healthz, name="healthz"), path("readyz", readyz, name="readyz")]
