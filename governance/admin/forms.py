"""Forms of the limits: units, labels of choices, and conflict checks."""

from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance import selectors
from governance.audit import describe_value
from governance.durations import format_limit, limit_ms
from governance.form_fields import DurationField, RevisionInput
from governance.models import DefaultPolicy, Limits, PolicyChange, ToolPolicy
from governance.services import DEFAULT_FIELDS, TOOL_FIELDS, check_idle_limit

if TYPE_CHECKING:
    LimitsModelForm = forms.ModelForm[Limits]
else:
    LimitsModelForm = forms.ModelForm


class LimitsForm(LimitsModelForm):
    """The limits of one row; an edit of a stale row is refused, with both values."""

    revision = forms.IntegerField(required=False, widget=forms.HiddenInput)

    @property
    def edited(self) -> list[str]:
        """The names of the limits that the editor has changed."""
        return [name for name in self.changed_data if name in TOOL_FIELDS]

    def clean(self) -> dict[str, Any] | None:
        """Compare the revision that the editor has seen with the one in the database."""
        cleaned = super().clean()
        seen, current = self.cleaned_data.get("revision"), self.instance.revision
        if self.instance.pk and seen is not None and seen != current and self.edited:
            self.add_error(None, self._conflict())
            self._accept(current)
        return cleaned

    def _post_clean(self) -> None:
        """Check the row against the levels below it too; the model knows only itself."""
        super()._post_clean()  # type: ignore[misc]  # the stubs leave it out
        if not self.errors:
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

    def _accept(self, revision: int) -> None:
        """The editor sees both values now: the next save counts."""
        data = {name: self.data.get(name) for name in self.data}
        self.data = data | {self.add_prefix("revision"): str(revision)}


class DefaultPolicyForm(LimitsForm):
    """The limits that count for every tool without others."""

    class Meta:
        model = DefaultPolicy
        fields = [*DEFAULT_FIELDS, "revision"]


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
        fields = ["tool_name", *TOOL_FIELDS, "revision"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(field := self.fields.get("tool_name"), forms.ChoiceField):
            field.choices = [("", "---------"), *_tool_choices()]


class ToolPolicyRowForm(LimitsForm):
    """One row of the list. It carries the shown values, so that an unchanged row is never saved."""

    revision = forms.IntegerField(required=False, widget=RevisionInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            field.show_hidden_initial = name in (*TOOL_FIELDS, "revision")
            if isinstance(field, DurationField):
                # The column's head is no label to a screen reader.
                spoken = f"{field.label}: {cast(ToolPolicy, self.instance).tool_name}"
                field.widget.attrs |= {"size": 8, "aria-label": spoken}


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
