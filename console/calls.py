"""Read-only admin pages for tool calls and approvals: limits, outcomes, and who ended or decided them."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, ClassVar

from django.db.models import F, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console import exports, filters, tools
from console.filters import DAY, time_filter
from console.formats import (
    NOTHING,
    TONES,
    Column,
    Status,
    Tone,
    call_disposition,
    call_ended_by,
    call_status,
    format_source,
    format_span,
    format_time,
    preformatted,
    span,
)
from console.links import (
    Link,
    address_of_row,
    address_of_tool,
    anchor,
    anchors,
    link_column,
    links_of_groups,
    may_open,
    reader_of,
)
from console.lists import SearchedList, section
from console.search import part_of_tool
from console.sentences import call_sentence
from console.top_lists import TopPage
from governance.core.policy import TimeoutSource
from governance.durations import format_limit
from governance.hidden_characters import visible
from governance.models import Approval, PolicyChange, ToolCall
from governance.recorder import UNWATCHED

_LONG_FIELDS = (*ToolCall.LONG_COLUMNS, "progress", "deadline_changes")
# Statuses that do not explain their reason.
_UNEXPLAINED = ("failed", "abandoned")
_LISTED = ("turn", "user", "agent", "process")
_LINKS = [
    link_column(name) for name in ("turn", "conversation", "user", "agent", "process", "chat")
]


def _name(call: Any) -> SafeString:
    """Return the tool's name as HTML that can break between words in a narrow column."""
    return format_html_join(SafeString("_<wbr>"), "{}", ((it,) for it in call.tool_name.split("_")))


_TOOL = Column(gettext_lazy("tool"), _name, ordering="tool_name", name="tool_name")


class CallList(SearchedList):
    """A list of rows about calls; the `group` of a row is the id of its turn."""

    export_columns = [exports.of_turns("group")]
    belongs_to = Column(
        gettext_lazy("belongs to"), lambda row: anchors(row.links, _LISTED)
    )  # one column, because several do not fit on a screen

    turn_id = Column(gettext_lazy("turn id"), lambda row: row.group)
    conversation_id = Column(gettext_lazy("conversation id"), lambda row: row.scope)

    def get_list_filter(self, request: HttpRequest) -> Any:
        """Add the filters by turn. They reveal facts about turns, so they need the permission to view turns."""
        may_see = request.user.has_perm("turns.view_turn")
        return [*super().get_list_filter(request), *(filters.OF_CALLS if may_see else ())]

    def part_finder(self, request: HttpRequest) -> Any:
        return part_of_tool

    def prepare_rows(self, request: HttpRequest, rows: Iterable[Any]) -> None:
        """Read the links of all rows in one query."""
        super().prepare_rows(request, rows)
        links_by_group = links_of_groups(request.user, {row.group for row in rows})
        for row in rows:
            row.links = links_by_group.get(row.group, {})


def _tool(call: ToolCall) -> SafeString | str:
    """Return links to the tool's page and to the changes to its limits, if the site has them."""
    may_see = may_open(reader_of(call), "governance_toolpolicy")
    if not may_see or call.tool_name not in tools.known():
        return call.tool_name
    address = address_of_tool(reader_of(call), call.tool_name)
    links = {
        "tool": Link(call.tool_name, address),
        "changes": Link(_("changes to its limits"), f"{address}#changes"),
    }
    return anchors(links, links)


def _policy_change(call: ToolCall) -> SafeString | str:
    """Return a link to the last change of the tool's limits, or of the default limits that it used, before this call."""
    names = {call.tool_name}
    if call.timeout_source == TimeoutSource.DEFAULT:
        names.add("")
    before = PolicyChange.objects.filter(tool_name__in=names, at__lte=call.requested_at)
    change = before.first()
    if change is None:
        return NOTHING
    address = address_of_row(reader_of(call), "governance_policychange", change.pk)
    link = anchor(Link(change.summary_at_tool, address))
    return format_html("{}: {}", format_time(change.at), link)


def _outcome(call: ToolCall) -> Status:
    """Return a call's status, with the reason if the status alone does not explain it."""
    words = call_status(call)
    if call.status in _UNEXPLAINED and call.error_type:
        words = f"{words}: {call.get_error_type_display()}"
    return Status(words, TONES.get(call.status, Tone.PLAIN))


def _limit(call: ToolCall) -> str:
    """Return the effective limit and its source."""
    if call.timeout_ms is None:
        return NOTHING
    return f"{format_limit(call.timeout_ms)} ({format_source(call.timeout_source)})"


def _asked_limit(call: ToolCall) -> str:
    """Return the requested limit, if the ceiling reduced it."""
    limit = call.asked_timeout_ms
    return NOTHING if limit is None else format_limit(limit)


def _idle_limit(call: ToolCall) -> str:
    return NOTHING if call.idle_timeout_ms is None else format_limit(call.idle_timeout_ms)


def _limit_changes(call: ToolCall) -> str:
    """Return the old and new limits of each change, with its time and origin."""
    lines = [
        (format_time(parse_datetime(change["at"])), part, _origin(change))
        for change in call.deadline_changes
        for part in _moved(change)
    ]
    return format_html_join("\n", "<div>{}: {} ({})</div>", lines) or NOTHING


def _moved(change: dict[str, Any]) -> list[str]:
    """Return one line for each limit that the change modified: the total limit, the idle limit, or both."""
    before, after = change.get("from_idle_ms"), change.get("to_idle_ms")
    is_idle = before != after
    lines = []
    if change["from_ms"] != change["to_ms"] or not is_idle:
        lines.append(f"{format_limit(change['from_ms'])} → {format_limit(change['to_ms'])}")
    if is_idle:
        moved = {"before": format_limit(before), "after": format_limit(after)}
        lines.append(_("idle limit %(before)s → %(after)s") % moved)
    return lines


def _origin(change: dict[str, Any]) -> str:
    return ", ".join(part for part in (format_source(change["source"]), change["by"]) if part)


def _late(call: ToolCall) -> str:
    """Return how the body of an abandoned call ended, and how long after the call's outcome."""
    if not call.late_kind:
        return NOTHING
    if call.late_kind == UNWATCHED:
        return _("its end was not observed")
    return _("%(kind)s %(after)s after the outcome") % {
        "kind": call.late_kind.replace("_", " "),
        "after": format_span(call.late_after_ms),
    }


class ToolCallAdmin(CallList):
    """The admin list of every tool call, newest first."""

    content_fields = (
        "input_text", "result_text", "progress_text", "late_result", "input", "result", "progress", "images", "detail",
        "late_text",
    )  # fmt: skip
    usual_values: ClassVar[Any] = {"is_synthetic": False}
    list_display = [
        "requested_at",
        _TOOL,
        "outcome",
        "ran",
        "limit",
        "ended_by",
        "belongs_to",
    ]
    list_filter = [
        time_filter("requested_at", default=DAY), filters.CallOutcomeFilter, "status", "error_type",
        filters.ToolFilter, filters.LimitFilter, filters.DurationFilter,
        ("disposition", filters.KnownFilter), "effects", "timeout_source",
        "ended_by_reason", "ended_by_source",
    ]  # fmt: skip
    search_fields = ["group", "scope", "call_id", "tool_name"]
    search_help_text = gettext_lazy(
        "Full id of a call, turn or conversation, or part of a tool’s name"
    )
    fieldsets = [
        section(
            None, "tool", "outcome", "error_type", "what_is_known", "effects", "ended_by", "is_synthetic"
        ),
        section(None, *_LINKS),
        section(
            gettext_lazy("Limits"),
            "limit", "policy_change", "asked_limit", "idle_limit", "ran_out", "limit_changes",
        ),
        section(
            gettext_lazy("Time"), "requested_at", "started_at", "ended_at", "waited", "ran", "late"
        ),
        section(
            gettext_lazy("Where"),
            "step", "call_id", "turn_id", "conversation_id", "isolation", "concurrency",
        ),
        section(
            gettext_lazy("Content"),
            "input_text", "result_text", "progress_text", "detail", "late_result",
        ),
    ]  # fmt: skip

    figures = [(gettext_lazy("Most timeouts, cancels and tokens"), "governance_top_lists")]

    tool = Column(gettext_lazy("tool"), _tool)
    policy_change = Column(
        gettext_lazy("last change of its limits before the call"), _policy_change
    )
    outcome = Column(gettext_lazy("status"), _outcome, ordering="status")
    ran = span("duration_ms", gettext_lazy("duration"))
    waited = Column(
        gettext_lazy("wait for a slot"),
        lambda call: format_span(call.queued_ms or None),
        ordering="queued_ms",
    )
    limit = Column(gettext_lazy("limit (source)"), _limit, ordering="timeout_ms")
    asked_limit = Column(gettext_lazy("requested limit (before the ceiling)"), _asked_limit)
    idle_limit = Column(gettext_lazy("idle limit"), _idle_limit)
    limit_changes = Column(gettext_lazy("limit changes while running"), _limit_changes)
    ran_out = Column(
        gettext_lazy("limit reached"),
        lambda call: call.get_limit_reached_display() or NOTHING,
        ordering="limit_reached",
    )
    ended_by = Column(gettext_lazy("ended by"), call_ended_by, ordering="ended_by_reason")
    what_is_known = Column(gettext_lazy("known outcome"), call_disposition)
    late = Column(gettext_lazy("late settlement"), _late)
    late_result = Column(gettext_lazy("late result"), lambda call: preformatted(call.late_text))
    input_text = Column(gettext_lazy("input"), lambda call: preformatted(call.input))
    result_text = Column(gettext_lazy("result"), lambda call: preformatted(call.result))
    progress_text = Column(gettext_lazy("last progress"), lambda call: preformatted(call.progress))

    def sentence(self, row: ToolCall) -> str:
        return call_sentence(row)

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.top_view)
        return [path("top/", view, name="governance_top_lists"), *super().get_urls()]

    def top_view(self, request: HttpRequest) -> HttpResponse:
        """Show which users, agents and tools have the most timeouts and cancels."""
        return TopPage(self, request).respond()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Leave long texts out of the list's query."""
        rows = super().get_queryset(request)
        match = request.resolver_match
        is_list = match is not None and (match.url_name or "").endswith("_changelist")
        return rows.defer(*_LONG_FIELDS) if is_list else rows


DecisionFilter = filters.choice(
    "decided",
    gettext_lazy("decision"),
    {
        "open": (gettext_lazy("Waiting for a person"), Q(decision="")),
        "approved": (gettext_lazy("Approved"), Q(decision="approved")),
        "remembered": (
            gettext_lazy("Approved for the conversation"),
            Q(decision="approved", remember=True),
        ),
        "denied": (gettext_lazy("Denied"), Q(decision="denied", is_late=False)),
        "late": (gettext_lazy("Denied too late"), Q(is_late=True)),
        "expired": (gettext_lazy("Not answered"), Q(decision="expired")),
        "cancelled": (
            gettext_lazy("Cancelled or interrupted"),
            Q(decision__in=("cancelled", "interrupted")),
        ),
    },
)


def _before(seconds: int) -> Q:
    return Q(decided_at__lt=F("requested_at") + timedelta(seconds=seconds))


TookFilter = filters.choice(
    "took",
    gettext_lazy("time to decide"),
    {
        "10": (gettext_lazy("Under 10 s"), _before(10)),
        "60": (gettext_lazy("10 s to 1 min"), _before(60) & ~_before(10)),
        "600": (gettext_lazy("1 to 10 min"), _before(600) & ~_before(60)),
        "more": (gettext_lazy("10 min and more"), Q(decided_at__isnull=False) & ~_before(600)),
    },
)


def _decision(question: Approval) -> str:
    """Return the label of the decision, marked if it came too late to have an effect."""
    if not question.decision:
        return _("waiting for a person")
    decision: str = question.get_decision_display()
    if question.is_late:
        return _("%(decision)s, too late") % {"decision": decision}
    if not question.remember:
        return decision
    lapsed = question.lapsed_at and _("for the conversation, until an earlier message was edited")
    return f"{decision} ({lapsed or _('for the conversation')})"


def _took(question: Approval) -> str:
    if question.decided_at is None:
        return NOTHING
    duration = question.decided_at - question.requested_at
    return format_span(round(duration.total_seconds() * 1000))


class ApprovalAdmin(CallList):
    """The admin list of every request for approval, newest first."""

    content_fields = ("input_text", "input", "host", "reason")
    usual_values: ClassVar[Any] = {"remember": False}
    list_display = ["requested_at", _TOOL, "state", "by_name", "reason", "took", "belongs_to"]
    list_filter = [
        time_filter("requested_at", default=DAY), DecisionFilter, "rule", filters.ToolFilter, TookFilter,
    ]  # fmt: skip
    search_fields = ["group", "scope", "call_id", "by_name", "tool_name"]
    search_help_text = gettext_lazy(
        "Full id (call, turn, conversation), full user name, or part of a tool’s name"
    )
    fieldsets = [
        section(
            None,
            "tool_name", "input_text", "state", "by_name", "reason", "rule", "remember", "requested_at", "expires_at",
            "decided_at", "lapsed_at", "took", "call_id", "turn_id", "conversation_id", "definition",
        ),
        section(None, *_LINKS),
    ]  # fmt: skip

    state = Column(gettext_lazy("decision"), _decision, ordering="decision")
    took = Column(gettext_lazy("time to decide"), _took)
    input_text = Column(gettext_lazy("input"), lambda question: preformatted(question.input))

    def sentence(self, row: Approval) -> str:
        parts = (row.tool_name, _decision(row), row.by_name)
        return " · ".join(filter(None, map(visible, parts)))
