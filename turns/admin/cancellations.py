"""Admin of cancelled turns: who, how, why, when, and what became of the work. Each is on one page and in one export."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from governance import selectors
from governance.admin.exports import Columns, Row, add_columns
from governance.admin.formatting import (
    call_disposition,
    call_ended_by,
    call_status,
    format_source,
    format_span,
)
from governance.admin.links import column, reader_of
from turns.admin import turn_ending, turn_filters, turn_tables
from turns.admin.audit import CancelRequestAdmin, OutcomeFilter, SettledFilter
from turns.admin.audit_charts import cancel_latency
from turns.admin.figures import show_figures
from turns.admin.rows import link, table
from turns.admin.turn_links import LABELS, links_of_turns
from turns.models import CancelledTurn

LATENCY = "turns_cancel_latency"
_LINKS: dict[str, Any] = {
    name: column(name, LABELS[name]) for name in ("user", "agent", "conversation", "process")
}
_CALL_FACTS = (
    "call_id",
    "tool_name",
    "step",
    "status",
    "disposition",
    "duration_ms",
    "timeout_ms",
    "timeout_source",
    "idle_timeout_ms",
    "limit_reached",
    "ended_by_reason",
)


@admin.register(CancelledTurn)
class CancelledTurnAdmin(CancelRequestAdmin):
    """Every turn that somebody or something has cancelled, the last one first."""

    content_fields = ("answer", "told")
    list_display = ["requested_at", "whose", "note", "took", "tools", "outcome_label", "turn_link"]
    search_fields = ["by_name"]
    search_help_text = _("A whole id of a turn, or a whole user name")
    list_filter = [
        CancelRequestAdmin.list_filter[0],
        SettledFilter,
        "reason",
        "source",
        OutcomeFilter,
        "mode",
        *turn_filters.of_requests(),
    ]
    figures = [(_("Cancel latency"), f"admin:{LATENCY}")]
    readonly_fields = [
        "turn_link", "requested_at", "took", "tools", "outcome_label", "answer", "calls", "told",
        "requests", "reached", *_LINKS.values(),
    ]  # fmt: skip
    fields = None
    fieldsets = [
        (None, {"fields": ["turn_link", *_LINKS.values(), "outcome_label"]}),
        (_("Who, how and why"), {"fields": ["by_name", "source", "reason", "note", "mode", "answer"]}),
        (_("Time"), {"fields": ["requested_at", "settled_at", "took"]}),
        (_("What ran"), {"fields": ["tools", "calls", "requests", "reached"]}),
        (_("What the agent was told"), {"fields": ["told"]}),
    ]  # fmt: skip

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.latency_view)
        return [path("latency/", view, name=LATENCY), *super().get_urls()]

    def latency_view(self, request: HttpRequest) -> HttpResponse:
        """Show how long cancels took."""
        return show_figures(request, self, title=_("Cancel latency"), draw=cancel_latency)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may see the requests may see these."""
        return request.user.has_perm("turns.view_cancelrequest")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Leave out the requests that are about one call."""
        return super().get_queryset(request).filter(tool_id="")

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Read what the turn belongs to, and its calls, once."""
        row: Any = super().get_object(request, object_id, from_field)
        if row is not None:
            row.links = links_of_turns(request.user, [row.turn])[str(row.turn_id)]
            row.turn.reader = request.user
            row.calls_made = selectors.calls_of_group(str(row.turn_id))
        return row

    @admin.display(description=_("tool calls"))
    def calls(self, obj: Any) -> SafeString | str:
        """Each with the limits in force, how it ended, and what is known of its work."""
        heads = [
            _("step"), _("tool"), _("status"), _("ran"), _("limit"), _("idle limit"), _("ended by"),
            _("what is known"), _("late by"),
        ]  # fmt: skip
        return table(heads, [_line(call, reader_of(obj)) for call in obj.calls_made])

    @admin.display(description=_("results"))
    def told(self, obj: Any) -> SafeString | str:
        """What each call has answered the agent with, and what the next turn begins with."""
        calls = obj.calls_made
        lines = [(call.tool_name, call.call_id, turn_ending.text(call.result)) for call in calls]
        return turn_ending.model_texts_table(obj.turn, lines)

    @admin.display(description=_("cancel requests"))
    def requests(self, obj: CancelledTurn) -> SafeString | str:
        """This one, and those that were about one call of the turn."""
        return turn_tables.cancels_of(obj.turn)

    @admin.display(description=_("sub-agents"))
    def reached(self, obj: CancelledTurn) -> SafeString | str:
        """Whom the turn had set to work, and what became of that."""
        return turn_tables.sub_agents_of(obj.turn)


def _line(call: Any, reader: Any) -> Sequence[Any]:
    limit: Any = _("no limit")
    if call.timeout_ms:
        limit = f"{format_span(call.timeout_ms)} ({format_source(call.timeout_source)})"
    return (
        call.step,
        link("governance_toolcall", call.pk, call.tool_name, reader=reader),
        call_status(call),
        format_span(call.duration_ms),
        limit,
        format_span(call.idle_timeout_ms) if call.idle_timeout_ms else _("no limit"),
        call_ended_by(call),
        call_disposition(call),
        format_span(call.late_after_ms),
    )


def register_columns() -> None:
    """Add the calls of each turn to the export, and with content what their agent was told."""
    source = CancelledTurn._meta.label
    add_columns(source, Columns(names=("calls",), read=_calls))
    add_columns(source, Columns(names=("told",), read=_model_texts, are_content=True))


def _calls(rows: Sequence[Row]) -> Iterator[Row]:
    facts = _by_turn(rows, with_content=False)
    return ({"calls": facts[str(row["turn_id"])]} for row in rows)


def _model_texts(rows: Sequence[Row]) -> Iterator[Row]:
    facts = _by_turn(rows, with_content=True)
    return ({"told": facts[str(row["turn_id"])]} for row in rows)


def _by_turn(rows: Sequence[Row], *, with_content: bool) -> dict[str, list[Row]]:
    names: Iterable[str] = ("call_id", "result") if with_content else _CALL_FACTS
    facts: dict[str, list[Row]] = {str(row["turn_id"]): [] for row in rows}
    for call in selectors.calls_of_groups(facts, with_content=with_content):
        facts[call.group].append({name: getattr(call, name) for name in names})
    return facts
