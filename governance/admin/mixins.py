"""What several admins share: durations with units, rows that are read at once, tables of one row, logged edits."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db import models
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from governance.admin.actions import ActionsAdmin
from governance.admin.formatting import format_time
from governance.admin.lookups import ModelAdmin, Row
from governance.audit import describe_value
from governance.durations import format_limit
from governance.model_fields import Duration


class DurationsAdmin(ModelAdmin[Row]):
    """Shows people who may look but not edit each duration with its unit, as editors have it in the form."""

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.with_units(request, super().get_fieldsets(request, obj), obj)

    def with_units(self, request: HttpRequest, fieldsets: Any, obj: Any = None) -> Any:
        """Return the fieldsets with readable durations for those who may not edit the row."""
        if obj is None or self.has_change_permission(request, obj):
            return fieldsets
        return [
            (title, {**options, "fields": self._readable(options["fields"])})
            for title, options in fieldsets
        ]

    def get_list_display(self, request: HttpRequest) -> Any:
        names = super().get_list_display(request)
        editable = self.list_editable if self.has_change_permission(request) else ()
        return [name if name in editable else self._readable([name])[0] for name in names]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Declare the readable values, so that the page may show them."""
        return [*super().get_readonly_fields(request, obj), *self._columns.values()]

    @cached_property
    def _columns(self) -> dict[Any, Callable[[Any], str]]:
        """For each column with a duration one that shows it with its unit."""
        columns = self.model._meta.concrete_fields
        return {field.name: _with_unit(field) for field in columns if isinstance(field, Duration)}

    def _readable(self, names: Sequence[Any]) -> list[Any]:
        return [self._columns.get(name, name) for name in names]


class TimesAdmin(ModelAdmin[Row]):
    """Shows each moment with its zone: in the list to the second, on the page to the millisecond."""

    def get_list_display(self, request: HttpRequest) -> Any:
        times = times_of(self.model, with_milliseconds=False)
        return [times.get(name, name) for name in super().get_list_display(request)]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        times = self._on_page
        return [
            (title, {**options, "fields": [times.get(name, name) for name in options["fields"]]})
            for title, options in super().get_fieldsets(request, obj)
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Declare them, so that the page may show them."""
        return [*super().get_readonly_fields(request, obj), *self._on_page.values()]

    @cached_property
    def _on_page(self) -> dict[Any, Callable[[Any], Any]]:
        return times_of(self.model, with_milliseconds=True)


class PreparedRowsAdmin(ActionsAdmin[Row]):
    """Reads what the columns of a list need for all its rows at once. For the page of a row it reads that one's."""

    def prepare_rows(self, request: HttpRequest, rows: Iterable[Any]) -> None:
        """Let each row know who reads it: it links only to what that person may see."""
        for row in rows:
            row.reader = request.user

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changelist = super().get_changelist_instance(request)
        self.prepare_rows(request, changelist.result_list)
        return changelist

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        row = super().get_object(request, object_id, from_field)
        self.prepare_rows(request, [] if row is None else [row])
        return row


class OneRowAdmin(ModelAdmin[Row]):
    """A table of one row: it is always there, and its list leads to it."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if not self.has_view_or_change_permission(request):
            return super().changelist_view(request, extra_context)
        meta = self.opts
        name = f"{self.admin_site.name}:{meta.app_label}_{meta.model_name}_change"
        return HttpResponseRedirect(reverse(name, args=[1]))

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Make the row on its first visit."""
        if object_id == "1":
            self.model._default_manager.get_or_create(pk=1)
        return super().get_object(request, object_id, from_field)


class AuditedAdmin(ActionsAdmin[Row]):
    """Rows that a service saves, which may refuse an edit, and which logs the old and the new values."""

    object_history_template = "admin/governance/object_history.html"

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> HttpResponse:
        answer = super().history_view(request, object_id, extra_context)
        for entry in getattr(answer, "context_data", {}).get("action_list", ()):
            entry.at = format_time(entry.action_time, with_milliseconds=True)
        return answer

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Answer an edit that came between the form's check and its save with words."""
        try:
            return super().changeform_view(request, *args, **kwargs)
        except ValidationError as refusal:
            return self.refused(request, refusal)

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return super().delete_view(request, *args, **kwargs)
        except ValidationError as refusal:
            return self.refused(request, refusal)

    def refused(self, request: HttpRequest, refusal: ValidationError) -> HttpResponse:
        """Say in words why nothing was saved, and show the page again."""
        self.say_refused(request, refusal)
        return HttpResponseRedirect(request.get_full_path())

    def say_refused(self, request: HttpRequest, refusal: ValidationError) -> None:
        for sentence in refusal.messages:
            self.message_user(request, sentence, messages.ERROR)

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Log nothing."""

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Log nothing."""

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """Log nothing."""


def _with_unit(field: Any) -> Callable[[Any], str]:
    @admin.display(description=field.verbose_name, ordering=field.name)
    def shown(row: Any) -> str:
        return format_limit(getattr(row, field.name))

    shown.__name__ = f"{field.name}_with_unit"
    return shown


def switches_of(model: type[models.Model]) -> dict[Any, Any]:
    """Return for each column of a model with a switch one that says yes or no."""
    columns = model._meta.concrete_fields
    return {field.name: _switch(field) for field in columns if type(field) is models.BooleanField}


def _switch(field: Any) -> Callable[[Any], str]:
    @admin.display(description=field.verbose_name, ordering=field.name)
    def shown(row: Any) -> str:
        return describe_value(field.name, getattr(row, field.name))

    shown.__name__ = field.name
    return shown


def times_of(model: type[models.Model], *, with_milliseconds: bool) -> dict[Any, Any]:
    """Return for each column of a model with a moment one that shows it with its zone."""
    columns = model._meta.concrete_fields
    return {
        field.name: _time_column(field, with_milliseconds=with_milliseconds)
        for field in columns
        if isinstance(field, models.DateTimeField)
    }


def _time_column(field: Any, *, with_milliseconds: bool) -> Callable[[Any], Any]:
    @admin.display(description=field.verbose_name, ordering=field.name)
    def shown(row: Any) -> Any:
        return format_time(getattr(row, field.name), with_milliseconds=with_milliseconds)

    shown.__name__ = field.name
    return shown
