"""The page of one tool: how long its calls ran, which ran out of time, the history of its limits."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from governance import limit_history, services, statistics
from governance.admin import charts
from governance.admin.charts import Mark
from governance.admin.formatting import call_status, format_span, format_time
from governance.admin.limit_edits import TuningPage
from governance.admin.limits import LimitsAdmin, editor_of
from governance.admin.links import address_of_row
from governance.admin.tool_rows import ToolRow, tool_row
from governance.core.policy import ToolLimits
from governance.durations import limit_ms
from governance.models import PolicyChange, ToolCall, ToolPolicy
from governance.rollups import calls_between
from governance.sanitize import sanitize_text
from governance.statistics import Statistics
from governance.time_formatting import time_text

TOOL_VIEW = "governance_toolpolicy_tool"
TEMPLATE = "admin/governance/toolpolicy/tool.html"
SLOWEST, DAYS = 20, 30
_SHOWN = ("pk", "requested_at", "status", "late_kind", "duration_ms", "timeout_ms", "group")


class ToolPage(TuningPage):
    """One request for the page of a tool."""

    may_prolong = True

    def __init__(self, model_admin: LimitsAdmin, request: HttpRequest, name: str) -> None:
        super().__init__(model_admin, request)
        self.name = sanitize_text(name)
        if self.row.tool is None and not self.row.is_stored and not self.changes:
            raise Http404(_("There is no tool named “%(name)s”.") % {"name": name})

    def respond(self) -> HttpResponse:
        """Show the page, or carry out what it was sent back with."""
        if self._request.method != "POST":
            self._bind_forms(None)
            return self._show()
        if number := self._request.POST.get("_revert"):
            return self._revert(number)
        if name := self._request.POST.get("_tell"):
            return self._effect_of(name)
        if "_preview" in self._request.POST:
            self._preview()
            return self._show()
        if "_suggest" in self._request.POST:
            self._suggest([self.name], may_cut_successes="tight" in self._request.POST)
            return self._show()
        return self._save_rows() or self._show()

    @cached_property
    def statistics(self) -> Statistics:
        return statistics.read(statistics.SPANS[self.span], self.name)

    @cached_property
    def row(self) -> ToolRow:
        stored = ToolPolicy.objects.filter(tool_name=self.name).first()
        return tool_row(stored or ToolPolicy(tool_name=self.name), self.statistics)

    @cached_property
    def rows(self) -> Sequence[ToolRow]:
        return [self.row]

    @cached_property
    def changes(self) -> list[PolicyChange]:
        return limit_history.own_changes(self.name)

    @cached_property
    def history(self) -> list[PolicyChange]:
        """The same, with those of the default limits that changed a limit of this tool."""
        tool = self.row.tool
        declared = tool.limits if tool else ToolLimits()
        followed = limit_history.followed_changes(self.row.row, self.changes, declared=declared)
        return limit_history.newest_first([*self.changes, *followed])

    def _show(self) -> HttpResponse:
        context = {
            **self.context,
            "title": self.name,
            "row": self.row,
            "is_tight": "tight" in self._request.POST,
            "histogram": charts.histogram(
                self.row.durations, limit_ms=limit_ms(self.row.policy.timeout)
            ),
            "by_day": charts.timeouts_by_day(
                statistics.read_days(self.name, DAYS), map(_mark, self.history)
            ),
            "slowest": self._slowest() if self._may_see_calls else None,
            "changes": [
                (change, format_time(change.at), self._address(change)) for change in self.history
            ],
            "stored": self.row.row if self.row.is_stored else None,
        }
        return TemplateResponse(self._request, TEMPLATE, context)

    @property
    def _may_see_calls(self) -> bool:
        return self._request.user.has_perm("governance.view_toolcall")

    def _address(self, change: PolicyChange) -> str:
        """Where a change is written down, for those who may read it there."""
        return address_of_row(self._request.user, "governance_policychange", change.pk)

    def _slowest(self) -> list[tuple[Any, ...]]:
        calls = calls_between(self.statistics.since).filter(tool_name=self.name)
        slowest = calls.exclude(duration_ms=None).order_by("-duration_ms").only(*_SHOWN)[:SLOWEST]
        return [_slow(call) for call in slowest]

    def _revert(self, number: str) -> HttpResponse:
        if not self._may_edit(self.row):
            raise PermissionDenied
        change = next((change for change in self.changes if str(change.pk) == number), None)
        if change is None:
            raise Http404
        by = editor_of(self._request)
        try:
            saved = services.revert_change(change, by=by, reason=self._reason)
        except ValidationError as refusal:
            self._refused(*refusal.messages)
            return self._show()
        return self._say([saved])


def address_of(tool_name: str) -> str:
    return reverse(f"admin:{TOOL_VIEW}", args=[tool_name])


def _mark(change: PolicyChange) -> Mark:
    return Mark(
        at=localtime(change.at),
        label=f"{time_text(change.at)}: {change.summary_at_tool}",
        address=f"#change-{change.pk}",
    )


def _slow(call: ToolCall) -> tuple[Any, ...]:
    limit = format_span(call.timeout_ms) if call.timeout_ms else _("no limit")
    ran = format_span(call.duration_ms)
    return call, format_time(call.requested_at), call_status(call), ran, limit
