"""Records the acts of people and the system for the activity list (sync ORM).

Call `record` in the transaction of the act itself, so that neither is stored without the other.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from django.apps import apps
from django.db import models

from governance import db_clock
from governance.sanitize import sanitize_text

HIDDEN = "…"  # replaces a value that some readers of the list may not see

_SUBJECT_LENGTH = 200
_NOTE_LENGTH = 500
_NAME_LENGTH = 150


def act(
    kind: str,
    action: str,
    *,
    source: models.Model | None = None,
    subject: str = "",
    group: str = "",
    changes: Mapping[str, Any] | None = None,
    why: str = "",
    note: str = "",
    by_id: Any = None,
    by_name: str = "",
    at: datetime | None = None,
) -> models.Model:
    """Return an unsaved act. `source` is the row with the details."""
    return _model()(
        kind=kind,
        action=action,
        source=source._meta.label if source is not None else "",
        source_id=str(source.pk) if source is not None else "",
        subject=sanitize_text(subject, limit=_SUBJECT_LENGTH),
        group=group,
        changes=dict(changes or {}),
        why=why,
        note=sanitize_text(note, limit=_NOTE_LENGTH),
        by_id=by_id,
        by_name=by_name[:_NAME_LENGTH],
        at=at or db_clock.now(),
    )


def store(acts: Iterable[models.Model]) -> None:
    _model()._default_manager.bulk_create(acts)


def record(kind: str, action: str, **facts: Any) -> None:
    """Store one act. The arguments are the same as for `act`."""
    act(kind, action, **facts).save(force_insert=True)


def remove_notes(groups: Collection[str]) -> None:
    """Remove the notes that users typed from the acts of these turns."""
    _model()._default_manager.filter(group__in=groups).exclude(note="").update(note="")


def count_of_person(user_id: Any, name: str) -> int:
    """Return the number of a person's acts, including their sign-ins."""
    acts = models.Q(by=user_id) | models.Q(by_name=name) | models.Q(kind="sign_in", subject=name)
    return _model()._default_manager.filter(acts).count()


def rename_person(old: str, new: str) -> None:
    """Remove a person's notes, and replace their name in sign-ins, in acts on tokens, and in the filters of exports.

    The caller must replace `by_name` first.
    """
    _rename_in_exports(old, new)
    rows = _model()._default_manager
    rows.filter(by_name=new).exclude(note="").update(note="")
    rows.filter(kind="sign_in", subject=old).update(subject=new)
    for row in rows.filter(kind="token").iterator():
        changes: Any = getattr(row, "changes", {})
        if old in (changes.get("user") or ()):
            renamed = {**changes, "user": [None, new]}
            rows.filter(pk=row.pk).update(changes=renamed)


def _rename_in_exports(old: str, new: str) -> None:
    """Replace a name in the filters and search terms of exports."""
    rows = apps.get_model("governance", "Export")._default_manager
    for row in rows.only("filters", "terms").iterator():
        queries_by_field: Any = {name: getattr(row, name) for name in ("filters", "terms")}
        renamed = {
            field: {
                name: [new if value.strip() == old else value for value in values]
                for name, values in queries.items()
            }
            for field, queries in queries_by_field.items()
        }
        if renamed != queries_by_field:
            rows.filter(pk=row.pk).update(**renamed)


def _model() -> type[models.Model]:
    """Return the model `Activity`, which cannot be imported here because other models record their edits through this
    module.
    """
    return apps.get_model("governance", "Activity")
