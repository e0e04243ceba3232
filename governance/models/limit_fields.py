"""The fields that rows with limits share: how long, and how many at once. Blank = not set here."""

from typing import TYPE_CHECKING

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise

_MOST_CALLS = 10_000
_CALLS_AT_ONCE = [
    MinValueValidator(
        1, _("At least one call must be able to run; switch the tool off to let none run.")
    ),
    MaxValueValidator(
        _MOST_CALLS, _("More than %(limit_value)s calls at once is no limit; leave it blank.")
    ),
]


def span(
    label: "_StrPromise", help_text: "_StrPromise"
) -> "models.BigIntegerField[int | None, int | None]":
    """Return the field of a limit in milliseconds; `governance.validation` says in words what is wrong with one."""
    return models.BigIntegerField(label, null=True, blank=True, help_text=help_text)


def calls_at_once(
    help_text: "_StrPromise",
) -> "models.PositiveIntegerField[int | None, int | None]":
    """Return the field that says how many calls may run at once in a process."""
    return models.PositiveIntegerField(
        _("calls at once"),
        null=True,
        blank=True,
        validators=_CALLS_AT_ONCE,
        help_text=help_text,
    )
