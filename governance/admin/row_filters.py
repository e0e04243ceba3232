"""Filters that narrow a list by a function. Their values are typed as a whole, or chosen among a few."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from governance.call_filters import CallFilter, Narrow
from governance.sanitize import sanitize_text

LENGTH = 200


class RowFilter(admin.SimpleListFilter):
    """The rows that fit a value."""

    narrow: Narrow
    known: Callable[[], Sequence[tuple[str, Any]]] | None = None

    def __init__(
        self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any
    ) -> None:
        super().__init__(request, params, model, model_admin)
        kept = request.GET.copy()
        for name in (str(self.parameter_name), "p", "e"):
            kept.pop(name, None)
        self.other_parameters = [(name, value) for name in kept for value in kept.getlist(name)]

    def has_output(self) -> bool:
        """What is asked for counts, whether it is offered or not."""
        return True

    def value(self) -> str | None:
        """Return what is asked for, in a form that a database compares."""
        value = super().value()
        return sanitize_text(value.strip(), limit=LENGTH) if value else None

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        known = type(self).known
        return [] if known is None else list(known())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return type(self).narrow(queryset, value) if (value := self.value()) else queryset


class TypedFilter(RowFilter):
    """The same with a field for the value."""

    template = "admin/governance/typed_filter.html"

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Offer to have any, and what is asked for."""
        for value, words in ((None, _("All")), *([(self.value(),) * 2] if self.value() else [])):
            chosen = {self.parameter_name: value} if value else {}
            yield {
                "selected": self.value() == value,
                "query_string": changelist.get_query_string(chosen, [self.parameter_name]),
                "display": words,
            }


def row_filter(
    name: str,
    title: Any,
    narrow: Narrow,
    *,
    choices: Callable[[], Sequence[tuple[str, Any]]] | None = None,
) -> type[RowFilter]:
    """Return a filter that narrows a list by this function."""
    fields = {
        "parameter_name": name,
        "title": title,
        "narrow": staticmethod(narrow),
        "known": staticmethod(choices) if choices else None,
    }
    return type("RowFilter", (RowFilter if choices else TypedFilter,), fields)


@cache
def of_calls(filter_: CallFilter) -> type[RowFilter]:
    """Return the same for a filter of calls that an app above has registered."""
    return row_filter(filter_.name, filter_.label, filter_.narrow, choices=filter_.choices)
