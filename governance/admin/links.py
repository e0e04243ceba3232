"""Links of rows to what they belong to, in a column and on the page of each. A list reads them for all its rows at once."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, cast
from urllib.parse import urlencode

from django.apps import apps
from django.contrib import admin
from django.contrib.auth import get_permission_codename
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from governance import call_filters, call_links
from governance.admin import row_filters
from governance.admin.formatting import NOTHING
from governance.admin.search import ToolSearchAdmin
from governance.call_links import Link, Links

Column = Callable[[Any], SafeString | str]


class LinkedCallAdmin(ToolSearchAdmin):
    """Rows about calls, each with its `group`."""

    def get_list_filter(self, request: HttpRequest) -> Any:
        """Add the filters by what calls belong to."""
        more = [row_filters.of_calls(filter_) for filter_ in call_filters.registered(request.user)]
        return [*super().get_list_filter(request), *more]

    def get_list_display(self, request: HttpRequest) -> Any:
        """Add what calls belong to, in one column: several do not fit a screen."""
        columns = ["belongs_to"] if call_links.listed() else []
        return [*super().get_list_display(request), *columns]

    @admin.display(description=gettext_lazy("belongs to"))
    def belongs_to(self, obj: Any) -> SafeString | str:
        """The links that lists show."""
        return anchors(obj.links, call_links.listed())

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Declare the same for the page."""
        return [*super().get_readonly_fields(request, obj), *_columns()]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Show them after what the row is."""
        first, *others = super().get_fieldsets(request, obj)
        columns = _columns()
        return [first, *([(None, {"fields": columns})] if columns else []), *others]

    def prepare_rows(self, request: HttpRequest, rows: Iterable[Any]) -> None:
        """Read the links of all rows at once."""
        super().prepare_rows(request, rows)
        found = call_links.read(request.user, {row.group for row in rows})
        for row in rows:
            row.links = found.get(row.group, {})


def column(name: str, label: Any, *, ordering: str | None = None) -> Column:
    """Return a column, or a field, that shows the link of this name from the `links` of a row."""

    @admin.display(description=label, ordering=ordering)
    def shown(row: Any) -> SafeString | str:
        found: Link | None = row.links.get(name)
        return NOTHING if found is None else anchor(found)

    shown.__name__ = f"link_to_{name}"
    return shown


def may_open(reader: Any, name: str) -> bool:
    """Whether somebody may see the pages of a model, named "app_model"; those of a proxy as those of its table."""
    opts = cast(Any, apps.get_model(name.replace("_", ".", 1))._meta.concrete_model)._meta
    names = [get_permission_codename(action, opts) for action in ("view", "change")]
    return any(reader.has_perm(f"{opts.app_label}.{codename}") for codename in names)


def address_of_row(reader: Any, name: str, pk: Any) -> str:
    """Return the address of the page of a row; empty for somebody who may not see it."""
    if pk is None or reader is None or not may_open(reader, name):
        return ""
    return reverse(f"admin:{name}_change", args=[pk])


def address_of_list(reader: Any, name: str, **asked: Any) -> str:
    """Return the address of a list with what it is asked for; empty for somebody who may not see it."""
    if not may_open(reader, name):
        return ""
    address = reverse(f"admin:{name}_changelist")
    return f"{address}?{urlencode(asked)}" if asked else address


def reader_of(row: Any) -> Any:
    """Return who is shown a row of a list of history, or its page."""
    return getattr(row, "reader", None)


def anchors(links: Links, names: Iterable[str]) -> SafeString | str:
    """Return the links of these names that say something, in one line."""
    found = [links[name] for name in names if name in links]
    return (
        format_html_join(" · ", "{}", [(anchor(link),) for link in found if link.text]) or NOTHING
    )


def anchor(link: Link) -> SafeString | str:
    if not link.address:
        return link.text or NOTHING
    return format_html('<a href="{}">{}</a>', link.address, link.text)


def _columns() -> list[Column]:
    return [_column(name) for name in call_links.labels()]


@cache
def _column(name: str) -> Column:
    """The same one each time: Django compares them."""
    return column(name, call_links.labels()[name])
