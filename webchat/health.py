"""Signs of life for whatever watches the server: `/healthz` (it answers) and `/readyz` (it can take work)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from channels.layers import get_channel_layer
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from governance import health_checks
from governance.db import run_in_probe_thread
from governance.per_loop import PerLoop
from turns.running import runtime
from webchat.conf import app_settings

logger = logging.getLogger(__name__)


@require_safe
async def healthz(request: HttpRequest) -> JsonResponse:
    """Say that the process answers; nothing else is asked."""
    return JsonResponse({"ok": True})


@require_safe
async def readyz(request: HttpRequest) -> JsonResponse:
    """Say whether this process can take work. If not, the answer is 503.

    The channel layer carries hints and streamed text. Without it everything works, only later, so it decides nothing.
    """
    if await runtime.is_draining():
        return JsonResponse({"ok": False, "draining": True}, status=503)
    database, layer = await asyncio.gather(_database.answers(), _layer.answers())
    takes_work = await runtime.takes_work()
    ok = database and takes_work
    facts = {"database": database, "channel_layer": layer, "takes_work": takes_work}
    return JsonResponse({"ok": ok, **facts, "draining": False}, status=200 if ok else 503)


class _Probe:
    """A question that may hang: asked once at a time, and nobody waits for it longer than the settings allow."""

    def __init__(self, what: str, ask: Callable[[], Awaitable[None]]) -> None:
        self._what = what
        self._ask = ask
        self._asked: PerLoop[asyncio.Task[bool]] = PerLoop()

    async def answers(self) -> bool:
        """Return whether there is an answer in time; one that comes too late is waited for by whoever asks next."""
        asked = self._asked.get()
        if asked is None or asked.done():
            asked = asyncio.create_task(self._try(), name=f"probe: {self._what}")
            self._asked.set(asked)
        await asyncio.wait({asked}, timeout=app_settings.READY_TIMEOUT)
        if not asked.done():
            logger.warning("The %s does not answer in time", self._what)
        return asked.done() and not asked.cancelled() and asked.result()

    async def _try(self) -> bool:
        try:
            await self._ask()
        except Exception:
            logger.warning("The %s does not answer", self._what, exc_info=True)
            return False
        return True


@run_in_probe_thread
def _check_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


async def _check_layer() -> None:
    layer = get_channel_layer()
    if layer is None:
        raise LookupError("no channel layer is configured")
    # To a group that nobody joins: it reaches the broker and leaves nothing behind there.
    await layer.group_send("webchat.ready", {"type": "ready.ask"})


_database = _Probe("database", _check_database)
_layer = _Probe("channel layer", _check_layer)


def register_checks() -> None:
    """Let the overview of the admin show what `/readyz` asks."""
    for label, probe in ((_("Database"), _database), (_("Channel layer"), _layer)):
        health_checks.register(
            health_checks.HealthCheck(label=label, ask=probe.answers, page="webchat:readyz")
        )


urlpatterns = [path("healthz", healthz, name="healthz"), path("readyz", readyz, name="readyz")]
