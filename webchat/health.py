"""Health endpoints for monitoring: `/healthz` (the process responds) and `/readyz` (it can accept work)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from channels.layers import get_channel_layer
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from governance.db import database_connection, run_in_probe_thread
from governance.per_loop import PerLoop
from turns.running import runtime
from turns.storage.database_state import missing_migrations
from webchat import broadcast
from webchat.conf import app_settings
from webchat.decorators import open_view

logger = logging.getLogger(__name__)


@open_view
@never_cache
@require_safe
async def healthz(request: HttpRequest) -> JsonResponse:
    """Return status 200, which shows that the process is alive, without checking anything else."""
    return JsonResponse({"ok": True})


@open_view
@never_cache
@require_safe
async def readyz(request: HttpRequest) -> JsonResponse:
    """Return whether this process can accept work, with status 503 if it cannot.

    The channel layer is reported but does not affect the status, because updates are only slower without it.
    """
    if await runtime.is_draining():
        return JsonResponse({"ok": False, "draining": True}, status=503)
    database, layer = await asyncio.gather(_database.answers(), _layer.answers())
    takes_work = await runtime.takes_work()
    ok = database and takes_work and not _schema.missing
    facts = {
        "database": database,
        "missing_migrations": _schema.missing or [],
        "channel_layer": layer,
        "takes_work": takes_work,
    }
    return JsonResponse({"ok": ok, **facts, "draining": False}, status=200 if ok else 503)


class _Probe:
    """A check that may hang. Only one runs at a time, and requests wait for it at most `WEBCHAT_READY_TIMEOUT` seconds."""

    def __init__(self, what: str, ask: Callable[[], Awaitable[None]]) -> None:
        self._what = what
        self._ask = ask
        self._asked: PerLoop[asyncio.Task[bool]] = PerLoop()
        self._is_told = False

    async def answers(self) -> bool:
        """Return whether the check succeeds in time. A check that is still running is reused by the next request."""
        task = self._asked.get()
        if task is None or task.done():
            task = asyncio.create_task(self._try(), name=f"probe: {self._what}")
            self._asked.set(task)
        await asyncio.wait({task}, timeout=app_settings.READY_TIMEOUT)
        if not task.done():
            self._tell("The %s does not answer in time")
        return task.done() and not task.cancelled() and task.result()

    async def _try(self) -> bool:
        try:
            await self._ask()
        except Exception as failure:  # noqa: BLE001 - any exception means that the check failed
            self._tell("The %s does not answer", failure)
            return False
        self._is_told = False
        return True

    def _tell(self, message: str, failure: Exception | None = None) -> None:
        """Log an outage only once, because monitoring may send a request every second."""
        if not self._is_told:
            logger.warning(message, self._what, exc_info=failure)
        self._is_told = True


class _Schema:
    """The state of the database's schema. `missing` has the unapplied migrations; it is None before the first check."""

    def __init__(self) -> None:
        self.missing: list[str] | None = None


_schema = _Schema()


@run_in_probe_thread
def _check_database() -> None:
    with database_connection().cursor() as cursor:
        cursor.execute("SELECT 1")
    if _schema.missing != []:  # a complete schema stays complete
        _schema.missing = missing_migrations()


async def _check_layer() -> None:
    if get_channel_layer() is None:
        raise LookupError("no channel layer is configured")
    await broadcast.probe()


_database = _Probe("database", _check_database)
_layer = _Probe("channel layer", _check_layer)


async def ask_all() -> list[tuple[str, bool]]:
    """Check the database and the channel layer concurrently. Return the name and result of each check."""
    answers = await asyncio.gather(_database.answers(), _layer.answers())
    return list(zip((_("Database"), _("Channel layer")), answers, strict=True))


urlpatterns = [path("healthz", healthz, name="healthz"), path("readyz", readyz, name="readyz")]
