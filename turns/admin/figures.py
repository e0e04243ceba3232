"""Pages of figures about a list of the audit: charts over a span that is chosen by a link."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

TEMPLATE = "admin/turns/figures.html"
SPANS = {
    "7d": (_("7 days"), timedelta(days=7)),
    "30d": (_("30 days"), timedelta(days=30)),
    "90d": (_("90 days"), timedelta(days=90)),
}
DEFAULT = "30d"


def show_figures(
    request: HttpRequest,
    model_admin: "ModelAdmin[Model]",
    *,
    title: Any,
    draw: Callable[[int], Sequence[SafeString]],
) -> HttpResponse:
    """Show what `draw` makes of so many days, to whoever may see the list."""
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    chosen = request.GET.get("span", DEFAULT)
    chosen = chosen if chosen in SPANS else DEFAULT
    context = {
        **model_admin.admin_site.each_context(request),
        "title": title,
        "opts": model_admin.opts,
        "media": model_admin.media,
        "spans": [(name, words, name == chosen) for name, (words, _span) in SPANS.items()],
        "charts": draw(SPANS[chosen][1].days),
    }
    return TemplateResponse(request, TEMPLATE, context)
