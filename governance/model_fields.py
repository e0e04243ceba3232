"""The columns that rows with limits share: durations, and the maximum number of concurrent calls."""

from typing import TYPE_CHECKING, Any

from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from governance import db_clock
from governance.form_fields import UNITS_HELP, DurationField

if TYPE_CHECKING:
    from django_stubs_ext import StrPromise

    BigIntegerField = models.BigIntegerField[int | None, int | None]
    DateTimeField = models.DateTimeField[Any, Any]
    PositiveBigIntegerField = models.PositiveBigIntegerField[Any, Any]
else:
    from django.db.models import BigIntegerField, DateTimeField, PositiveBigIntegerField

_MOST_CALLS = 10_000
_CALLS_AT_ONCE = [
    MinValueValidator(
        1, _("At least one call must be able to run. To prevent all calls, disable the tool.")
    ),
    MaxValueValidator(
        _MOST_CALLS,
        _(
            "A limit above %(limit_value)s concurrent calls has no effect. Leave the field blank instead."
        ),
    ),
]


class Duration:
    """A column in milliseconds whose form field accepts a duration with its unit. Migrations see an integer column."""

    def formfield(self, **options: Any) -> forms.Field | None:
        options.pop("widget", None)  # the admin's widget for integers
        help_text = options.pop("help_text", self.help_text)  # type: ignore[attr-defined]  # a column's
        options["help_text"] = format_lazy("{} {}", help_text, UNITS_HELP)
        options["form_class"] = DurationField
        return models.Field.formfield(self, **options)  # type: ignore[arg-type]  # it is a column

    def deconstruct(self) -> Any:
        """Return the plain column, so that migrations do not depend on this class."""
        name, _path, args, kwargs = super().deconstruct()  # type: ignore[misc]  # a column's
        [kind] = (base for base in type(self).__bases__ if base is not Duration)
        return name, f"django.db.models.{kind.__name__}", args, kwargs


class DurationMsField(Duration, BigIntegerField):
    """A column for a limit. `governance.validation` checks its value."""


class PositiveDurationMsField(Duration, PositiveBigIntegerField):
    """A column for a duration that is always set."""


class DatabaseTimeField(DateTimeField):
    """A column for a time that is set by the database's clock when a row is saved (`auto_now`, `auto_now_add`)."""

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:  # noqa: FBT001 - Django's
        if self.auto_now or (self.auto_now_add and add):
            setattr(model_instance, self.attname, db_clock.now())
        return getattr(model_instance, self.attname)

    def deconstruct(self) -> Any:
        """Return the plain column, so that migrations do not depend on this class."""
        name, _path, args, kwargs = super().deconstruct()
        return name, "django.db.models.DateTimeField", args, kwargs


def span(label: "StrPromise", help_text: "StrPromise") -> "DurationMsField":
    """Return a column for a limit that may be left blank."""
    return DurationMsField(label, null=True, blank=True, help_text=help_text)


def calls_at_once(
    help_text: "StrPromise",
) -> "models.PositiveIntegerField[int | None, int | None]":
    """Return a column for the maximum number of concurrent calls per process."""
    return models.PositiveIntegerField(
        _("concurrent calls"),
        null=True,
        blank=True,
        validators=_CALLS_AT_ONCE,
        help_text=help_text,
    )
