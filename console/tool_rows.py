"""The rows and forms of the limits page: one row per tool that the site offers or has limits for."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console import tools
from console.formats import NOTHING, format_span, format_time
from governance.audit import describe_value
from governance.conf import app_settings
from governance.core.histograms import TIMEOUTS, CallDurations, End
from governance.core.policy import (
    ApprovalRule,
    Policy,
    PolicyLevels,
    TimeoutSource,
    ToolLimits,
    resolve,
    source_of,
)
from governance.durations import format_duration, format_limit, limit_ms, time_text
from governance.form_fields import DurationField, WarnedForm
from governance.labels import approval_rules, label_for, timeout_sources, timeouts
from governance.models import DefaultPolicy, PolicyChange, ToolPolicy
from governance.policies import Edit, Policies, read_policies
from governance.selectors import OfferedTool
from governance.services import DEFAULT_FIELDS, TOOL_FIELDS, check_idle_limit
from governance.statistics import LastCalls, Statistics
from governance.suggestions import WIDE, effect_text, is_under_the_usual, read_last_calls

ROW_FIELDS = (
    "timeout_ms",
    "idle_timeout_ms",
    "ceiling_ms",
    "max_running",
    "approval",
    "tool_enabled",
)
SHARES = (50, 95, 99)
TIGHT = 1.5  # a limit below this multiple of p95 is tight
NEAR = "near"
NEAR_SHARE = 0.8  # a tool whose p95 exceeds this share of its limit is near its limit
MOST_NAMED = 3
_UNSET = ToolLimits()
INHERITABLE = {  # the columns of a row, and the limits of its policy
    "idle_timeout_ms": "idle_timeout",
    "ceiling_ms": "ceiling",
    "max_running": "max_running",
    "approval": "approval",
    "approval_timeout_ms": "approval_timeout",
}


class LimitsForm(WarnedForm):
    """A form for the limits of one row. If an edit conflicts with another one, it is refused, and both values are shown.

    A preview (`is_preview`) gives no warnings because nothing is saved. `shown` are the durations displayed beside the
    limits.
    """

    is_preview = False
    shown: CallDurations | None = None
    tool: OfferedTool | None = None

    revision = forms.IntegerField(required=False, widget=forms.HiddenInput)
    why = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=500,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text=gettext_lazy("Saved with this change."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "why" in self.fields:
            self.fields["why"].required = app_settings.LIMIT_NOTE_REQUIRED

    @property
    def edited(self) -> list[str]:
        return [name for name in self.changed_data if name in TOOL_FIELDS]

    @property
    def edits(self) -> dict[str, Any]:
        """Return only the values that the editor changed."""
        return {name: self.cleaned_data[name] for name in self.edited}

    @property
    def reason(self) -> str:
        """Return the editor's reason; empty if there is none."""
        return str(self.cleaned_data.get("why", ""))

    def clean(self) -> dict[str, Any] | None:
        """Compare the revision that the editor saw with the current one; warn once about suspicious limits."""
        cleaned = super().clean()
        revision, current = self.cleaned_data.get("revision"), self.instance.revision
        if revision is not None and revision != current and self.edited:
            self.add_error(None, self._conflict())
            self.keep("revision", str(current))
        if not self.is_preview:
            self.warn()
        return cleaned

    @property
    def effect(self) -> str:
        """Describe how the edited total limit would have affected the tool's last calls."""
        total_ms = self.cleaned_data.get("timeout_ms") if "timeout_ms" in self.edited else None
        if total_ms is None or self._last_calls is None:
            return ""
        return effect_text(self._last_calls, total_ms)

    @cached_property
    def _last_calls(self) -> LastCalls | None:
        name = getattr(self.instance, "tool_name", "") or self.cleaned_data.get("tool_name")
        return read_last_calls(name) if name else None

    def warnings(self) -> Iterator[str]:
        """Yield warnings, including one about a total limit below the current p95."""
        yield from super().warnings()
        total_ms = self.cleaned_data.get("timeout_ms") if "timeout_ms" in self.edited else None
        if total_ms and is_under_the_usual(self._present, total_ms):
            usual = self._present.percentile(95)
            least = self._present.least_percentile(95) or 0
            words = _(
                "%(value)s is below the current p95 (%(usual)s). %(effect)s Save again to confirm."
            )
            yield words % {
                "value": format_duration(total_ms),
                "usual": _("at least %(span)s") % {"span": format_span(least)}
                if usual is None
                else format_span(usual),
                "effect": self.effect,
            }

    @property
    def _present(self) -> CallDurations:
        """Return the durations displayed on the page; those of the last calls if it displays none."""
        if self.shown is not None and self.shown.judged:
            return self.shown
        return self._last_calls.durations if self._last_calls else CallDurations()

    def _post_clean(self) -> None:
        """Validate the row against the levels below it too, because the model only knows its own values."""
        super()._post_clean()  # type: ignore[misc]  # the stubs leave it out
        if not self.errors and self.edited:
            try:
                check_idle_limit(self.instance, self._tool)
            except ValidationError as problem:
                self.add_error(None, problem)

    @property
    def _tool(self) -> OfferedTool | None:
        name = getattr(self.instance, "tool_name", "")
        return self.tool or (tools.find(name) if name else None)

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
        who = last.by_name if last and last.by_name else _("someone")
        problem = _(
            "%(who)s changed these limits while you were editing. %(values)s. Nothing was saved; save again to set your values."
        )
        return problem % {"who": who, "values": values}


class DefaultPolicyForm(LimitsForm):
    """A form for the default limits, which apply to every tool without its own limits."""

    class Meta:
        model = DefaultPolicy
        fields = [*DEFAULT_FIELDS, "why", "revision", "accepted"]


class ToolPolicyForm(LimitsForm):
    """A form for the limits of one tool. A new row must name a tool of this site."""

    tool_name = forms.ChoiceField(
        label=gettext_lazy("Tool"),
        error_messages={
            "invalid_choice": gettext_lazy(
                "There is no tool named “%(value)s”. Choose one from the list."
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
        """Refuse a new row without any limit."""
        cleaned = super().clean()
        if not (self.instance.pk or self.edited or self.errors):
            self.add_error(None, _("Set at least one limit. Rows without a limit are not saved."))
        return cleaned


class ToolPolicyRowForm(LimitsForm):
    """One tool's row on the limits page. It submits the displayed values too, so that unchanged rows are not saved."""

    class Meta:
        model = ToolPolicy
        fields = [*ROW_FIELDS, "revision", "accepted"]
        widgets = {"approval": forms.Select, "tool_enabled": forms.CheckboxInput}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        del self.fields["why"]  # the page asks for it once for all rows
        for name, entry in self.fields.items():
            entry.show_hidden_initial = name in ROW_FIELDS
            entry.help_text = ""
            if name in ROW_FIELDS:
                # Screen readers need a label that names the tool, because they do not read the column's heading.
                label = f"{entry.label}: {cast(ToolPolicy, self.instance).tool_name}"
                entry.widget.attrs["aria-label"] = label
            if isinstance(entry, DurationField):
                entry.widget.attrs["size"] = 8


def _tool_choices() -> list[tuple[str, str]]:
    return [
        (
            tool.name,
            _("%(name)s (declared limit: %(limit)s)")
            % {"name": tool.name, "limit": _declared(tool.limits.timeout)},
        )
        for tool in sorted(tools.offered(), key=lambda tool: tool.name)
    ]


def _declared(timeout: float | None) -> str:
    return format_limit(None if timeout is None else limit_ms(timeout))


@dataclass(slots=True, kw_only=True)
class ToolRow:
    """One tool: the limits of its next call, their sources, and how long its calls ran."""

    name: str
    tool: OfferedTool | None
    policy: Policy
    levels: PolicyLevels
    row: ToolPolicy
    edit: Edit
    default_edit: Edit
    durations: CallDurations = field(default_factory=CallDurations)
    form: ToolPolicyRowForm | None = None
    told: str = ""  # effect of a typed limit

    @property
    def is_stored(self) -> bool:
        return self.row.pk is not None

    @property
    def values(self) -> list[str]:
        """Return the values that an administrator set, for users who may not edit."""
        return [describe_value(name, getattr(self.row, name)) for name in ROW_FIELDS]

    @property
    def inherited(self) -> dict[str, str]:
        """Return the inherited value and its source, by column, for each limit that the row does not set."""
        return {
            column: words
            for column, name in INHERITABLE.items()
            if self.tool and (words := self._inherited(name))
        }

    @property
    def cells(self) -> list[tuple[Any, Any, str]]:
        """Return the columns of limits: name, form field or value, and inherited value."""
        entries = [self.form[name] for name in ROW_FIELDS] if self.form else self.values
        names = {column.name: column.verbose_name for column in ToolPolicy._meta.fields}
        inherited = self.inherited
        return [
            (capfirst(names[name]), cell, inherited.get(name, ""))
            for name, cell in zip(ROW_FIELDS, entries, strict=True)
        ]

    def _inherited(self, name: str) -> str:
        source = source_of(name, self.levels)
        if source is TimeoutSource.OVERRIDE:
            return ""
        return _from(limit_text(name, getattr(self.policy, name)), source)

    @property
    def in_force(self) -> str:
        """Return the limits of its next call, and their source."""
        if self.tool is None:
            return _("not installed")
        words = limits_text(self.policy, self.levels, self.tool.disabled_reason)
        if self.tool.permission:
            words += ", " + _("needs the permission %(name)s") % {"name": self.tool.permission}
        if not self.tool.isolation:
            words += ", " + _("not connected here")
        if self.tool.reported_by:
            words += ", " + reporters_text(self.tool)
        if not self.row.is_active:
            return words + ", " + _("this row is inactive")
        return f"{words}, {self.end}" if self.row.until else words

    @property
    def total_limit(self) -> str:
        """Return its total limit and source."""
        if self.tool is None:
            return _("not installed")
        return _from(limit_text("timeout", self.policy.timeout), self.policy.timeout_source)

    @property
    def other_limits(self) -> str:
        """Return its other effective limits."""
        return self.in_force.removeprefix(self.total_limit).lstrip(" ,.")

    @property
    def usual(self) -> str:
        """Return p95, the duration within which 95 percent of its calls end."""
        return percentile_text(self.durations, 95)

    @property
    def bar(self) -> dict[str, Any] | None:
        """Return p95 as a share of the limit for the bar; the full bar if p95 is among calls that were cut off."""
        if not self.policy.timeout or not self.durations.judged:
            return None
        usual = self.durations.percentile(95)
        share = 1 if usual is None else min(usual / (self.policy.timeout * 1_000), 1)
        percent = round(100 * share)
        words = _("at or over the limit") if usual is None else f"{percent or '< 1'} %"
        return {"percent": max(percent, 1), "words": words, "is_near": self.is_near_limit}

    @property
    def is_open(self) -> bool:
        """Whether the fields are shown from the start, because one has a message."""
        if self.form is None:
            return False
        return bool(self.told or (self.form.is_bound and (self.form.errors or self.form.edited)))

    @property
    def end(self) -> str:
        """Return the end of a temporary limit, and the value after it."""
        return _("only until %(end)s, then %(then)s") % {
            "end": time_text(self.row.until) if self.row.until else "",
            "then": PolicyChange.describe_values(self.row.then),
        }

    @property
    def changed(self) -> SafeString | str:
        return format_time(self.edit.at) if self.edit.at else ""

    @property
    def default_changed(self) -> SafeString | str:
        """Return when the default limits were last edited, if the tool inherits any."""
        names = ("timeout", *INHERITABLE.values())
        is_followed = any(source_of(name, self.levels) is TimeoutSource.DEFAULT for name in names)
        return format_time(self.default_edit.at) if is_followed and self.default_edit.at else ""

    @property
    def timeouts(self) -> str:
        """Return the share of its calls that timed out; calls that were stopped are not included."""
        if not self.durations.timeouts:
            return "0" if self.durations.calls else NOTHING
        return share_text(self.durations.timeouts, self.durations.not_stopped)

    @property
    def timeouts_by_limit(self) -> str:
        """Return which limits cut off its calls, including the turn's."""
        return timeouts_text(self.durations)

    @property
    def shares(self) -> list[tuple[str, str]]:
        """Return the labels and values of the durations within which 50, 95 and 99 percent of its calls end."""
        return [(f"p{share}", percentile_text(self.durations, share)) for share in SHARES]

    @property
    def headroom(self) -> float | None:
        """Return limit ÷ p95; None if either is unknown."""
        limit, usual = self.policy.timeout, self.durations.percentile(95)
        return None if not limit or usual is None else limit * 1_000 / max(usual, 1)

    @property
    def is_near_limit(self) -> bool:
        """Whether p95 is close to the limit, or is among calls that timed out."""
        if not self.policy.timeout or not self.durations.judged:
            return False
        usual = self.durations.percentile(95)
        return usual is None or usual >= NEAR_SHARE * self.policy.timeout * 1_000

    @property
    def headroom_text(self) -> str:
        """Return the headroom, marked if it is tight or wide."""
        if self.headroom is None:
            return NOTHING
        times = f"{self.headroom:.1f} ×" if self.headroom < 10 else f"{self.headroom:.0f} ×"
        if self.headroom < TIGHT:
            return _("%(times)s, tight") % {"times": times}
        return _("%(times)s, wide") % {"times": times} if self.headroom > WIDE else times


CHOICES: Mapping[str, tuple[Any, Callable[[ToolRow], bool]]] = {
    "": (gettext_lazy("All tools"), lambda row: True),
    "own": (gettext_lazy("With their own limits"), lambda row: row.is_stored),
    "timeouts": (gettext_lazy("With timeouts"), lambda row: row.durations.timeouts > 0),
    "tight": (gettext_lazy("Tight"), lambda row: row.headroom is not None and row.headroom < TIGHT),
    NEAR: (gettext_lazy("Near the limit"), lambda row: row.is_near_limit),
    "wide": (gettext_lazy("Wide"), lambda row: row.headroom is not None and row.headroom > WIDE),
    "off": (gettext_lazy("Disabled"), lambda row: not row.policy.enabled),
}
ORDERS: Mapping[str, Callable[[ToolRow], Any]] = {
    "used": lambda row: (not row.durations.calls, row.name),
    "name": lambda row: row.name,
    "calls": lambda row: -row.durations.calls,
    "timeouts": lambda row: -row.durations.timeouts,
    "headroom": lambda row: (row.headroom is None, row.headroom),
}


def read_rows(statistics: Statistics) -> list[ToolRow]:
    policies = read_policies()
    rows = ToolPolicy.objects.in_bulk(field_name="tool_name")
    tools_by_name = {tool.name: tool for tool in tools.offered()}
    return [
        _row(name, policies, rows.get(name), tools_by_name.get(name), statistics)
        for name in sorted(tools_by_name.keys() | rows.keys())
    ]


def tool_row(row: ToolPolicy, statistics: Statistics | None = None) -> ToolRow:
    """Return the row of one tool, with or without stored limits."""
    tool = tools.find(row.tool_name)
    return _row(row.tool_name, read_policies(), row, tool, statistics)


def calls_at_once(names: Iterable[str]) -> dict[str, int | None]:
    """Return the maximum number of simultaneous calls of each tool in a process; None if the tool has no such limit."""
    policies, tools_by_name = read_policies(), {tool.name: tool for tool in tools.offered()}

    def most(name: str) -> int | None:
        tool = tools_by_name.get(name)
        levels = policies.levels_of(name, declared=tool.limits if tool else _UNSET)
        return resolve(levels).max_running

    return {name: most(name) for name in names}


def _row(
    name: str,
    policies: Policies,
    row: ToolPolicy | None,
    tool: OfferedTool | None,
    statistics: Statistics | None,
) -> ToolRow:
    if row is not None and name in policies.ended:
        row.end_temporary()
    levels = policies.levels_of(name, declared=tool.limits if tool else _UNSET)
    return ToolRow(
        name=name,
        tool=tool,
        policy=resolve(levels),
        levels=levels,
        row=row or ToolPolicy(tool_name=name),
        edit=policies.edits.get(name, Edit()),
        default_edit=policies.edits.get("", Edit()),
        durations=statistics.of(name) if statistics else CallDurations(),
    )


def percentile_text(durations: CallDurations, share: int) -> str:
    """Return the duration within which this percentage of calls ends."""
    if not durations.judged:
        return NOTHING
    span = durations.percentile(share)
    return _("unknown") if span is None else format_span(span)


def share_text(count: int, total: int) -> str:
    """Return a count with its share: 9 of 23 (39.1 %)."""
    words = {"count": count, "total": total, "share": 100 * count / total}
    return _("%(count)d of %(total)d (%(share).1f %%)") % words


def timeouts_text(durations: CallDurations) -> str:
    """Return how many calls each limit cut off; empty if none."""
    words = dict(timeouts())
    counts = [(durations.count(end), words[end]) for end in (*TIMEOUTS, End.TURN)]
    return ", ".join(f"{count} {at}" for count, at in counts if count)


def reporters_text(tool: OfferedTool) -> str:
    """Return the other processes that offer a tool which this process does not have."""
    names = ", ".join(tool.reported_by[:MOST_NAMED])
    if left_out := len(tool.reported_by[MOST_NAMED:]):
        names = _("%(names)s and %(count)d more") % {"names": names, "count": left_out}
    return _("reported by %(processes)s") % {"processes": names}


def limit_text(name: str, value: Any) -> str:
    if name == "approval":
        return label_for(value, approval_rules())
    if name == "max_running" and value is not None:
        return str(value)
    return format_limit(limit_ms(value))


def limits_text(policy: Policy, levels: PolicyLevels, disabled_reason: str) -> str:
    """Return the limits of a tool's next call, and their sources."""

    def shown_limit(name: str) -> str:
        return _from(limit_text(name, getattr(policy, name)), source_of(name, levels))

    words = _from(limit_text("timeout", policy.timeout), policy.timeout_source)
    if policy.idle_timeout:
        words += ", " + _("idle %(limit)s") % {"limit": shown_limit("idle_timeout")}
    if policy.approval is not ApprovalRule.NEVER:
        words += ", " + _("approval %(rule)s") % {"rule": shown_limit("approval")}
    if not policy.enabled:
        words += ", " + _("disabled")
    return f"{words}. {disabled_reason}" if disabled_reason else words


def _from(limit: str, source: TimeoutSource) -> str:
    words = {"limit": limit, "source": label_for(source, timeout_sources())}
    return _("%(limit)s (from: %(source)s)") % words
