"""`GET /metrics`: numbers for Prometheus, for those who may see everybody's turns (B7)."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from governance.db import run_in_query_thread
from turns.exceptions import NotAllowed
from turns.storage import access
from webchat import api_errors, api_tokens, open_sockets

_sees_all = run_in_query_thread(access.sees_all)


@require_safe
async def metrics(request: HttpRequest) -> HttpResponse:
    """Return the numbers of this process and of the database as text; 404 where the extra is not installed."""
    if find_spec("prometheus_client") is None:
        sentence = _("Metrics need the extra “metrics”: pip install django-turnkeeper[metrics].")
        return api_errors.error(404, "metrics_not_installed", sentence)
    user = await _user_of(request)
    if user is None:
        return api_errors.signed_out("signed_out")
    if not await _may_see(user):
        return api_errors.error(403, "denied", _("This needs the permission turns.view_all."))
    numbers = import_module("turns.running.metrics")
    await numbers.look()
    return _render(numbers)


async def _user_of(request: HttpRequest) -> Any:
    token = api_tokens.bearer_of(request.headers.get("Authorization", ""))
    if token is not None:
        return await api_tokens.find_user_async(token)
    user = await request.auser()
    return user if user.is_authenticated else None


async def _may_see(user: AbstractBaseUser) -> bool:
    try:
        return await _sees_all(user)
    except NotAllowed:
        return False


def _render(numbers: Any) -> HttpResponse:
    exposition = import_module("prometheus_client.exposition")
    text: bytes = exposition.generate_latest(numbers.registry) + _socket_metrics()
    return HttpResponse(text, content_type=exposition.CONTENT_TYPE_LATEST)


def _socket_metrics() -> bytes:
    lines = (
        "# HELP turnkeeper_sockets Open sockets of this process",
        "# TYPE turnkeeper_sockets gauge",
        f"turnkeeper_sockets {open_sockets.count()}",
        "# HELP turnkeeper_outbox_overflows_total How often a client read too slowly for what was pushed to it",
        "# TYPE turnkeeper_outbox_overflows_total counter",
        f"turnkeeper_outbox_overflows_total {open_sockets.overflow_count()}",
        "",
    )
    return "\n".join(lines).encode()


urlpatterns = [path("metrics", metrics, name="metrics")]
