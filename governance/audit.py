"""The audit of edits: which field went from what to what, by whom and when. The same for all that is edited live."""

from collections.abc import Mapping
from typing import Any, Protocol, cast

from django.apps import apps
from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import models
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance.durations import format_limit

Changes = dict[str, list[Any]]
Editor = AbstractBaseUser | None

LONGEST = 80
_TYPES: tuple[tuple[Any, type, Any], ...] = (
    (models.BooleanField, bool, gettext_lazy("Write true or false.")),
    (models.IntegerField, int, gettext_lazy("Write a whole number.")),
    ((models.CharField, models.TextField), str, gettext_lazy("Write a text.")),
)


class Change(models.Model):
    """One edit of a row: who changed which field from what to what, and when (append-only)."""

    subject = ""  # the model that is edited, as "app.Model"

    action = models.CharField(
        gettext_lazy("action"),
        max_length=8,
        choices=[
            ("add", gettext_lazy("added")),
            ("change", gettext_lazy("changed")),
            ("delete", gettext_lazy("deleted")),
        ],
    )
    changes = models.JSONField(
        gettext_lazy("changes"), default=dict, help_text=gettext_lazy("field → [old, new]")
    )
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        related_name="+",
        verbose_name=gettext_lazy("by"),
    )
    by_name = models.CharField(gettext_lazy("by"), max_length=150, blank=True)
    at = models.DateTimeField(gettext_lazy("at"), auto_now_add=True)

    class Meta:
        abstract = True
        ordering = ["-at", "-pk"]

    @property
    def summary(self) -> str:
        """The changes in one line, in the order of the fields: "total limit: 2 min → 30 s"."""
        labels = {
            field.name: str(field.verbose_name)
            for field in apps.get_model(self.subject)._meta.fields
        }
        last = len(labels)
        places = {name: place for place, name in enumerate(labels)}
        return "; ".join(
            f"{labels.get(name, name)}: {self.describe_value(name, old)} → {self.describe_value(name, new)}"
            for name, (old, new) in sorted(
                self.changes.items(), key=lambda change: places.get(change[0], last)
            )
        )

    @classmethod
    def describe_value(cls, name: str, value: object) -> str:
        """Return a field's value as people read it."""
        return describe_value(name, value)


class _Audited(Protocol):
    action: str

    @property
    def summary(self) -> str: ...


def describe_value(name: str, value: object) -> str:
    """Return a field's value as people read it: durations with units, yes and no, long texts by their beginning."""
    if name.endswith("_ms") and (value is None or isinstance(value, int)):
        return format_limit(value)
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, list):
        return ", ".join(map(str, value)) or _("none")
    if value is None or value == "":
        return _("not set")
    return Truncator(str(value)).chars(LONGEST)


def apply(row: models.Model, values: Mapping[str, Any]) -> Changes:
    """Set the values and return the changes: field → [old, new].

    Raises:
        django.core.exceptions.ValidationError: a value is of another type than its field; words by field.
    """
    _check_types(row, values)
    changes = {
        name: [old, value] for name, value in values.items() if (old := getattr(row, name)) != value
    }
    for name, (_old, value) in changes.items():
        setattr(row, name, value)
    return changes


def _check_types(row: models.Model, values: Mapping[str, Any]) -> None:
    """Refuse values of another type. A silent conversion would hide that "90" or 1.5 may mean another unit."""
    errors = {}
    for name, value in values.items():
        field = cast("models.Field[Any, Any]", row._meta.get_field(name))
        for kind, wanted, words in _TYPES:
            if isinstance(field, kind) and type(value) is not wanted:
                if not (value is None and field.null):
                    errors[name] = [str(words)]
                break
    if errors:
        raise ValidationError(errors)


def signature(by: Editor) -> dict[str, Any]:
    """Return the fields of a change that say who made it."""
    return {"by": cast(Any, by), "by_name": by.get_username()[:150] if by else ""}


def log(row: models.Model, change: _Audited, *, by: Editor) -> None:
    """Write the admin's own history too, with the old and the new values that it would not keep."""
    if by is None or not apps.is_installed("django.contrib.admin"):
        return
    from django.contrib.admin.models import (  # noqa: PLC0415 - importable only where the admin is installed
        ADDITION,
        CHANGE,
        DELETION,
        LogEntry,
    )

    flag = {"add": ADDITION, "change": CHANGE, "delete": DELETION}[change.action]
    LogEntry.objects.log_actions(
        by.pk, [row], flag, change_message=change.summary, single_object=True
    )
