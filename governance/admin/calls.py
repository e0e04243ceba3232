"""Admin of tool calls: tool, limit, outcome and who ended it; read-only (V4)."""

import json
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance.admin.filters import CallOutcomeFilter, DurationFilter, LimitFilter, ToolFilter
from governance.admin.formatting import (
    NOTHING,
    call_disposition,
    call_ended_by,
    call_status,
    format_source,
    format_span,
    format_time,
)
from governance.admin.links import (
    LinkedCallAdmin,
    address_of_row,
    anchor,
    anchors,
    may_open,
    reader_of,
)
from governance.admin.search import known_tools
from governance.admin.time_filter import DAY, time_filter
from governance.admin.tool_page import address_of
from governance.call_links import Link
from governance.core.policy import TimeoutSource
from governance.durations import format_limit
from governance.hidden_characters import visible
from governance.models import PolicyChange, ToolCall
from governance.recorder import UNWATCHED

_LONG_FIELDS = ("input", "result", "detail", "late_text", "progress", "deadline_changes")
# Statuses that leave open why.
_UNEXPLAINED = ("failed", "abandoned")


@admin.register(ToolCall)
class ToolCallAdmin(LinkedCallAdmin):
    """Every tool call, newest first."""

    content_fields = (
        "input_text",
        "result_text",
        "progress_text",
        "late_result",
        "input",
        "result",
        "progress",
        "images",
        "detail",
        "late_text",
    )
    list_display = ["requested_at", "tool_name", "outcome", "ran", "limit", "ended_by"]
    list_filter = [
        time_filter("requested_at", default=DAY),
        CallOutcomeFilter,
        "status",
        "error_type",
        ToolFilter,
        LimitFilter,
        DurationFilter,
        "disposition",
        "timeout_source",
        "ended_by_reason",
        "ended_by_source",
    ]
    search_fields = ["group", "scope", "call_id", "tool_name"]
    search_help_text = gettext_lazy(
        "A whole id of a call, a turn or a conversation, or part of the name of a tool"
    )
    readonly_fields = [
        "tool",
        "policy_change",
        "outcome",
        "ran",
        "waited",
        "limit",
        "asked_limit",
        "idle_limit",
        "ran_out",
        "limit_changes",
        "ended_by",
        "what_is_known",
        "input_text",
        "result_text",
        "progress_text",
        "late",
        "late_result",
    ]
    fieldsets = [
        (
            None,
            {
                "fields": [
                    "tool",
                    "outcome",
                    "error_type",
                    "what_is_known",
                    "ended_by",
                    "is_synthetic",
                ]
            },
        ),
        (
            gettext_lazy("Limits"),
            {
                "fields": [
                    "limit",
                    "policy_change",
                    "asked_limit",
                    "idle_limit",
                    "ran_out",
                    "limit_changes",
                ]
            },
        ),
        (
            gettext_lazy("Time"),
            {"fields": ["requested_at", "started_at", "ended_at", "waited", "ran", "late"]},
        ),
        (
            gettext_lazy("Where"),
            {
                "fields": [
                    "scope",
                    "group",
                    "step",
                    "position",
                    "call_id",
                    "isolation",
                    "concurrency",
                ]
            },
        ),
        (
            gettext_lazy("Content"),
            {"fields": ["input_text", "result_text", "progress_text", "detail", "late_result"]},
        ),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Leave long texts out of the list."""
        rows = super().get_queryset(request)
        match = request.resolver_match
        is_list = match is not None and (match.url_name or "").endswith("_changelist")
        return rows.defer(*_LONG_FIELDS) if is_list else rows

    @admin.display(description=gettext_lazy("tool"))
    def tool(self, obj: ToolCall) -> SafeString | str:
        """Its name, with its page and the changes of its limits where the site has it."""
        may_see = may_open(reader_of(obj), "governance_toolpolicy")
        if not may_see or obj.tool_name not in known_tools():
            return obj.tool_name
        address = address_of(obj.tool_name)
        links = {
            "tool": Link(obj.tool_name, address),
            "changes": Link(_("changes of its limits"), f"{address}#changes"),
        }
        return anchors(links, links)

    @admin.display(description=gettext_lazy("last change of its limits before it"))
    def policy_change(self, obj: ToolCall) -> SafeString | str:
        """The change of the tool's limits that this call obeyed, or of the default ones, with its page."""
        names = {obj.tool_name}
        if obj.timeout_source == TimeoutSource.DEFAULT:
            names.add("")
        before = PolicyChange.objects.filter(tool_name__in=names, at__lte=obj.requested_at)
        change = before.first()
        if change is None:
            return NOTHING
        address = address_of_row(reader_of(obj), "governance_policychange", change.pk)
        link = anchor(Link(change.summary_at_tool, address))
        return format_html("{}: {}", format_time(change.at), link)

    @admin.display(description=gettext_lazy("status"), ordering="status")
    def outcome(self, obj: ToolCall) -> str:
        """Its status, with the reason if the status alone does not explain it."""
        status = call_status(obj)
        if obj.status not in _UNEXPLAINED or not obj.error_type:
            return status
        return f"{status}: {obj.get_error_type_display()}"

    @admin.display(description=gettext_lazy("ran"), ordering="duration_ms")
    def ran(self, obj: ToolCall) -> str:
        return format_span(obj.duration_ms)

    @admin.display(description=gettext_lazy("waited for a slot"), ordering="queued_ms")
    def waited(self, obj: ToolCall) -> str:
        return format_span(obj.queued_ms)

    @admin.display(description=gettext_lazy("limit (from)"), ordering="timeout_ms")
    def limit(self, obj: ToolCall) -> str:
        """The limit in force and where it came from (T2)."""
        if obj.timeout_ms is None:
            return NOTHING
        return f"{format_limit(obj.timeout_ms)} ({format_source(obj.timeout_source)})"

    @admin.display(description=gettext_lazy("limit asked for, before the ceiling"))
    def asked_limit(self, obj: ToolCall) -> str:
        """What the call asked for, if the ceiling cut it (A3)."""
        return (
            _("it got what it asked for")
            if obj.asked_timeout_ms is None
            else format_limit(obj.asked_timeout_ms)
        )

    @admin.display(description=gettext_lazy("idle limit"))
    def idle_limit(self, obj: ToolCall) -> str:
        """The longest silence that was allowed (T6)."""
        return NOTHING if obj.idle_timeout_ms is None else format_limit(obj.idle_timeout_ms)

    @admin.display(description=gettext_lazy("limit changes while it ran"))
    def limit_changes(self, obj: ToolCall) -> str:
        """Both values and the moment of each change (T9)."""
        lines = [
            (format_time(parse_datetime(change["at"])), part, _origin(change))
            for change in obj.deadline_changes
            for part in _moved(change)
        ]
        return format_html_join("\n", "<div>{}: {} ({})</div>", lines) or _("none")

    @admin.display(description=gettext_lazy("limit that ran out"), ordering="limit_reached")
    def ran_out(self, obj: ToolCall) -> str:
        """Which limit ended it (T6, T10)."""
        return obj.get_limit_reached_display() or NOTHING

    @admin.display(description=gettext_lazy("ended by"), ordering="ended_by_reason")
    def ended_by(self, obj: ToolCall) -> str:
        """Who or which limit ended it, by what means, and why."""
        return call_ended_by(obj)

    @admin.display(description=gettext_lazy("what is known"))
    def what_is_known(self, obj: ToolCall) -> str:
        return call_disposition(obj)

    @admin.display(description=gettext_lazy("late settlement"))
    def late(self, obj: ToolCall) -> str:
        """What the body did after its outcome (T11)."""
        if not obj.late_kind:
            return NOTHING
        if obj.late_kind == UNWATCHED:
            return _("its end was not seen")
        return _("%(kind)s %(after)s after the outcome") % {
            "kind": obj.late_kind.replace("_", " "),
            "after": format_span(obj.late_after_ms),
        }

    @admin.display(description=gettext_lazy("late result"))
    def late_result(self, obj: ToolCall) -> str:
        """What the body returned too late; the model never read it."""
        return format_html("<pre>{}</pre>", obj.late_text) if obj.late_text else NOTHING

    @admin.display(description=gettext_lazy("input"))
    def input_text(self, obj: ToolCall) -> str:
        return preformatted(obj.input)

    @admin.display(description=gettext_lazy("result"))
    def result_text(self, obj: ToolCall) -> str:
        return format_html("<pre>{}</pre>", obj.result) if obj.result else NOTHING

    @admin.display(description=gettext_lazy("last progress"))
    def progress_text(self, obj: ToolCall) -> str:
        """The last sign of life."""
        return preformatted(obj.progress)


def _moved(change: dict[str, Any]) -> list[str]:
    """Return what one change has moved: the total limit, the idle limit, or both."""
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


def preformatted(value: Any) -> str:
    return (
        format_html("<pre>{}</pre>", visible(json.dumps(value, indent=2, ensure_ascii=False)))
        if value
        else NOTHING
    )
