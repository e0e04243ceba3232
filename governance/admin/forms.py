"""Forms of the limits: units, labels of choices, and conflict checks."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance import selectors
from governance.admin.formatting import format_span
from governance.audit import describe_value
from governance.conf import app_settings
from governance.core.histograms import CallDurations
from governance.durations import format_duration, format_limit, limit_ms
from governance.form_fields import DurationField, WarnedForm
from governance.models import DefaultPolicy, PolicyChange, ToolPolicy
from governance.services import DEFAULT_FIELDS, TOOL_FIELDS, check_idle_limit
from governance.statistics import LastCalls
from governance.suggestions import effect_text, is_under_the_usual, read_last_calls

ROW_FIELDS = (
    "timeout_ms",
    "idle_timeout_ms",
    "ceiling_ms",
    "max_running",
    "approval",
    "tool_enabled",
)


class LimitsForm(WarnedForm):
    """The limits of one row; an edit of a stale row is refused, with both values.

    A `is_preview` warns of nothing, since nothing will be saved. `shown` are the durations that the page shows beside
    the limits.
    """

    is_preview = False
    shown: CallDurations | None = None

    revision = forms.IntegerField(required=False, widget=forms.HiddenInput)
    why = forms.CharField(
        label=gettext_lazy("Why"),
        required=False,
        max_length=500,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text=gettext_lazy("Kept with this change."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "why" in self.fields:
            self.fields["why"].required = app_settings.LIMIT_NOTE_REQUIRED

    @property
    def edited(self) -> list[str]:
        return [name for name in self.changed_data if name in TOOL_FIELDS]

    def clean(self) -> dict[str, Any] | None:
        """Compare the revision that the editor has seen with the one in the database; warn once of what looks wrong."""
        cleaned = super().clean()
        seen, current = self.cleaned_data.get("revision"), self.instance.revision
        if seen is not None and seen != current and self.edited:
            self.add_error(None, self._conflict())
            self.keep("revision", str(current))
        if not self.is_preview:
            self.warn()
        return cleaned

    @property
    def effect(self) -> str:
        """What an edited total limit would have done to the last calls of the tool."""
        total_ms = self.cleaned_data.get("timeout_ms") if "timeout_ms" in self.edited else None
        if total_ms is None or self._last_calls is None:
            return ""
        return effect_text(self._last_calls, total_ms)

    @cached_property
    def _last_calls(self) -> LastCalls | None:
        name = getattr(self.instance, "tool_name", "") or self.cleaned_data.get("tool_name")
        return read_last_calls(name) if name else None

    def warnings(self) -> Iterator[str]:
        """Warn of a total limit under the present p95, too."""
        yield from super().warnings()
        total_ms = self.cleaned_data.get("timeout_ms") if "timeout_ms" in self.edited else None
        if total_ms and is_under_the_usual(self._present, total_ms):
            usual = self._present.percentile(95)
            words = _(
                "%(value)s is under the present p95 (%(usual)s). %(effect)s Save again to set it."
            )
            yield words % {
                "value": format_duration(total_ms),
                "usual": _("unknown") if usual is None else format_span(usual),
                "effect": self.effect,
            }

    @property
    def _present(self) -> CallDurations:
        """What the page shows of how long calls run; the last calls where it shows none."""
        if self.shown is not None and self.shown.judged:
            return self.shown
        return self._last_calls.durations if self._last_calls else CallDurations()

    def _post_clean(self) -> None:
        """Check the row against the levels below it too; the model knows only itself."""
        super()._post_clean()  # type: ignore[misc]  # the stubs leave it out
        if not self.errors and self.edited:
            try:
                check_idle_limit(self.instance)
            except ValidationError as problem:
                self.add_error(None, problem)

    def _conflict(self) -> str:
        last = PolicyChange.objects.filter(
            tool_name=getattr(self.instance, "tool_name", "")
        ).first()
        values = "; ".join(
            _("%(field)s: yours %(yours)s, now %(now)s")
            % {
                "field": self.fields[name].label or name,
                "yours": describe_value(name, self.cleaned_data.get(name)),
                "now": describe_value(name, getattr(self.instance, name)),
            }
            for name in self.edited
        )
        who = last.by_name if last and last.by_name else _("somebody")
        problem = _(
            "Changed meanwhile by %(who)s. %(values)s. Nothing was saved; save again to set your values."
        )
        return problem % {"who": who, "values": values}


class DefaultPolicyForm(LimitsForm):
    """The limits that count for every tool without others."""

    class Meta:
        model = DefaultPolicy
        fields = [*DEFAULT_FIELDS, "why", "revision", "accepted"]


class ToolPolicyForm(LimitsForm):
    """The limits of one tool; a new row names one of the registered tools."""

    tool_name = forms.ChoiceField(
        label=gettext_lazy("Tool"),
        error_messages={
            "invalid_choice": gettext_lazy(
                "There is no tool named “%(value)s”. Choose one of this list."
            )
        },
    )

    class Meta:
        model = ToolPolicy
        fields = ["tool_name", *TOOL_FIELDS, "why", "revision", "accepted"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(field := self.fields.get("tool_name"), forms.ChoiceField):
            field.choices = [("", "---------"), *_tool_choices()]

    def clean(self) -> dict[str, Any] | None:
        """Refuse a new row that says nothing."""
        cleaned = super().clean()
        if not (self.instance.pk or self.edited or self.errors):
            self.add_error(None, _("Set at least one limit: no row is kept that says nothing."))
        return cleaned


class ToolPolicyRowForm(LimitsForm):
    """One tool's row of the page of limits. It carries the shown values, so that an unchanged row is never saved."""

    class Meta:
        model = ToolPolicy
        fields = [*ROW_FIELDS, "revision", "accepted"]
        widgets = {"approval": forms.Select, "tool_enabled": forms.CheckboxInput}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        del self.fields["why"]  # asked for once, for all rows
        for name, field in self.fields.items():
            field.show_hidden_initial = name in ROW_FIELDS
            field.help_text = ""
            if name in ROW_FIELDS:
                # The column's head is no label to a screen reader.
                spoken = f"{field.label}: {cast(ToolPolicy, self.instance).tool_name}"
                field.widget.attrs["aria-label"] = spoken
            if isinstance(field, DurationField):
                field.widget.attrs["size"] = 8


def _tool_choices() -> list[tuple[str, str]]:
    return [
        (
            tool.name,
            _("%(name)s (its own limit: %(limit)s)")
            % {"name": tool.name, "limit": _declared(tool.limits.timeout)},
        )
        for tool in sorted(selectors.offered_tools(), key=lambda tool: tool.name)
    ]


def _declared(timeout: float | None) -> str:
    return format_limit(None if timeout is None else limit_ms(timeout))
