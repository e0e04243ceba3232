"""Base of every list of history. It is read-only and can be exported, and no page counts a long table."""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
    QueryDict,
)
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse
from django.utils.functional import cached_property
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from governance.admin import exports
from governance.admin.formatting import NOTHING
from governance.admin.mixins import PreparedRowsAdmin, switches_of, times_of
from governance.admin.time_filter import TimeFilter

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
        return min(self._counted, self.most)

    @property
    def count_text(self) -> str:
        """The number of rows; beyond the bound only that it is more."""
        return count_text(self._counted)

    @cached_property
    def _counted(self) -> int:
        rows: QuerySet[Any] = cast(Any, self.object_list)
        return rows.order_by()[: self.most + 1].count()


def count_text(count: int) -> str:
    """Return a count; beyond the bound to which rows are counted only that it is more."""
    most = CappedPaginator.most
    return _("more than %(most)s") % {"most": f"{most:,}"} if count > most else f"{count:,}"


class ReadOnlyAdmin(PreparedRowsAdmin[Model], HistoryModelAdmin):
    """Rows that are written by the system alone.

    `content_fields` are columns and fields of the model with what people, models or tools wrote. They need the
    permission `governance.view_content`. `export_order` is the order of an export, along an index and by values that
    never change. Blank = that of the model. `figures` are pages about the list: their names and those of their
    addresses.
    """

    content_fields: Collection[str] = ()
    is_exported = True
    export_order: Sequence[str] = ()
    figures: Sequence[tuple[Any, str]] = ()
    change_list_template = "admin/governance/history_list.html"
    change_form_template = "admin/governance/history_row.html"
    empty_value_display = NOTHING
    actions: Any = None
    list_per_page = 50
    paginator = CappedPaginator
    show_facets = admin.ShowFacets.NEVER

    def has_add_permission(self, request: HttpRequest) -> bool:
        """History is written by what happens."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """History stays."""
        return False

    def has_export_permission(self, request: HttpRequest) -> bool:
        may_export = request.user.has_perm("governance.export")
        return self.is_exported and may_export and self.has_view_permission(request)

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Refuse filters on what the user may not see: the rows that are left would tell."""
        is_hidden = lookup.split("__")[0] in self._hidden(request)
        return not is_hidden and super().lookup_allowed(lookup, value, request)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(require_GET(self.export_view))
        name = f"{self.opts.app_label}_{self.opts.model_name}_export"
        return [path("export/<str:format>/", view, name=name), *super().get_urls()]

    def export_view(self, request: HttpRequest, format: str) -> HttpResponseBase:
        """Return all rows of the list, with its search and filters, as a file."""
        if not self.has_export_permission(request):
            raise PermissionDenied
        if format not in exports.FORMATS:
            raise Http404
        try:
            rows = self.get_changelist_instance(request).queryset
        except IncorrectLookupParameters:  # as Django's list answers them
            return HttpResponseRedirect(f"{reverse(self._address('changelist'))}?e=1")
        has_content = may_view_content(request)
        order = self.export_order or cast(Sequence[str], self.model._meta.ordering)
        reader = exports.ListReader(
            rows,
            order=order,
            hidden=self._hidden(request),
            reader=request.user,
            with_content=has_content,
        )
        return exports.begin(
            request,
            reader,
            asked=self._asked(request),
            source=self.model,
            format=format,
            has_content=has_content,
            content_fields=self.content_fields,
        )

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Link to the exports of what the list shows."""
        return super().changelist_view(
            request,
            {
                **(extra_context or {}),
                "exports": self._export_links(request),
                "figures": [(words, reverse(name)) for words, name in self.figures],
            },
        )

    def _export_links(self, request: HttpRequest) -> list[tuple[str, str]]:
        if not self.has_export_permission(request):
            return []
        shown = self._asked(request)
        return [
            (name.upper(), f"{reverse(self._address('export'), args=[name])}?{shown.urlencode()}")
            for name in exports.FORMATS
        ]

    def _asked(self, request: HttpRequest) -> QueryDict:
        """Return what the list is asked for, with the time that it shows where nothing is said."""
        asked = request.GET.copy()
        for name in exports.VIEW_ONLY:
            asked.pop(name, None)
        for filter_ in self.get_list_filter(request):
            if isinstance(filter_, type) and issubclass(filter_, TimeFilter):
                asked.update(filter_.default_of(request))
        return asked

    def _address(self, view: str) -> str:
        opts = self.opts
        return f"{self.admin_site.name}:{opts.app_label}_{opts.model_name}_{view}"

    def get_list_display(self, request: HttpRequest) -> Any:
        """Return the columns that the user may see, times with their zone."""
        readable = self._readable(with_milliseconds=False)
        names = self._visible(request, super().get_list_display(request))
        return [readable.get(name, name) for name in names]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields that the user may see."""
        fieldsets = [
            (title, {**options, "fields": self._page_fields(request, options["fields"])})
            for title, options in super().get_fieldsets(request, obj)
        ]
        return [(title, options) for title, options in fieldsets if options["fields"]]

    def _page_fields(self, request: HttpRequest, names: Iterable[Any]) -> list[Any]:
        readable = self._readable(with_milliseconds=True)
        return [readable.get(name, name) for name in self._visible(request, names)]

    def _readable(self, *, with_milliseconds: bool) -> dict[Any, Any]:
        """Return the columns that show times with their zone, and yes or no in words. A red cross looks like a fault."""
        times = times_of(self.model, with_milliseconds=with_milliseconds)
        return {**times, **switches_of(self.model)}

    def _visible(self, request: HttpRequest, names: Iterable[Any]) -> list[Any]:
        hidden = self._hidden(request)
        return [name for name in names if name not in hidden]

    def _hidden(self, request: HttpRequest) -> Collection[str]:
        never = self.exclude or ()
        return never if may_view_content(request) else {*self.content_fields, *never}


def may_view_content(request: HttpRequest) -> bool:
    """Whether the user may see what people, models and tools wrote, and not only that they did."""
    return request.user.has_perm("governance.view_content")
