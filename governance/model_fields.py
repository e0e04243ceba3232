"""The columns that rows with limits share: how long, and how many at once. Blank = not set here."""

from typing import TYPE_CHECKING, Any

from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from governance.form_fields import UNITS_HELP, DurationField

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise

    BigIntegerField = models.BigIntegerField[int | None, int | None]
    PositiveBigIntegerField = models.PositiveBigIntegerField[Any, Any]
else:
    from django.db.models import BigIntegerField, PositiveBigIntegerField

_MOST_CALLS = 10_000
_CALLS_AT_ONCE = [
    MinValueValidator(
        1, _("At least one call must be able to run; switch the tool off to let none run.")
    ),
    MaxValueValidator(
        _MOST_CALLS, _("More than %(limit_value)s calls at once is no limit; leave it blank.")
    ),
]


class Duration:
    """A column in milliseconds, whose form field takes a duration with its unit. Migrations see the integer."""

    def formfield(self, **options: Any) -> forms.Field | None:
        options.pop("widget", None)  # the admin's for integers
        help_text = options.pop("help_text", self.help_text)  # type: ignore[attr-defined]  # a column's
        options["help_text"] = format_lazy("{} {}", help_text, UNITS_HELP)
        options["form_class"] = DurationField
        return models.Field.formfield(self, **options)  # type: ignore[arg-type]  # it is a column

    def deconstruct(self) -> Any:
        """Return the description of the column beneath, for migrations."""
        name, _path, args, kwargs = super().deconstruct()  # type: ignore[misc]  # a column's
        [kind] = (base for base in type(self).__bases__ if base is not Duration)
        return name, f"django.db.models.{kind.__name__}", args, kwargs


class DurationMsField(Duration, BigIntegerField):
    """A limit; `governance.validation` says in words what is wrong with one."""


class PositiveDurationMsField(Duration, PositiveBigIntegerField):
    """A duration that is always set."""


def span(label: "_StrPromise", help_text: "_StrPromise") -> "DurationMsField":
    """Return the column of a limit that may be left blank."""
    return DurationMsField(label, null=True, blank=True, help_text=help_text)


def calls_at_once(
    help_text: "_StrPromise",
) -> "models.PositiveIntegerField[int | None, int | None]":
    """Return the column that says how many calls may run at once in a process."""
    return models.PositiveIntegerField(
        _("calls at once"),
        null=True,
        blank=True,
        validators=_CALLS_AT_ONCE,
        help_text=help_text,
    )
