"""The audit of edits: which field went from what to what, by whom and when. The same for all that is edited live."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from django.apps import apps
from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import models, transaction
from django.dispatch import Signal
from django.utils import translation
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance.durations import format_limit

logger = logging.getLogger(__name__)

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
        return summary_of(apps.get_model(self.subject), self.changes, self.describe_value)

    @classmethod
    def describe_value(cls, name: str, value: object) -> str:
        return describe_value(name, value)


class EditConflict(ValidationError):
    """Somebody else has edited the same row meanwhile; nothing was saved."""

    def __init__(self, row: models.Model) -> None:
        problem = _(
            "“%(row)s” was changed by somebody else meanwhile. Nothing was saved: look again."
        )
        super().__init__(problem % {"row": row}, code="conflict")


AnyChange = TypeVar("AnyChange", bound=Change)


def summary_of(
    model: type[models.Model],
    changes: Mapping[str, Sequence[Any]],
    describe: Callable[[str, Any], str],
) -> str:
    """Return changes in one line, in the order of the model's columns; `describe` makes a text of a column's value."""
    labels = {field.name: str(field.verbose_name) for field in model._meta.fields}
    places = {name: place for place, name in enumerate(labels)}
    return "; ".join(
        f"{labels.get(name, name)}: {describe(name, old)} → {describe(name, new)}"
        for name, (old, new) in sorted(
            changes.items(), key=lambda change: places.get(change[0], len(places))
        )
    )


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


def edit(
    row: models.Model,
    values: Mapping[str, Any],
    *,
    fields: Collection[str],
    seen: Any = None,
    conflict: type[EditConflict] = EditConflict,
) -> Changes:
    """Set the values of a locked row and return what they change: field → [old, new]. Nothing is saved yet.

    `fields` may be edited. `seen` is the `revision` that the editor has seen, or the `updated_at` of a row without one.

    Raises:
        EditConflict: the row was edited since `seen`.
        django.core.exceptions.ValidationError: a value is of another type than its field; words by field.
    """
    if seen is not None and seen != getattr(row, "revision", getattr(row, "updated_at", None)):
        raise conflict(row)
    if unknown := values.keys() - set(fields):
        raise TypeError(f"{row._meta.verbose_name_plural} have no {sorted(unknown)!r}.")
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


def deleted(row: models.Model, fields: Iterable[str]) -> Changes:
    """Return what goes with a row: field → [old, None]."""
    values = {name: getattr(row, name) for name in fields}
    return {name: [value, None] for name, value in values.items() if value not in (None, "")}


def record(
    kind: type[AnyChange],
    row: models.Model,
    *,
    action: str,
    changes: Changes,
    by: Editor,
    where: str = "",
    signal: Signal | None = None,
    **subject: Any,
) -> AnyChange:
    """Write an edit down as a `kind` of change, and in the admin's history. `where` names an editor without account.

    The `signal` tells the `subject` once the edit is committed.
    """
    change = kind._default_manager.create(
        action=action,
        changes=changes,
        by=by,
        by_name=by.get_username()[:150] if by else where,
        **subject,
    )
    log(row, action=action, summary=change.summary, by=by)
    facts = _log_facts(change, row, changes, by)
    transaction.on_commit(partial(logger.info, "An edit was saved", extra=facts), robust=True)
    if signal is not None:
        send = partial(signal.send_robust, sender=type(row), **subject)
        transaction.on_commit(send, robust=True)
    return change


def _log_facts(change: Any, row: models.Model, changes: Changes, by: Editor) -> dict[str, Any]:
    with translation.override(None):  # the log speaks one language, whoever edits
        subject = str(row)
    facts = {"subject": subject, "action": change.action, "by_id": by.pk if by else None}
    version = {"version": change.version} if hasattr(change, "version") else {}
    return {**facts, **version, **_numbers(changes)}


def _numbers(changes: Changes) -> dict[str, str]:
    """Return numbers and switches as `old→new`. Texts stay out of the log, since people wrote them."""
    return {
        name: f"{old}→{new}"
        for name, (old, new) in changes.items()
        if all(value is None or isinstance(value, int) for value in (old, new))
    }


def log(row: models.Model, *, action: str, summary: str, by: Editor) -> None:
    """Write the admin's own history, with the old and the new values that it would not keep."""
    if by is None or not apps.is_installed("django.contrib.admin"):
        return
    from django.contrib.admin.models import (  # noqa: PLC0415 - importable only where the admin is installed
        ADDITION,
        CHANGE,
        DELETION,
        LogEntry,
    )

    flag = {"add": ADDITION, "change": CHANGE, "delete": DELETION}[action]
    LogEntry.objects.log_actions(by.pk, [row], flag, change_message=summary, single_object=True)
