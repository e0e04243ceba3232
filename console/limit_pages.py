"""The pages that show limits beside the durations of calls, and edit them: one for all tools, one per tool.

A line on each page shows in how many processes the limits apply, and is refreshed until they apply in all of them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import Any
from urllib.parse import urlencode

from django.apps import apps
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.paginator import Page as RowsOfPage
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils.text import capfirst
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console import charts, limit_history
from console.charts import Mark
from console.filters import FROM, IN_SPANS, SPANS
from console.formats import call_status, format_span, format_time
from console.links import (
    Link,
    address,
    address_of_list,
    address_of_row,
    anchors,
    links_of_groups,
)
from console.page import Page
from console.tool_rows import (
    CHOICES,
    ORDERS,
    SHARES,
    ToolPolicyRowForm,
    ToolRow,
    read_rows,
    tool_row,
)
from governance import selectors, services, statistics
from governance.admin import editor_of
from governance.conf import app_settings
from governance.core.policy import ToolLimits
from governance.db import atomic
from governance.durations import format_duration, limit_ms, time_text
from governance.models import PolicyChange, ToolCall, ToolPolicy
from governance.rollups import HOUR, calls_between
from governance.sanitize import sanitize_text
from governance.suggestions import read_last_calls, suggest
from governance.temporary_limits import parse_end
from turns.processes import process_registry

DEFAULT_SPAN = "24h"
PER_PAGE = 50
SLOWEST, DAYS = 20, 30
EXACT = gettext_lazy("These figures are exact, because each call is counted individually.")
BINNED = gettext_lazy(
    "Completed hours are read from hourly summaries, in which a duration may appear up to 1/16 longer."
)
TIGHT_SUGGESTION, TRIAL = "suggest_tight", "suggest_trial"
A_DAY = "24 h"  # as people write it
SUGGESTIONS = {
    "suggest": gettext_lazy("Suggest total limits (for all tools if none is selected)"),
    TIGHT_SUGGESTION: gettext_lazy("Suggest total limits, even below the slowest success"),
    TRIAL: gettext_lazy("Try longer limits for a day, where calls are cut off"),
}
ACTIONS: dict[str, tuple[Any, Any]] = {
    "allow": (gettext_lazy("Allow these tools"), {"tool_enabled": True}),
    "forbid": (gettext_lazy("Forbid these tools"), {"tool_enabled": False, "is_active": True}),
    "put_in_force": (gettext_lazy("Activate these limits"), {"is_active": True}),
    "put_out_of_force": (
        gettext_lazy("Deactivate these limits (use the next level)"),
        {"is_active": False},
    ),
    "reset": (gettext_lazy("Remove the tools’ own limits (use the next level)"), None),
}
_SHOWN = (
    "pk",
    "requested_at",
    "status",
    "late_kind",
    "limit_reached",
    "duration_ms",
    "timeout_ms",
    "group",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The number of processes in which a version of the limits applies, as text; empty if no process runs."""

    words: str
    is_known: bool  # whether all live processes use it, so that the line needs no more updates


def reach(version: int, *, is_settled: bool = False) -> Reach:
    """Return in how many processes a version of the limits applies.

    This process is assumed to use the version, because it will when the edit is committed. With `is_settled`, its own
    report is used instead.
    """
    reports = process_registry.policy_reports()
    if not reports:
        return Reach(words="", is_known=True)
    obeying = [
        report
        for report in reports
        if report.version >= version or (report.is_here and not is_settled)
    ]
    summary = _("Active in %(count)d of %(total)d processes") % {
        "count": len(obeying),
        "total": len(reports),
    }
    silent = [
        _("%(name)s has not responded for %(seconds)d s")
        % {"name": report.name, "seconds": report.silence}
        for report in reports
        if report not in obeying and report.is_silent
    ]
    if len(obeying) + len(silent) < len(reports):
        silent.append(_("the others will report within seconds"))
    words = f"{'; '.join([summary, *silent])}."
    return Reach(words=words, is_known=len(obeying) == len(reports))


def in_force_context(opts: Any, reader: Any) -> dict[str, Any]:
    """Return the template context of the line that shows where the limits apply; `opts` are those of the model whose
    admin serves it.
    """
    version = selectors.policy_version()
    extent = reach(version, is_settled=True)
    return {
        "version": version,
        "in_force": extent.words,
        "is_in_force_everywhere": extent.is_known,
        "in_force_address": address(reader, view_name(opts)),
        "in_force_links": list(_links(reader)),
    }


def _links(reader: Any) -> Iterator[Link]:
    """Yield links to the processes and to the changes to limits, if the reader may see them."""
    for name in ("turns_process", "governance_policychange"):
        if place := address_of_list(reader, name):
            model = apps.get_model(name.replace("_", ".", 1))
            yield Link(capfirst(model._meta.verbose_name_plural), place)


def view_name(opts: Any) -> str:
    """Return the name of the view that serves the line."""
    return f"{opts.app_label}_{opts.model_name}_in_force"


class TuningPage(Page):
    """A page with editable rows of tools."""

    trial_until = ""  # the end that the page fills in for a trial
    may_prolong = False  # whether an end can be saved without another edit
    end_problem = ""

    def __init__(self, model_admin: Any, request: HttpRequest) -> None:
        super().__init__(model_admin, request)
        self.span = self.chosen("span", SPANS, DEFAULT_SPAN)

    @cached_property
    def rows(self) -> Sequence[ToolRow]:
        raise NotImplementedError

    @cached_property
    def statistics(self) -> statistics.Statistics:
        """Return the durations of the calls in the selected span."""
        return statistics.read(statistics.SPANS[self.span])

    @property
    def _counted_time(self) -> dict[str, str]:
        """Return the time range of the counted calls as parameters of the list of calls."""
        if statistics.SPANS[self.span] <= HOUR:
            return {"when": self.span}
        since = localtime(self.statistics.since).replace(tzinfo=None)
        return {FROM: since.isoformat(timespec="minutes")}

    @property
    def asked(self) -> dict[str, Any]:
        """Return the query without the page number, because another choice starts at the first page."""
        return {name: value for name, value in self.request.GET.items() if name != "p"}

    @property
    def context(self) -> dict[str, Any]:
        spans = {key: words for key, (words, _span) in SPANS.items()}
        return {
            "why": self._reason,
            "is_note_required": app_settings.LIMIT_NOTE_REQUIRED,
            "until": self.trial_until or self.request.POST.get("until", ""),
            "end_problem": self.end_problem,
            **in_force_context(self.admin.opts, self.request.user),
            "span": self.span,
            "spans": self.choices("span", spans, self.span),
            "shares": [f"p{share}" for share in SHARES],
            "since": format_time(self.statistics.since),
            "counted_calls": urlencode({"happened": "ran", **self._counted_time}),
            "counted_timeouts": urlencode({"happened": "timed_out", **self._counted_time}),
            "is_partial": self.statistics.is_partial,
            "precision": EXACT if self.statistics.is_exact else BINNED,
        }

    def show(self) -> HttpResponse:
        if self.request.method != "POST":
            self._bind_forms(None)
        return super().show()

    def act(self) -> HttpResponse:
        """Save the edits, or preview their effect."""
        if name := self.request.POST.get("_tell"):
            return self._effect_of(name)
        if "_preview" in self.request.POST:
            self._preview(self.request.POST)
            return self.show()
        return self._save_rows() or self.show()

    def refuse(self, *sentences: str) -> HttpResponse:
        self._bind_forms(self.request.POST, is_preview=True)
        return super().refuse(*sentences)

    def _save_rows(self) -> HttpResponse | None:
        """Save all edited rows or none. Return None if a form has errors."""
        self._bind_forms(self.request.POST)
        forms = [(row, row.form) for row in self.rows if row.form is not None]
        until = self._end()
        are_valid = [
            form.is_valid() for _row, form in forms
        ]  # validate every form, so that each shows its errors
        if not all(are_valid) or self.end_problem:
            return None
        try:
            with atomic():
                saved = [
                    self._save_row(row, form, until)
                    for row, form in forms
                    if form.edited or (until and self.may_prolong)
                ]
        except ValidationError as refusal:
            self.say(*refusal.messages)
            return None
        return self._told(saved)

    def _save_row(
        self, row: ToolRow, form: ToolPolicyRowForm, until: datetime | None
    ) -> PolicyChange | None:
        return services.save_tool_policy(
            tool_name=row.name,
            values=form.edits,
            by=editor_of(self.request),
            revision=form.cleaned_data["revision"] or 0,
            reason=self._reason,
            until=until,
            tool=row.tool,
        )

    def _told(self, saved: Sequence[PolicyChange | None]) -> HttpResponse:
        for change in saved:
            self.admin.say_saved(self.request, change)
        if not any(saved):
            self.admin.message_user(self.request, _("No changes to save."))
        return self.back(**self.request.GET.dict())

    def _end(self) -> datetime | None:
        """Return when the edits expire; None if they are permanent."""
        try:
            return parse_end(self.request.POST.get("until", ""))
        except ValidationError as problem:
            self.end_problem = problem.messages[0]
            return None

    def _may_edit(self, row: ToolRow) -> bool:
        if row.is_stored:
            return bool(self.admin.has_change_permission(self.request))
        return bool(self.admin.has_add_permission(self.request))

    def _bind_forms(self, data: Any, *, is_preview: bool = False) -> None:
        for row in self.rows:
            if self._may_edit(row):
                row.form = ToolPolicyRowForm(data, instance=row.row, prefix=row.name)
                row.form.is_preview = is_preview
                row.form.shown, row.form.tool = row.durations, row.tool

    def _preview(self, data: Any, words: dict[str, str] | None = None) -> None:
        """Show each tool's text in `words`, and how the typed limits would have affected its last calls. Save nothing."""
        self._bind_forms(data, is_preview=True)
        for row in self.rows:
            if row.form is not None and row.form.is_valid():
                introduction = (words or {}).get(row.name, "")
                row.told = " ".join(filter(None, [introduction, row.form.effect]))

    def _effect_of(self, name: str) -> JsonResponse:
        """Return, for a limit typed into the page, how it would have affected the tool's last calls (`told`)."""
        policy = ToolPolicy.objects.filter(tool_name=name).first()
        instance = policy or ToolPolicy(tool_name=name)
        form = ToolPolicyRowForm(self.request.POST, instance=instance, prefix=name)
        form.is_preview = True
        if form.is_valid():
            return JsonResponse({"told": form.effect})
        return JsonResponse({"told": " ".join(map(str, form.errors.get("timeout_ms", ())))})

    def _suggest(
        self, names: Collection[str], *, is_trial: bool | None = None, **options: bool
    ) -> HttpResponse:
        """Fill in limits that are suggested on the basis of the last calls, with their effect. Nothing is saved.

        All limits on a page have the same end, so the page of all tools fills in either trials or permanent limits.
        """
        data = self.request.POST.copy()
        words = {}
        for row in self.rows:
            if row.name not in names or not self._may_edit(row):
                continue
            suggestion = suggest(
                read_last_calls(row.name).durations,
                present_ms=limit_ms(row.policy.timeout),
                present_idle_ms=limit_ms(row.policy.idle_timeout),
                **options,
            )
            is_meant = is_trial in (None, suggestion.is_trial)
            limits = {"timeout_ms": suggestion.limit_ms, "idle_timeout_ms": suggestion.idle_ms}
            for field, limit in limits.items():
                if limit is not None and is_meant:
                    data[f"{row.name}-{field}"] = format_duration(limit)
                    self.trial_until = A_DAY if suggestion.is_trial else self.trial_until
            if is_meant or suggestion.is_trial:
                words[row.name] = suggestion.words
        self._preview(data, words)
        return self.show()

    @property
    def _reason(self) -> str:
        return self.request.POST.get("why", "").strip()


class LimitsPage(TuningPage):
    """The page of all tools."""

    template = "console/limits.html"
    title = gettext_lazy("Tool limits")

    def __init__(self, model_admin: Any, request: HttpRequest) -> None:
        super().__init__(model_admin, request)
        self.shown = self.chosen("show", CHOICES, "")
        self.order = self.chosen("o", ORDERS, "used")
        self.term = request.GET.get("q", "").strip()

    def act(self) -> HttpResponse:
        if "_act" not in self.request.POST or self.request.POST.keys() & {"_tell", "_preview"}:
            return super().act()
        return self._do(self.request.POST.get("action", ""))

    @cached_property
    def rows(self) -> Sequence[ToolRow]:
        """Return the rows of this page; if a form was submitted, its rows and those that cannot be edited."""
        names_in_form = {
            row.name for row in self._all_rows if f"{row.name}-revision" in self.request.POST
        }
        if not names_in_form:
            return list(self.page.object_list)
        names = names_in_form | {
            row.name for row in self.page.object_list if not self._may_edit(row)
        }
        return [row for row in self._all_rows if row.name in names]

    @cached_property
    def page(self) -> "RowsOfPage[ToolRow]":
        is_shown, term = CHOICES[self.shown][1], self.term.casefold()
        rows = [row for row in self._all_rows if is_shown(row) and term in row.name.casefold()]
        return Paginator(rows, PER_PAGE).get_page(self.request.GET.get("p"))

    @cached_property
    def _all_rows(self) -> Sequence[ToolRow]:
        return sorted(read_rows(self.statistics), key=ORDERS[self.order])

    @property
    def context(self) -> dict[str, Any]:
        query = self.request.GET
        shows = {key: words for key, (words, _is_shown) in CHOICES.items()}
        pages = {str(number): number for number in self.page.paginator.page_range}
        has_errors = any(row.form and row.form.errors for row in self.rows)
        return {
            **super().context,
            "title": self._heading,
            "page": self.page,
            "rows": self.rows,
            "term": self.term,
            "kept": [(name, query[name]) for name in ("span", "show", "o") if name in query],
            "shows": self.choices("show", shows, self.shown),
            "orders": {name: self.address(o=name) for name in ORDERS},
            "may_edit": any(row.form for row in self.rows),
            "chosen": self._ticked,
            "action": self.request.POST.get("action", ""),
            "actions": self._offered_actions,
            "is_told": any(row.told for row in self.rows),
            "has_errors": has_errors or bool(self.end_problem),
            "pages": self.choices("p", pages, str(self.page.number)),
        }

    @property
    def _offered_actions(self) -> dict[str, Any]:
        """Return the actions that the editor's permissions allow."""
        actions = {name: words for name, (words, _values) in ACTIONS.items()}
        if not self.admin.has_delete_permission(self.request):
            actions = {
                name: words for name, words in actions.items() if ACTIONS[name][1] is not None
            }
        may_change = self.admin.has_change_permission(self.request)
        return {**SUGGESTIONS, **(actions if may_change else {})}

    @property
    def _heading(self) -> str:
        used = [row for row in self._all_rows if row.durations.calls]
        words = _("Tool limits: %(used)d of %(all)d tools were used %(time)s")
        counts = {"used": len(used), "all": len(self._all_rows), "time": IN_SPANS[self.span]}
        return words % counts

    @cached_property
    def _ticked(self) -> Sequence[str]:
        return self.request.POST.getlist("chosen")

    def _do(self, action: str) -> HttpResponse:
        """Run the action on all selected tools, or on none."""
        if action in SUGGESTIONS:
            return self._suggest(
                self._ticked or [row.name for row in self.rows],
                is_trial=action == TRIAL,
                may_cut_successes=action == TIGHT_SUGGESTION,
                may_tighten=bool(self._ticked),
            )
        if action not in ACTIONS or not self._ticked:
            return self.refuse(_("Nothing was done. Select tools and an action."))
        values = ACTIONS[action][1]
        if not self.admin.has_change_permission(self.request):
            raise PermissionDenied
        if values is None and not self.admin.has_delete_permission(self.request):
            raise PermissionDenied
        attribution: Any = {"by": editor_of(self.request), "reason": self._reason}
        rows = [row for row in self._all_rows if row.name in self._ticked and self._may_edit(row)]
        try:
            with atomic():
                saved = [
                    services.delete_tool_policy(tool_name=row.name, **attribution)
                    if values is None
                    else services.save_tool_policy(
                        tool_name=row.name, values=values, tool=row.tool, **attribution
                    )
                    for row in rows
                ]
        except ValidationError as refusal:
            return self.refuse(*refusal.messages)
        return self._told(saved)


class ToolPage(TuningPage):
    """The page of one tool: durations, timeouts, and the history of its limits."""

    template = "console/tool.html"
    may_prolong = True

    def __init__(self, model_admin: Any, request: HttpRequest, name: str) -> None:
        super().__init__(model_admin, request)
        self.name = self.title = sanitize_text(name)
        if self.row.tool is None and not self.row.is_stored and not self.changes:
            raise Http404(_("There is no tool named “%(name)s”.") % {"name": name})

    def act(self) -> HttpResponse:
        posted = self.request.POST
        if number := posted.get("_revert"):
            return self._revert(number)
        if "_suggest" in posted and not posted.keys() & {"_tell", "_preview"}:
            return self._suggest([self.name], may_cut_successes="tight" in posted)
        return super().act()

    @cached_property
    def statistics(self) -> statistics.Statistics:
        return statistics.read(statistics.SPANS[self.span], self.name)

    @cached_property
    def row(self) -> ToolRow:
        policy = ToolPolicy.objects.filter(tool_name=self.name).first()
        return tool_row(policy or ToolPolicy(tool_name=self.name), self.statistics)

    @cached_property
    def rows(self) -> Sequence[ToolRow]:
        return [self.row]

    @cached_property
    def changes(self) -> list[PolicyChange]:
        return limit_history.own_changes(self.name)

    @cached_property
    def history(self) -> list[PolicyChange]:
        """Return the tool's changes, and those of default limits that affected it."""
        tool = self.row.tool
        declared = tool.limits if tool else ToolLimits()
        followed = limit_history.followed_changes(self.row.row, self.changes, declared=declared)
        return limit_history.newest_first([*self.changes, *followed])

    @property
    def context(self) -> dict[str, Any]:
        limit = limit_ms(self.row.policy.timeout)
        days = statistics.read_days(self.name, DAYS)
        place = partial(address_of_row, self.request.user, "governance_policychange")
        may_see_calls = self.request.user.has_perm("governance.view_toolcall")
        return {
            **super().context,
            "row": self.row,
            "is_tight": "tight" in self.request.POST,
            "histogram": charts.histogram(self.row.durations, limit_ms=limit),
            "by_day": charts.timeouts_by_day(days, map(_mark, self.history)),
            "slowest": self._slowest() if may_see_calls else None,
            "changes": [
                (change, format_time(change.at), place(change.pk)) for change in self.history
            ],
            "stored": self.row.row if self.row.is_stored else None,
        }

    def _slowest(self) -> list[tuple[Any, ...]]:
        calls = calls_between(self.statistics.since).filter(tool_name=self.name)
        slowest = calls.exclude(duration_ms=None).order_by("-duration_ms").only(*_SHOWN)[:SLOWEST]
        links = links_of_groups(self.request.user, {call.group for call in slowest})
        return [_slow(call, links.get(call.group, {})) for call in slowest]

    def _revert(self, number: str) -> HttpResponse:
        if not self._may_edit(self.row):
            raise PermissionDenied
        change = next((change for change in self.changes if str(change.pk) == number), None)
        if change is None:
            raise Http404
        by, tool = editor_of(self.request), self.row.tool
        try:
            saved = services.revert_change(change, by=by, reason=self._reason, tool=tool)
        except ValidationError as refusal:
            return self.refuse(*refusal.messages)
        return self._told([saved])


def _mark(change: PolicyChange) -> Mark:
    return Mark(
        at=localtime(change.at),
        label=f"{time_text(change.at)}: {change.summary_at_tool}",
        address=f"#change-{change.pk}",
    )


def _slow(call: ToolCall, links: Mapping[str, Link]) -> tuple[Any, ...]:
    limit = format_span(call.timeout_ms) if call.timeout_ms else _("no limit")
    cut_at = call.get_limit_reached_display()
    status = f"{call_status(call)}: {cut_at}" if cut_at else call_status(call)
    of = anchors(links, ("turn", "user"))
    return call, format_time(call.requested_at), status, of, format_span(call.duration_ms), limit
