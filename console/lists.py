"""The base admins of all tables: common behavior, history lists, and tables that staff edit."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import wraps
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import flatten_fieldsets
from django.contrib.admin.views.main import ERROR_FLAG
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.paginator import Paginator
from django.db import DataError, NotSupportedError, ProgrammingError, models
from django.db.models import QuerySet
from django.forms import Media
from django.forms.widgets import Script
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.http.response import HttpResponseBase
from django.template.loader import get_template
from django.urls import URLPattern, path
from django.utils.functional import cached_property
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET

from console import exports
from console.filters import TimeFilter
from console.formats import NOTHING, Column, format_time, readable_columns
from console.links import address
from console.search import nothing, search
from governance.admin import AnyAdmin, EditedAdmin, HistoryAdmin
from governance.conf import app_settings
from governance.csp import with_policy
from governance.model_fields import Duration
from governance.sanitize import sanitize_text
from webchat.middleware import cut_search

if TYPE_CHECKING:
    AnyPaginator = Paginator[Any]
else:
    AnyPaginator = Paginator

# Errors that Django and the databases raise for values that they cannot compare, such as a number that is too large, a
# day that does not exist, or half a range.
_INCOMPARABLE = (
    DataError,
    LookupError,
    NotSupportedError,
    OverflowError,
    ProgrammingError,
    TypeError,
    ValueError,
)
_REGULAR_EXPRESSIONS = {
    "regex",
    "iregex",
}  # a regular expression can block SQLite, and with it the process
_EMPTY = {"", NOTHING, "[]", "{}"}  # displayed values of empty fields
FILTERS_OPEN = 2
FILTER_OF_DJANGO = "admin/filter.html"
_FRAME = ("admin/base.html", "admin/base_site.html")
_OF_DJANGO = Path(admin.__file__).parent


def module(name: str) -> Script:
    """Return a script of the console. It is a module, because modules share no names with the other scripts of a page."""
    return Script(f"console/{name}", type="module")


class CappedPaginator(AnyPaginator):
    """A paginator that counts only up to a maximum, because people search and filter longer lists instead of paging."""

    most = 10_000

    @cached_property
    def count(self) -> int:
        return min(self._counted, self.most)

    @property
    def count_text(self) -> str:
        return count_text(self._counted)

    @cached_property
    def _counted(self) -> int:
        rows: QuerySet[Any] = cast(Any, self.object_list)
        return rows.order_by()[: self.most + 1].count()


def count_text(count: int) -> str:
    """Return a count, or “more than” the maximum up to which rows are counted."""
    most = CappedPaginator.most
    return _("more than %(most)s") % {"most": f"{most:,}"} if count > most else f"{count:,}"


class ConsoleAdmin(AnyAdmin):
    """The base of all admins of the console.

    Its pages send `GOVERNANCE_ADMIN_CSP`, ignore invalid lookups, and format values for people. A refused action keeps
    the selected rows, the action and the reason, which Django would reset.
    """

    show_full_result_count = False
    empty_value_display = NOTHING
    readable: tuple[type[Any], ...] = (
        Duration,
        models.DateTimeField,
    )  # types of fields whose values are formatted for people

    @property
    def urls(self) -> list[URLPattern]:
        """Return the URLs. Their views send the Content-Security-Policy, and link only to pages of this admin site."""
        return [
            URLPattern(
                route.pattern,
                _with_admin_policy(_seen_in(self.admin_site.name, route.callback)),
                route.default_args,
                route.name,
            )
            for route in super().urls
        ]

    @property
    def media(self) -> Media:
        """Add scripts that restore the selection across pages and move actions below the rows, and a card layout for
        phones.
        """
        scripts: list[Any] = [module("actions.js"), module("cards.js")]
        return super().media + Media(css={"all": ["console/admin.css"]}, js=scripts)

    def address(self, request: HttpRequest, view: str, *args: Any) -> str:
        """Return the address of one of the admin's views."""
        return address(request.user, f"{self.opts.app_label}_{self.opts.model_name}_{view}", *args)

    # Query and form values. They may contain anything, and an invalid value must not cause a server error.

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Refuse regular expressions."""
        is_refused = lookup.split("__")[-1] in _REGULAR_EXPRESSIONS
        return not is_refused and super().lookup_allowed(lookup, value, request)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Read the list. Replace values that the database cannot compare, or raise `IncorrectLookupParameters`.

        The count is only shown below the list, because Django's count beside the search would claim to be complete.
        """
        request.GET = _sanitized(request.GET)  # type: ignore[assignment]  # nothing changes it later
        cut_search(request)
        try:
            changelist: Any = super().get_changelist_instance(request)
        except _INCOMPARABLE as problem:
            if not request.GET:
                raise
            raise IncorrectLookupParameters(problem) from problem
        changelist.full_result_count = changelist.result_count
        _fold_filters(changelist.filter_specs)
        keys = set(request.POST.getlist(ACTION_CHECKBOX_NAME))
        for row in changelist.result_list:
            row.is_chosen = str(row.pk) in keys
        self.prepare_rows(request, changelist.result_list)
        return changelist

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Find the row. If the address names an empty field, search by the primary key."""
        row = super().get_object(request, object_id, from_field or None)
        self.prepare_rows(request, [] if row is None else [row])
        return row

    def prepare_rows(self, request: HttpRequest, rows: Iterable[Any]) -> None:
        """Read what the columns need, for all rows together.

        Each row gets an attribute with its reader, because links depend on the reader's permissions.
        """
        for row in rows:
            row.reader = request.user

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the list. Ignore invalid row ids, and keep the action and the reason if no row was selected."""
        if keys := request.POST.getlist(ACTION_CHECKBOX_NAME):
            posted = request.POST.copy()
            posted.setlist(ACTION_CHECKBOX_NAME, [key for key in keys if self._is_key(key)])
            request.POST = posted  # type: ignore[assignment]  # nothing changes it later
        if request.method == "GET" and ERROR_FLAG in request.GET:
            words = _(
                "The address contains a filter that this list does not have, so no filter is set."
            )
            self.message_user(request, words, messages.WARNING)
        answer = super().changelist_view(request, extra_context)
        context = getattr(answer, "context_data", None) or {}
        if "cl" in context and "title" not in (extra_context or {}):
            context["title"] = _heading(context["cl"])
        is_action = request.method == "POST" and "index" in request.POST
        is_empty = is_action and not request.POST.getlist(ACTION_CHECKBOX_NAME)
        is_away = answer.status_code == HTTPStatus.FOUND
        return self._show_again(request) if is_empty and is_away else answer

    def _is_key(self, text: str) -> bool:
        try:
            self.opts.pk.clean(text, None)
        except ValidationError:
            return False
        return True

    def sentence(self, row: Any) -> str:
        """Return the heading of a row's page. If it is empty, the page shows the model's name."""
        return ""

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row = context.get("original")
        if row is not None and (sentence := self.sentence(row)):
            context.update(title=sentence, subtitle=None)
        if row is not None and not self.has_change_permission(request, row):
            context["sections"] = _filled(context["adminform"])
        return super().render_change_form(request, context, *args, **kwargs)

    def refuse_action(self, request: HttpRequest, words: str, *, field: str = "") -> HttpResponse:
        """Report why nothing was done and keep the selection. `field` names the field with the missing value."""
        self.message_user(request, words, messages.ERROR)
        return self._show_again(request, field)

    def response_action(
        self, request: HttpRequest, queryset: Any, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Run the action; keep the form's values if Django reports that no action or row was selected."""
        answer: HttpResponse | None = super().response_action(request, queryset, *args, **kwargs)
        return self._show_again(request) if answer is None else answer

    def action_checkbox(self, obj: Any) -> SafeString:
        """Return the checkbox of a row, checked if the row was selected before."""
        box = super().action_checkbox(obj)
        is_chosen = getattr(obj, "is_chosen", False)
        return SafeString(box.replace("<input", "<input checked", 1)) if is_chosen else box

    def _show_again(self, request: HttpRequest, field: str = "") -> HttpResponse:
        posted = request.POST
        form: Any = self.action_form(auto_id=None, initial={**posted.dict(), "select_across": 0})
        form.fields["action"].choices = self.get_action_choices(request)
        if posted.get("select_across") == "1":
            form.fields["select_across"].widget.attrs["data-chosen"] = ""
        if field:
            form.fields[field].widget.attrs |= {"autofocus": True, "aria-invalid": "true"}
        get_request = copy(request)
        get_request.method = "GET"
        return self.changelist_view(get_request, {"action_form": form})

    def get_list_display(self, request: HttpRequest) -> Any:
        columns = self._readable_columns(with_milliseconds=False)
        return [columns.get(name, name) for name in super().get_list_display(request)]

    def get_sortable_by(self, request: HttpRequest) -> Any:
        """Offer no sorting by times and switches, because long lists have no index for them."""
        no_order = (models.DateTimeField, models.BooleanField)
        fields = self.model._meta.concrete_fields
        fixed = {field.name for field in fields if isinstance(field, no_order)}
        columns = self._readable_columns(with_milliseconds=False)
        left_out = [column for name, column in columns.items() if name in fixed]
        return [name for name in self.get_list_display(request) if name not in left_out]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.in_words(request, super().get_fieldsets(request, obj), obj)

    def in_words(self, request: HttpRequest, fieldsets: Any, obj: Any) -> Any:
        """Return the fieldsets with read-only fields as formatted text. Editable fields remain form fields."""
        columns = self._readable_columns(with_milliseconds=True)
        if obj is None or self.has_change_permission(request, obj):
            fixed = super().get_readonly_fields(request, obj)
            columns = {name: column for name, column in columns.items() if name in fixed}
        return [
            (title, {**options, "fields": [columns.get(name, name) for name in options["fields"]]})
            for title, options in fieldsets
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Declare the formatted columns, so that Django accepts them on the page."""
        columns = self._readable_columns(with_milliseconds=True)
        return [*super().get_readonly_fields(request, obj), *columns.values()]

    def _readable_columns(self, *, with_milliseconds: bool) -> dict[Any, Column]:
        model: Any = self.model
        columns = readable_columns(model, with_milliseconds=with_milliseconds)
        fields = {field.name: field for field in self.model._meta.concrete_fields}
        return {
            name: column
            for name, column in columns.items()
            if isinstance(fields[name], self.readable)
        }


class HistoryList(ConsoleAdmin, HistoryAdmin):
    """The base admin of tables that only the system writes. They can be exported, and are counted only up to a maximum.

    `export_order` is an indexed order by values that never change; if it is empty, the model's order is used.
    `export_columns` are added to those of the table. `figures` are pages about the list: their titles and view names.
    A row's page leaves out the fields that have their `usual_values`, because these carry no information.
    """

    readable = (models.DateTimeField, models.BooleanField)
    is_exported = True
    export_order: Sequence[str] = ()
    export_columns: Sequence[exports.Columns] = ()
    figures: Sequence[tuple[Any, str]] = ()
    usual_values: ClassVar[Mapping[str, Any]] = {}
    change_list_template = "console/history_list.html"
    change_form_template = "console/history_row.html"
    actions: Any = None
    paginator = CappedPaginator
    show_facets = admin.ShowFacets.NEVER

    def has_export_permission(self, request: HttpRequest) -> bool:
        may_export = request.user.has_perm("governance.export")
        return self.is_exported and may_export and self.has_view_permission(request)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(require_GET(self.export_view))
        name = f"{self.opts.app_label}_{self.opts.model_name}_export"
        return [path("export/<str:format>/", view, name=name), *super().get_urls()]

    def export_view(self, request: HttpRequest, format: str) -> HttpResponseBase:
        """Return all rows of the list, with its search and filters, as a file."""
        if not self.has_export_permission(request):
            raise PermissionDenied
        if format not in exports.MEDIA_TYPES:
            raise Http404
        try:
            rows = self.get_changelist_instance(request).queryset
        except IncorrectLookupParameters:  # handled the way Django's list does
            return HttpResponseRedirect(f"{self.address(request, 'changelist')}?{ERROR_FLAG}=1")
        has_content = may_view_content(request)
        reader = exports.ListReader(
            rows,
            order=self.export_order or cast(Sequence[str], self.model._meta.ordering),
            hidden=self.get_exclude(request),
            added=[
                columns
                for columns in self.export_columns
                if columns.are_for(request.user, with_content=has_content)
            ],
            with_content=has_content,
        )
        return exports.begin(
            request,
            reader,
            query=self._asked(request),
            source=self.model,
            format=format,
            has_content=has_content,
            content_fields=self.content_fields,
        )

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the list with links to its exports and figures."""
        formats = exports.MEDIA_TYPES if self.has_export_permission(request) else ()
        query = self._asked(request).urlencode() if formats else ""
        context = {
            "exports": [
                (it.upper(), f"{self.address(request, 'export', it)}?{query}") for it in formats
            ],
            "figures": [(words, address(request.user, view)) for words, view in self.figures],
        }
        return super().changelist_view(request, {**(extra_context or {}), **context})

    def _asked(self, request: HttpRequest) -> QueryDict:
        """Return the parameters that select the rows of the list, with the default time range if the query has none."""
        query = request.GET.copy()
        for name in exports.VIEW_ONLY:
            query.pop(name, None)
        for filter_ in self.get_list_filter(request):
            if isinstance(filter_, type) and issubclass(filter_, TimeFilter):
                query.update(filter_.default_of(request))
        return query

    def get_list_display(self, request: HttpRequest) -> Any:
        hidden = self.get_exclude(request)
        return [
            name
            for name in super().get_list_display(request)
            if getattr(name, "__name__", name) not in hidden
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Make all fields of the page read-only, because these rows are never edited."""
        names = self.fields or flatten_fieldsets(self.fieldsets or ())
        return [*names, *super().get_readonly_fields(request, obj)]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        usual = {
            name for name, value in self.usual_values.items() if getattr(obj, name, None) == value
        }
        hidden = {*self.get_exclude(request), *usual}
        fieldsets = [
            (title, {**options, "fields": [
                name for name in options["fields"] if getattr(name, "__name__", name) not in hidden
            ]})
            for title, options in super().get_fieldsets(request, obj)
        ]  # fmt: skip
        return [(title, options) for title, options in fieldsets if options["fields"]]


class SearchedList(HistoryList):
    """A history list that can be searched.

    The results come from the first field of `id_fields` and `search_fields` in which a row matches the whole term.
    """

    id_fields: tuple[str, ...] = ()  # ids in any notation

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Look the term up in one field after the other."""
        term = search_term.strip()
        if not term:
            return queryset, False
        part = self.part_finder(request)
        fields = self.search_fields
        return search(queryset, term, id_fields=self.id_fields, fields=fields, part=part), False

    def part_finder(self, request: HttpRequest) -> Any:
        """Return the function that finds rows by part of the term."""
        return nothing


class EditedList(ConsoleAdmin, EditedAdmin):
    """The base admin of tables that staff edit, with a history that shows the old and the new values."""

    change_list_template = "console/list.html"
    change_form_template = "console/form.html"
    object_history_template = "console/object_history.html"
    delete_confirmation_template = "console/delete.html"
    delete_selected_confirmation_template = "console/delete_selected.html"

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> HttpResponse:
        answer = super().history_view(request, object_id, extra_context)
        for entry in getattr(answer, "context_data", {}).get("action_list", ()):
            entry.at = format_time(entry.action_time, with_milliseconds=True)
        return answer


class OneRow(AnyAdmin):
    """A mixin for the admin of a table with one row that always exists. The list redirects to that row."""

    def sentence(self, row: Any) -> str:
        return capfirst(str(row))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if not self.has_view_or_change_permission(request):
            return super().changelist_view(request, extra_context)
        view = f"{self.opts.app_label}_{self.opts.model_name}_change"
        return HttpResponseRedirect(address(request.user, view, 1))

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Create the row on the first visit."""
        if object_id == "1":
            self.model._default_manager.get_or_create(pk=1)
        return super().get_object(request, object_id, from_field)


def _filled(fieldsets: Iterable[Any]) -> list[tuple[Any, list[tuple[Any, Any]]]]:
    """Return the fieldsets with the contents of their fields, without empty fields. Each field is read only once."""
    sections = [
        (fieldset, [
            (field, contents)
            for line in fieldset
            for field in line
            if (contents := field.contents()) not in _EMPTY
        ])
        for fieldset in fieldsets
    ]  # fmt: skip
    return [(fieldset, fields) for fieldset, fields in sections if fields]


def _heading(changelist: Any) -> str:
    """Describe the list with its count, time range and filters: “115 cancelled turns in the last 24 hours”."""
    opts, paginator = changelist.opts, changelist.paginator
    count = changelist.result_count
    text = paginator.count_text if isinstance(paginator, CappedPaginator) else f"{count:,}"
    if opts.verbose_name == opts.verbose_name_plural:  # a noun without a plural
        entries = ngettext("%(count)s entry", "%(count)s entries", count) % {"count": text}
        heading = f"{capfirst(opts.verbose_name)}: {entries}"
    else:
        heading = f"{text} {opts.verbose_name if count == 1 else opts.verbose_name_plural}"
    conditions = [f"“{changelist.query}”"] if changelist.query else []
    for spec in changelist.filter_specs:
        if isinstance(spec, TimeFilter):
            heading = " ".join(filter(None, [heading, str(spec.words)]))
        elif _is_used(spec):
            choices = [choice for choice in spec.choices(changelist) if choice.get("selected")]
            conditions += [str(choice["display"]) for choice in choices]
    return f"{heading}: {', '.join(conditions)}" if conditions else heading


def _fold_filters(specs: Sequence[Any]) -> None:
    """Open only the first filters and those in use. If all were open, a long list would show more filters than rows."""
    for place, spec in enumerate(specs):
        spec.is_open = place < FILTERS_OPEN or _is_used(spec)
        if spec.template == FILTER_OF_DJANGO:
            spec.template = "console/filter.html"


def _is_used(spec: Any) -> bool:
    value = getattr(spec, "value", None)
    return bool(value() if callable(value) else spec.used_parameters)


def section(title: Any, *names: Any, **options: Any) -> Any:
    return title, {"fields": names, **options}


def may_view_content(request: HttpRequest) -> bool:
    """Return whether the user may see content, that is, texts by people, models and tools."""
    return request.user.has_perm("governance.view_content")


def _seen_in(site: str, view: Any) -> Any:
    """Return the view with the name of its admin site stored on the user, so that its links stay within that site."""

    @wraps(view)
    def seen(request: Any, *args: Any, **kwargs: Any) -> Any:
        request.user.admin_site = site
        return view(request, *args, **kwargs)

    return seen


def _sanitized(query: QueryDict) -> QueryDict:
    clean = query.copy()
    for name, values in query.lists():  # PostgreSQL rejects the character NUL
        clean.setlist(name, [sanitize_text(value) for value in values])
    return clean


def _policy_for(_request: HttpRequest) -> str | None:
    """Return the Content-Security-Policy of a page; None inside an admin theme, because the project then sends its own."""
    policy: str | None = app_settings.ADMIN_CSP
    return policy if all(map(_is_of_django, _FRAME)) else None


def _is_of_django(template: str) -> bool:
    origin = getattr(get_template(template), "origin", None)
    return origin is not None and Path(origin.name).is_relative_to(_OF_DJANGO)


_with_admin_policy = with_policy(_policy_for)
