"""The rows of the page of limits: one for every tool that the site offers or has limits for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance import selectors
from governance.admin.formatting import NOTHING, format_span, format_time
from governance.admin.forms import ROW_FIELDS, ToolPolicyRowForm
from governance.audit import describe_value
from governance.core.histograms import CallDurations
from governance.core.policy import (
    ApprovalRule,
    Policy,
    PolicyLevels,
    TimeoutSource,
    ToolLimits,
    resolve,
    source_of,
)
from governance.durations import format_limit, limit_ms
from governance.labels import approval_rules, label_for, timeout_sources
from governance.models import PolicyChange, ToolPolicy
from governance.policies import Edit, Policies, read_policies
from governance.selectors import OfferedTool
from governance.statistics import Statistics
from governance.time_formatting import time_text

SHARES = (50, 95, 99)
TIGHT, WIDE = 1.5, 20.0  # limit ÷ p95 below and above which a limit is worth a look
NEAR = "near"
NEAR_SHARE = 0.8  # p95 ÷ limit from which on a tool is near its limit
MOST_NAMED = 3
_UNSET = ToolLimits()
INHERITABLE = {  # columns of a row → limits of the policy
    "idle_timeout_ms": "idle_timeout",
    "ceiling_ms": "ceiling",
    "max_running": "max_running",
    "approval": "approval",
    "approval_timeout_ms": "approval_timeout",
}


@dataclass(slots=True, kw_only=True)
class ToolRow:
    """One tool: the limits of its next call, where they come from, and how long its calls ran."""

    name: str
    tool: OfferedTool | None
    policy: Policy
    levels: PolicyLevels
    row: ToolPolicy
    edit: Edit
    default_edit: Edit
    durations: CallDurations = field(default_factory=CallDurations)
    form: ToolPolicyRowForm | None = None
    told: str = ""  # what a typed limit would have done

    @property
    def is_stored(self) -> bool:
        return self.row.pk is not None

    @property
    def values(self) -> list[str]:
        """What an administrator has set, for those who may only look."""
        return [describe_value(name, getattr(self.row, name)) for name in ROW_FIELDS]

    @property
    def inherited(self) -> dict[str, str]:
        """What counts where its own limits say nothing, and from where: by the row's column."""
        return {
            column: words
            for column, name in INHERITABLE.items()
            if self.tool and (words := self._inherited(name))
        }

    @property
    def cells(self) -> list[tuple[Any, Any, str]]:
        """What stands in each column of limits: its name, the form's field or the value, and what is inherited."""
        shown = [self.form[name] for name in ROW_FIELDS] if self.form else self.values
        names = {column.name: column.verbose_name for column in ToolPolicy._meta.fields}
        return [
            (capfirst(names[name]), cell, self.inherited.get(name, ""))
            for name, cell in zip(ROW_FIELDS, shown, strict=True)
        ]

    def _inherited(self, name: str) -> str:
        source = source_of(name, self.levels)
        if source is TimeoutSource.OVERRIDE:
            return ""
        return _from(limit_text(name, getattr(self.policy, name)), source)

    @property
    def in_force(self) -> str:
        """What its next call gets, and from where."""
        if self.tool is None:
            return _("not installed")
        words = limits_text(self.policy, self.levels, self.tool.disabled_reason)
        if not self.tool.isolation:
            words += ", " + _("not connected here")
        if self.tool.reported_by:
            words += ", " + reporters_text(self.tool)
        if not self.row.is_active:
            return words + ", " + _("this row is out of force")
        return f"{words}, {self.end}" if self.row.until else words

    @property
    def end(self) -> str:
        """Until when the row says what it says, and what it says then."""
        return _("only until %(end)s, then %(then)s") % {
            "end": time_text(self.row.until) if self.row.until else "",
            "then": PolicyChange.describe_values(self.row.then),
        }

    @property
    def changed(self) -> SafeString | str:
        return format_time(self.edit.at) if self.edit.at else ""

    @property
    def default_changed(self) -> SafeString | str:
        """When the default limits were edited last, if a limit in force comes from them."""
        names = ("timeout", *INHERITABLE.values())
        is_followed = any(source_of(name, self.levels) is TimeoutSource.DEFAULT for name in names)
        return format_time(self.default_edit.at) if is_followed and self.default_edit.at else ""

    @property
    def timeouts(self) -> str:
        """How many of its calls ran out of time, and which share of them."""
        if not self.durations.timeouts:
            return "0" if self.durations.calls else NOTHING
        share = 100 * self.durations.timeouts / self.durations.judged
        return f"{self.durations.timeouts} ({share:.1f} %)"

    @property
    def shares(self) -> list[tuple[str, str]]:
        """Within which time half, 95 and 99 per cent of its calls end, each with its name."""
        return [(f"p{share}", percentile_text(self.durations, share)) for share in SHARES]

    @property
    def headroom(self) -> float | None:
        """How often the p95 fits into the limit; None where one of them is not known."""
        limit, usual = self.policy.timeout, self.durations.percentile(95)
        return None if not limit or usual is None else limit * 1_000 / max(usual, 1)

    @property
    def is_near_limit(self) -> bool:
        """Whether the p95 comes close to the limit, or lies among calls that ran out of time."""
        if not self.policy.timeout or not self.durations.judged:
            return False
        usual = self.durations.percentile(95)
        return usual is None or usual >= NEAR_SHARE * self.policy.timeout * 1_000

    @property
    def headroom_text(self) -> str:
        """The same, with a word where it is worth a look."""
        if self.headroom is None:
            return NOTHING
        times = f"{self.headroom:.1f} ×" if self.headroom < 10 else f"{self.headroom:.0f} ×"
        if self.headroom < TIGHT:
            return _("%(times)s, tight") % {"times": times}
        return _("%(times)s, wide") % {"times": times} if self.headroom > WIDE else times


CHOICES: Mapping[str, tuple[Any, Callable[[ToolRow], bool]]] = {
    "": (gettext_lazy("All tools"), lambda row: True),
    "own": (gettext_lazy("With limits of their own"), lambda row: row.is_stored),
    "timeouts": (gettext_lazy("With timeouts"), lambda row: row.durations.timeouts > 0),
    "tight": (gettext_lazy("Tight"), lambda row: row.headroom is not None and row.headroom < TIGHT),
    NEAR: (gettext_lazy("Near their limit"), lambda row: row.is_near_limit),
    "wide": (gettext_lazy("Wide"), lambda row: row.headroom is not None and row.headroom > WIDE),
    "off": (gettext_lazy("Switched off"), lambda row: not row.policy.enabled),
}
ORDERS: Mapping[str, Callable[[ToolRow], Any]] = {
    "name": lambda row: row.name,
    "calls": lambda row: -row.durations.calls,
    "timeouts": lambda row: -row.durations.timeouts,
    "headroom": lambda row: (row.headroom is None, row.headroom),
}


def read_rows(statistics: Statistics) -> list[ToolRow]:
    policies = read_policies()
    stored = ToolPolicy.objects.in_bulk(field_name="tool_name")
    offered = {tool.name: tool for tool in selectors.offered_tools()}
    return [
        _row(name, policies, stored.get(name), offered.get(name), statistics)
        for name in sorted(offered.keys() | stored.keys())
    ]


def tool_row(stored: ToolPolicy, statistics: Statistics | None = None) -> ToolRow:
    """Return the row of one tool, whether its limits are stored or not."""
    tool = selectors.find_tool(stored.tool_name)
    return _row(stored.tool_name, read_policies(), stored, tool, statistics)


def _row(
    name: str,
    policies: Policies,
    stored: ToolPolicy | None,
    tool: OfferedTool | None,
    statistics: Statistics | None,
) -> ToolRow:
    if stored is not None and name in policies.ended:
        stored.end_temporary()
    levels = policies.levels_of(name, declared=tool.limits if tool else _UNSET)
    return ToolRow(
        name=name,
        tool=tool,
        policy=resolve(levels),
        levels=levels,
        row=stored or ToolPolicy(tool_name=name),
        edit=policies.edits.get(name, Edit()),
        default_edit=policies.edits.get("", Edit()),
        durations=statistics.of(name) if statistics else CallDurations(),
    )


def percentile_text(durations: CallDurations, share: int) -> str:
    """Return within which time so many per cent of the calls end."""
    if not durations.judged:
        return NOTHING
    found = durations.percentile(share)
    return _("unknown") if found is None else format_span(found)


def reporters_text(tool: OfferedTool) -> str:
    """Return which other processes have a tool that this one has not."""
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
    """Return the limits of a tool's next call, and where they come from."""

    def shown_limit(name: str) -> str:
        return _from(limit_text(name, getattr(policy, name)), source_of(name, levels))

    words = _from(limit_text("timeout", policy.timeout), policy.timeout_source)
    if policy.idle_timeout:
        words += ", " + _("idle %(limit)s") % {"limit": shown_limit("idle_timeout")}
    if policy.approval is not ApprovalRule.NEVER:
        words += ", " + _("approval %(rule)s") % {"rule": shown_limit("approval")}
    if not policy.enabled:
        words += ", " + _("switched off")
    return f"{words}. {disabled_reason}" if disabled_reason else words


def _from(limit: str, source: TimeoutSource) -> str:
    told = {"limit": limit, "source": label_for(source, timeout_sources())}
    return _("%(limit)s (from: %(source)s)") % told
