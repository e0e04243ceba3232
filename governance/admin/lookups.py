"""What an address or a form may ask our admin for. It may be anything, and is no error of the server."""

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import ValidationError
from django.db import DataError, NotSupportedError, ProgrammingError, models
from django.http import HttpRequest, HttpResponse, QueryDict

from governance.sanitize import sanitize_text

Row = TypeVar("Row", bound=models.Model)

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin
else:

    class ModelAdmin(Generic[Row]):
        """Stands for Django's, which is generic for the type checker only."""


# A value cannot be compared, as Django and the databases say it: too large, no such day, half a range.
_INCOMPARABLE = (
    DataError,
    LookupError,
    NotSupportedError,
    OverflowError,
    ProgrammingError,
    TypeError,
    ValueError,
)
_REGULAR_EXPRESSIONS = {"regex", "iregex"}  # one of them can hold up SQLite, and so the process


class LookupsAdmin(ModelAdmin[Row]):
    """Answers lookups that make no sense as Django answers unknown ones: by the list without them."""

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Refuse regular expressions."""
        is_refused = lookup.split("__")[-1] in _REGULAR_EXPRESSIONS
        return not is_refused and super().lookup_allowed(lookup, value, request)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Read the list; what no database compares is replaced, or `IncorrectLookupParameters` is raised."""
        request.GET = _sanitized(request.GET)  # type: ignore[assignment]  # it is changed no more
        try:
            return super().get_changelist_instance(request)
        except _INCOMPARABLE as problem:
            if not request.GET:
                raise
            raise IncorrectLookupParameters(problem) from problem

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Leave out chosen rows that cannot be there."""
        if chosen := request.POST.getlist(ACTION_CHECKBOX_NAME):
            posted = request.POST.copy()
            posted.setlist(ACTION_CHECKBOX_NAME, [key for key in chosen if self._is_key(key)])
            request.POST = posted  # type: ignore[assignment]  # the same
        return super().changelist_view(request, extra_context)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Find a row by its key where the address names an empty field."""
        return super().get_object(request, object_id, from_field or None)

    def _is_key(self, text: str) -> bool:
        try:
            self.opts.pk.clean(text, None)
        except ValidationError:
            return False
        return True


def _sanitized(query: QueryDict) -> QueryDict:
    clean = query.copy()
    for name, values in query.lists():  # PostgreSQL compares nothing with the character NUL
        clean.setlist(name, [sanitize_text(value) for value in values])
    return clean
