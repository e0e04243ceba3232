"""Form fields: durations with their unit, lists with one item per line, and the hidden timestamp that detects
conflicting edits.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from governance.durations import (
    UNITS_MS,
    TooShort,
    UnitMissing,
    format_duration,
    parse_duration,
)

if TYPE_CHECKING:
    AnyModelForm = forms.ModelForm[Any]
else:
    AnyModelForm = forms.ModelForm

UNITS_HELP = _("With a unit: 90 s, 2 min, 1 min 30 s, 500 ms.")


class DurationField(forms.Field):
    """A form field for milliseconds that shows and accepts a duration with its unit (acceptance 19)."""

    widget = forms.TextInput(attrs={"size": 12, "autocomplete": "off", "spellcheck": "false"})
    default_error_messages = {
        "invalid": _(
            "“%(value)s” is not a duration. Enter, for example, 90 s, 2 min, 1 min 30 s or 500 ms."
        ),
        "unit_missing": _(
            "“%(value)s” has no unit: it could mean %(value)s ms, %(value)s s or %(value)s min. Add the unit."
        ),
        "too_short": _(
            "“%(value)s” is shorter than a millisecond. Enter 1 ms or more, or 0 for “no limit”."
        ),
    }

    def prepare_value(self, value: Any) -> Any:
        """Show stored milliseconds with their unit; leave typed text unchanged."""
        if isinstance(value, int):
            return format_duration(value) if value else "0"
        return value

    def to_python(self, value: Any) -> int | None:
        """Return milliseconds, or None for a blank field."""
        text = str(value).strip() if value is not None else ""
        if not text:
            return None
        try:
            return parse_duration(text)
        except UnitMissing:
            code = "unit_missing"
        except TooShort:
            code = "too_short"
        except ValueError:
            code = "invalid"
        raise ValidationError(self.error_messages[code], code=code, params={"value": text[:60]})

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the duration itself has changed, not only its spelling."""
        try:
            return bool(self.to_python(data) != initial)
        except ValidationError:
            return True


class LinesField(forms.CharField):
    """A form field for a list of strings, one per line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, widget=forms.Textarea(attrs={"rows": 3}), **options)

    def prepare_value(self, value: Any) -> Any:
        """Show each stored string on its own line; leave typed text unchanged."""
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        return [line.strip() for line in str(value or "").splitlines() if line.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the list itself has changed, not only blank lines and spaces."""
        return bool(self.to_python(data) != (initial or []))


class WarnedForm(AnyModelForm):
    """A form that warns once about an edited duration below a second. Saving the same values again confirms them."""

    accepted = forms.CharField(required=False, widget=forms.HiddenInput)

    def warn(self) -> None:
        """Refuse suspicious values until the editor has seen the warning. Call it after all other checks."""
        if self.errors or self.cleaned_data.get("accepted") == self._values:
            return
        for sentence in self.warnings():
            self.add_error(None, sentence)
            self.keep("accepted", self._values)

    def warnings(self) -> Iterator[str]:
        """Yield a sentence for each suspicious value."""
        for name in self._edited_spans:
            if 0 < (self.cleaned_data.get(name) or 0) < UNITS_MS["s"]:
                words = gettext(
                    "%(field)s: %(value)s is shorter than a second. Save again to confirm."
                )
                duration = format_duration(self.cleaned_data[name])
                yield words % {"field": self.fields[name].label, "value": duration}

    def keep(self, name: str, value: str) -> None:
        """Set a value in the redisplayed form, so that the next save is accepted."""
        data: Any = self.data.copy()  # type: ignore[attr-defined]  # a dict, if not that of a request
        data[self.add_prefix(name)] = value
        self.data = data

    @property
    def _values(self) -> str:
        """The edited durations as text, so that the editor is warned only once about the same values."""
        return " ".join(f"{name}={self.cleaned_data.get(name)}" for name in self._edited_spans)

    @property
    def _edited_spans(self) -> list[str]:
        return [name for name in self.changed_data if isinstance(self.fields[name], DurationField)]


class VersionedForm(WarnedForm):
    """A form for a row with `updated_at`. A hidden field contains the `updated_at` that the editor has seen."""

    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["seen"] = self.instance.updated_at.isoformat() if self.instance.pk else ""

    @property
    def loaded_updated_at(self) -> datetime | None:
        """The row's `updated_at` when the form was loaded, or None if it is unknown."""
        try:
            return parse_datetime(self.cleaned_data.get("seen") or "")
        except ValueError:
            return None

    def refuse_stale(self, changes: models.QuerySet[Any]) -> None:
        """Refuse an edit of a row that was changed after the form was loaded; `changes` are the row's changes, newest
        first.
        """
        current = self.instance.updated_at
        if not self.instance.pk or self.loaded_updated_at in (None, current):
            return
        last = changes.first()
        problem = gettext(
            "Changed in the meantime by %(who)s: %(what)s. Nothing was saved. Save again to replace these values"
            " with yours."
        )
        editor = last.by_name if last and last.by_name else gettext("someone")
        self.add_error(None, problem % {"who": editor, "what": last.summary if last else "…"})
        self.keep("seen", current.isoformat())
