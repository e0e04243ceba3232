"""One filter of time for every list of history: it reads along the index of the list's own order."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import SEARCH_VAR
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django.contrib.admin.views.main import ChangeList

FROM, UNTIL = "when_from", "when_until"
ANY = "any"
DAY = "24h"
_SPANS = {
    "1h": (_("Last hour"), timedelta(hours=1)),
    "24h": (_("Last 24 hours"), timedelta(hours=24)),
    "7d": (_("Last 7 days"), timedelta(days=7)),
    "30d": (_("Last 30 days"), timedelta(days=30)),
}


class TimeFilter(admin.SimpleListFilter):
    """The last hour, day, week or month, or a range: from its first moment to before its last one.

    A list with a `default` is long: it says what a wider time costs.
    """

    title = _("time")
    parameter_name = "when"
    template = "admin/governance/time_filter.html"
    field_name: str
    default: str | None = None

    @classmethod
    def default_of(cls, request: HttpRequest) -> dict[str, str]:
        """Return the span that counts where none is asked for. What is searched for may be of any time."""
        names = (cls.parameter_name, FROM, UNTIL, SEARCH_VAR)
        is_asked = any(request.GET.get(str(name)) for name in names)
        return {} if is_asked or cls.default is None else {str(cls.parameter_name): cls.default}

    def __init__(
        self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any
    ) -> None:
        super().__init__(request, params, model, model_admin)
        for name in (FROM, UNTIL):
            if name in params:
                self.used_parameters[name] = params.pop(name)[-1]
        self._default = self.default_of(request).get(str(self.parameter_name))
        kept = request.GET.copy()
        for name in (*self._names, "p", "e"):
            kept.pop(name, None)
        self.other_parameters = [(name, value) for name in kept for value in kept.getlist(name)]

    @property
    def range(self) -> tuple[str, str]:
        """The ends of the chosen range as they were typed. A date is its first moment: no field shows it otherwise."""
        start, end = (str(self.used_parameters.get(name) or "") for name in (FROM, UNTIL))
        return _with_time(start), _with_time(end)

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(key, words) for key, (words, _span) in _SPANS.items()]

    def expected_parameters(self) -> list[str | None]:
        """Name what a query may hold."""
        return list(self._names)

    def choices(self, changelist: "ChangeList") -> Iterator[Any]:
        """Offer the spans; a span and a range exclude each other."""
        has_range = any(self.range)
        for key, words in [(None, _("Any time")), *self.lookup_choices]:
            asked = key or (ANY if self.default else None)
            chosen = {self.parameter_name: asked} if asked else {}
            yield {
                "selected": not has_range and self.value() == key,
                "query_string": changelist.get_query_string(chosen, list(self._names)),
                "display": words,
            }

    def value(self) -> str | None:
        """Return the span that counts; None = any time."""
        value = super().value() or self._default
        return None if value == ANY else value

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        start, end = (_parse_time(value) for value in self.range)
        span = self.value()
        if span is not None and span not in _SPANS:
            raise IncorrectLookupParameters  # an export would have all rows under its name
        if span is not None and start is None and end is None:
            start = timezone.now() - _SPANS[span][1]
        if start is not None:
            queryset = queryset.filter(**{f"{self.field_name}__gte": start})
        if end is not None:
            queryset = queryset.filter(**{f"{self.field_name}__lt": end})
        return queryset

    @property
    def _names(self) -> tuple[str, ...]:
        return str(self.parameter_name), FROM, UNTIL


def time_filter(field: str, *, default: str | None = None) -> type[TimeFilter]:
    """Return the filter for lists that are ordered by this field; `default` is what a long list shows at first."""
    return type("TimeFilter", (TimeFilter,), {"field_name": field, "default": default})


def _with_time(value: str) -> str:
    return f"{value}T00:00" if 0 < len(value) <= len("2026-01-31") else value


def _parse_time(value: str) -> datetime | None:
    """Read a time of the site's zone. Raise `IncorrectLookupParameters` for anything else."""
    if not value:
        return None
    try:
        moment = parse_datetime(value)
    except ValueError:  # it has the form of a time, and there is no such day
        moment = None
    if moment is None:
        raise IncorrectLookupParameters
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment
