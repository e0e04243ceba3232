"""The audit of edits: who changed which field from which value to which, and when. All models that administrators edit
share it.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from django.apps import apps
from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db import models
from django.dispatch import Signal
from django.utils import translation
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance import activity
from governance.db import on_commit
from governance.durations import format_limit
from governance.model_fields import DatabaseTimeField

logger = logging.getLogger(__name__)

Changes = dict[str, list[Any]]
Editor = AbstractBaseUser | None

LONGEST = 80
_TYPES: tuple[tuple[Any, type, Any], ...] = (
    (models.BooleanField, bool, gettext_lazy("Enter true or false.")),
    (models.IntegerField, int, gettext_lazy("Enter a whole number.")),
    ((models.CharField, models.TextField), str, gettext_lazy("Enter text.")),
)


class Change(models.Model):
    """One edit of a row: its editor, its time, and the old and new values (append-only)."""

    subject = ""  # the model that is edited, as "app.Model"
    kind = ""  # the kind of the act that records an edit
    named_by = ""  # the field that names the edited row; blank if there is only one row
    confidential: Collection[str] = ()  # fields whose values the activity list hides

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
    at = DatabaseTimeField(gettext_lazy("at"), auto_now_add=True)

    class Meta:
        abstract = True
        ordering = ["-at", "-pk"]

    @property
    def summary(self) -> str:
        """The changes in one line, in the order of the fields, for example "total limit: 2 min → 30 s"."""
        return summary_of(apps.get_model(self.subject), self.changes, self.describe_value)

    @classmethod
    def describe_value(cls, name: str, value: object) -> str:
        return describe_value(name, value)


class EditConflict(ValidationError):
    """Another person has edited the same row since the editor loaded it; nothing was saved."""

    def __init__(self, row: models.Model) -> None:
        problem = _(
            "Someone else has changed “%(row)s” in the meantime. Nothing was saved."
            " Reload the page to see the new values."
        )
        super().__init__(problem % {"row": row}, code="conflict")


AnyChange = TypeVar("AnyChange", bound=Change)


def summary_of(
    model: type[models.Model],
    changes: Mapping[str, Sequence[Any]],
    describe: Callable[[str, Any], str],
) -> str:
    """Return changes in one line, in the order of the model's columns; `describe` returns a column's value as text."""
    fields = [*model._meta.fields, *model._meta.many_to_many]
    labels = {field.name: str(field.verbose_name) for field in fields}
    places = {name: position for position, name in enumerate(labels)}
    return "; ".join(
        f"{labels.get(name, name)}: {describe(name, old)} → {describe(name, new)}"
        for name, (old, new) in sorted(
            changes.items(), key=lambda change: places.get(change[0], len(places))
        )
    )


def describe_value(name: str, value: object) -> str:
    """Return a field's value as people read it: a duration with units, yes or no, or the beginning of a long text."""
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
    version: Any = None,
    conflict: type[EditConflict] = EditConflict,
) -> Changes:
    """Set the values of a locked row without saving it, and return the changes, which map each field to [old, new].

    `fields` are the fields that may be edited. `version` is the `revision` that the editor has seen, or the
    `updated_at` of a row without a `revision`.

    Raises:
        EditConflict: the row was edited since `version`.
        django.core.exceptions.ValidationError: a value does not have the type of its field; the error has a message for
            each such field.
    """
    if version is not None and version != getattr(
        row, "revision", getattr(row, "updated_at", None)
    ):
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
    """Refuse values that do not have their field's type, because a silent conversion would hide that "90" or 1.5 may
    mean another unit.
    """
    errors = {}
    for name, value in values.items():
        field = cast("models.Field[Any, Any]", row._meta.get_field(name))
        for kind, expected_type, words in _TYPES:
            if isinstance(field, kind) and type(value) is not expected_type:
                if not (value is None and field.null):
                    errors[name] = [str(words)]
                break
    if errors:
        raise ValidationError(errors)


def deleted(row: models.Model, fields: Iterable[str]) -> Changes:
    """Return the changes of a deleted row, which map each field that was set to [old, None]."""
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
    """Store an edit as a change of the class `kind`, in the activity list, and in the admin's history.

    `where` is stored as the editor's name if `by` is None. The `signal` is sent with the `subject` after the commit.
    """
    change = kind._default_manager.create(
        action=action,
        changes=changes,
        by=by,
        by_name=by.get_username()[:150] if by else where,
        **subject,
    )
    _record_activity(change)
    log(row, action=action, summary=change.summary, by=by)
    facts = _log_facts(change, row, changes, by)
    on_commit(partial(logger.info, "An edit was saved", extra=facts), robust=True)
    if signal is not None:
        send = partial(signal.send_robust, sender=type(row), **subject)
        on_commit(send, robust=True)
    return change


def _record_activity(change: Change) -> None:
    shown_fields = {
        name: activity.HIDDEN if name in change.confidential else values
        for name, values in change.changes.items()
    }
    activity.record(
        change.kind,
        change.action,
        source=change,
        subject=str(getattr(change, change.named_by)) if change.named_by else "",
        changes=shown_fields,
        why=getattr(change, "reason", ""),
        by_id=change.by_id,
        by_name=change.by_name,
        at=change.at,
    )


def _log_facts(change: Any, row: models.Model, changes: Changes, by: Editor) -> dict[str, Any]:
    with translation.override(None):  # the language of the log does not depend on the editor
        subject = str(row)
    facts = {"subject": subject, "action": change.action, "by_id": by.pk if by else None}
    version = {"version": change.version} if hasattr(change, "version") else {}
    return {**facts, **version, **_numbers(changes)}


def _numbers(changes: Changes) -> dict[str, str]:
    """Return the changes of numbers and booleans as `old→new`. Texts stay out of the log, because people wrote them."""
    return {
        name: f"{old}→{new}"
        for name, (old, new) in changes.items()
        if all(value is None or isinstance(value, int) for value in (old, new))
    }


def log(row: models.Model, *, action: str, summary: str, by: Editor) -> None:
    """Add an entry to the admin's own history with the old and new values, which the admin itself does not store."""
    if by is None or not apps.is_installed("django.contrib.admin"):
        return
    from django.contrib.admin.models import (  # noqa: PLC0415 - importable only if the admin is installed
        ADDITION,
        CHANGE,
        DELETION,
        LogEntry,
    )

    flag = {"add": ADDITION, "change": CHANGE, "delete": DELETION}[action]
    LogEntry.objects.log_actions(by.pk, [row], flag, change_message=summary, single_object=True)
