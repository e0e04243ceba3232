"""Form fields: durations with their unit, lists in lines, and the hidden moment that tells two editors apart."""

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
    """Milliseconds, written and shown as a duration with its unit (acceptance 19)."""

    widget = forms.TextInput(attrs={"size": 12, "autocomplete": "off", "spellcheck": "false"})
    default_error_messages = {
        "invalid": _(
            "“%(value)s” is not a duration. Write for example 90 s, 2 min, 1 min 30 s or 500 ms."
        ),
        "unit_missing": _(
            "“%(value)s” has no unit: it could mean %(value)s ms, %(value)s s or %(value)s min. Write which."
        ),
        "too_short": _(
            "“%(value)s” is shorter than a millisecond. Write 1 ms or more, or 0 for “no limit”."
        ),
    }

    def prepare_value(self, value: Any) -> Any:
        """Show stored milliseconds with their unit; keep typed text."""
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
        """Compare durations, not their spelling."""
        try:
            return bool(self.to_python(data) != initial)
        except ValidationError:
            return True


class LinesField(forms.CharField):
    """A list of texts, one in each line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, widget=forms.Textarea(attrs={"rows": 3}), **options)

    def prepare_value(self, value: Any) -> Any:
        """Show stored texts in lines; keep typed text."""
        return "\n".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        return [line.strip() for line in str(value or "").splitlines() if line.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare texts, not their spelling."""
        return bool(self.to_python(data) != (initial or []))


class WarnedForm(AnyModelForm):
    """A form that warns once of an edited duration below a second. Whoever saves the same values again means them."""

    accepted = forms.CharField(required=False, widget=forms.HiddenInput)

    def warn(self) -> None:
        """Refuse what looks wrong until the editor has been told; to be called when all else is checked."""
        if self.errors or self.cleaned_data.get("accepted") == self._values:
            return
        for sentence in self.warnings():
            self.add_error(None, sentence)
            self.keep("accepted", self._values)

    def warnings(self) -> Iterator[str]:
        """Yield a sentence for each value that looks wrong."""
        for name in self._edited_spans:
            if 0 < (self.cleaned_data.get(name) or 0) < UNITS_MS["s"]:
                words = gettext(
                    "%(field)s: %(value)s is shorter than a second. Save again to set it."
                )
                shown = format_duration(self.cleaned_data[name])
                yield words % {"field": self.fields[name].label, "value": shown}

    def keep(self, name: str, value: str) -> None:
        """Send a value back with the page: the editor sees what is wrong now, and the next save counts."""
        data: Any = self.data.copy()  # type: ignore[attr-defined]  # a dict, if not that of a request
        data[self.add_prefix(name)] = value
        self.data = data

    @property
    def _values(self) -> str:
        """The edited durations: whoever has been warned of these is not warned of them again."""
        return " ".join(f"{name}={self.cleaned_data.get(name)}" for name in self._edited_spans)

    @property
    def _edited_spans(self) -> list[str]:
        return [name for name in self.changed_data if isinstance(self.fields[name], DurationField)]


class VersionedForm(WarnedForm):
    """A form of a row with `updated_at`: it carries the edit that the editor has seen."""

    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["seen"] = self.instance.updated_at.isoformat() if self.instance.pk else ""

    @property
    def loaded_updated_at(self) -> datetime | None:
        """The `updated_at` that the form was loaded with."""
        try:
            return parse_datetime(self.cleaned_data.get("seen") or "")
        except ValueError:
            return None

    def refuse_stale(self, changes: models.QuerySet[Any]) -> None:
        """Refuse an edit of a row that has changed meanwhile; `changes` are those of the row, the newest first."""
        current = self.instance.updated_at
        if not self.instance.pk or self.loaded_updated_at in (None, current):
            return
        last = changes.first()
        problem = gettext(
            "Changed meanwhile by %(who)s: %(what)s. Nothing was saved; save again to set your values."
        )
        who = last.by_name if last and last.by_name else gettext("somebody")
        self.add_error(None, problem % {"who": who, "what": last.summary if last else "…"})
        self.keep("seen", current.isoformat())
