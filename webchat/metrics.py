"""`GET /metrics` returns metrics for Prometheus to users who may see all turns (B7)."""

from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from governance.db import run_in_query_thread
from governance.threads import run_in_thread
from turns.exceptions import NotAllowed
from turns.storage import access
from webchat import api_errors, api_tokens
from webchat.decorators import open_view

if TYPE_CHECKING:  # an optional dependency
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

_SCOPES = ("all", "process", "site")

_sees_all = run_in_query_thread(access.sees_all)


@open_view
@never_cache
@require_safe
async def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics of this process, of the site, or of both as text.

    Without the `metrics` extra, the status is 404.

    `?scope=process` omits the metrics that are the same for every process. `?scope=site` returns only those.
    """
    if find_spec("prometheus_client") is None:
        sentence = _("Metrics need the “metrics” extra: pip install django-turnkeeper[metrics].")
        return api_errors.error(404, "metrics_not_installed", sentence)
    user = await _user_of(request)
    if user is None:
        return api_errors.signed_out("signed_out")
    if not await _may_see(user):
        return api_errors.error(403, "denied", _("This needs the permission turns.view_all."))
    scope = request.GET.get("scope", "all")
    if scope not in _SCOPES:
        sentence = _("“scope” must be “process”, “site” or “all”.")
        return api_errors.error(400, "invalid_scope", sentence)
    # In a thread, because some metrics of the process are read from files in `/proc`.
    return await run_in_thread(
        _render, await _read(scope), accept=request.headers.get("Accept", "")
    )


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


async def _read(scope: str) -> "_Joined":
    read: list[Collector] = []
    if scope != "site":
        read.append(import_module("turns.running.metrics").registry)
    if scope != "process":
        read.append(await import_module("turns.running.metrics").read_site())
    return _Joined(read)


class _Joined:
    """A collector that yields the metrics of several collectors."""

    def __init__(self, collectors: Iterable["Collector"]) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator["Metric"]:
        for collector in self._collectors:
            yield from collector.collect()


def _render(collector: _Joined, *, accept: str) -> HttpResponse:
    encode, content_type = import_module("prometheus_client.exposition").choose_encoder(accept)
    return HttpResponse(encode(collector), content_type=content_type)


urlpatterns = [path("metrics", metrics, name="metrics")]
