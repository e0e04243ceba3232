"""Base of every list of history: it is read-only, and no page counts a long table."""

from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

if TYPE_CHECKING:
    HistoryModelAdmin = admin.ModelAdmin[Model]
    HistoryPaginator = Paginator[Any]
else:
    HistoryModelAdmin = admin.ModelAdmin
    HistoryPaginator = Paginator


class CappedPaginator(HistoryPaginator):
    """Counts up to a bound: beyond it a list is searched and filtered, not paged through."""

    most = 10_000

    @cached_property
    def count(self) -> int:
        """The number of rows, or `most`."""
        rows: QuerySet[Any] = cast(Any, self.object_list)
        return rows.order_by()[: self.most].count()


class ReadOnlyAdmin(HistoryModelAdmin):
    """Rows that are written by the system alone."""

    actions: Any = None
    list_per_page = 50
    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    def has_add_permission(self, request: HttpRequest) -> bool:
        """History is written by what happens."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """History stays."""
        return False
