"""Links of rows to what they belong to, in a column and on the page of each. A list reads them for all its rows at once."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from governance import call_filters, call_links
from governance.admin import row_filters
from governance.admin.formatting import NOTHING
from governance.admin.search import ToolSearchAdmin
from governance.call_links import Link

Column = Callable[[Any], SafeString | str]


class LinkedCallAdmin(ToolSearchAdmin):
    """Rows about calls, each with its `group`."""

    def get_list_filter(self, request: HttpRequest) -> Any:
        """Add the filters by what calls belong to."""
        more = [row_filters.of_calls(filter_) for filter_ in call_filters.registered()]
        return [*super().get_list_filter(request), *more]

    def get_list_display(self, request: HttpRequest) -> Any:
        """Add what calls belong to, in one column: several do not fit a screen."""
        columns = ["belongs_to"] if call_links.listed() else []
        return [*super().get_list_display(request), *columns]

    @admin.display(description=gettext_lazy("belongs to"))
    def belongs_to(self, obj: Any) -> SafeString | str:
        """The links that lists show."""
        found = [obj.links[name] for name in call_links.listed() if name in obj.links]
        anchors = [(anchor(link),) for link in found if link.text]
        return format_html_join(" · ", "{}", anchors) or NOTHING

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Declare the same for the page."""
        return [*super().get_readonly_fields(request, obj), *_columns()]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Show them after what the row is."""
        first, *others = super().get_fieldsets(request, obj)
        columns = _columns()
        return [first, *([(None, {"fields": columns})] if columns else []), *others]

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Read the links of all rows of the page at once."""
        changelist = super().get_changelist_instance(request)
        _link_up(request, changelist.result_list)
        return changelist

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Read those of one row."""
        row = super().get_object(request, object_id, from_field)
        _link_up(request, [row] if row else [])
        return row


def column(name: str, label: Any) -> Column:
    """Return a column, or a field, that shows the link of this name from the `links` of a row."""

    @admin.display(description=label)
    def shown(row: Any) -> SafeString | str:
        found: Link | None = row.links.get(name)
        return NOTHING if found is None else anchor(found)

    shown.__name__ = f"link_to_{name}"
    return shown


def anchor(link: Link) -> SafeString | str:
    """Return a link, or its text alone where it leads nowhere."""
    if not link.address:
        return link.text or NOTHING
    return format_html('<a href="{}">{}</a>', link.address, link.text)


def _columns() -> list[Column]:
    return [_column(name) for name in call_links.labels()]


@cache
def _column(name: str) -> Column:
    """The same one each time: Django compares them."""
    return column(name, call_links.labels()[name])


def _link_up(request: HttpRequest, rows: Iterable[Any]) -> None:
    found = call_links.read(request.user, {row.group for row in rows})
    for row in rows:
        row.links = found.get(row.group, {})
