"""Admin of the audit: requests to cancel with who, how and why, and repairs of histories."""

from collections.abc import Collection
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from governance import OPEN_STATUSES
from governance.admin.filters import ConditionFilter
from governance.admin.formatting import NOTHING, format_span
from governance.admin.links import reader_of
from governance.admin.search import ExactSearchAdmin
from governance.admin.time_filter import DAY, time_filter
from governance.labels import call_statuses
from turns.admin import turn_filters
from turns.admin.audit_charts import repairs_by_day
from turns.admin.figures import show_figures
from turns.admin.rows import outcome_text, turn_link
from turns.core.turns import ACTIVE_STATUSES
from turns.models import Acknowledgement, CancelRequest, Repair
from turns.models.labels import turn_statuses

REPAIRS_BY_DAY = "turns_repairs_by_day"
_OPEN = {status.value for status in (*OPEN_STATUSES, *ACTIVE_STATUSES)}


class SettledFilter(ConditionFilter):
    """Whether the request has come true, and how fast (B5)."""

    title = _("settled")
    parameter_name = "settled"
    conditions = {
        "no": (_("Not yet"), Q(settled_at=None)),
        "fast": (_("Within 1 s"), Q(settled_ms__lt=1000)),
        "slow": (_("After more than 1 s"), Q(settled_ms__gte=1000)),
    }


class OutcomeFilter(admin.SimpleListFilter):
    """What has become of the request; no scan of the table finds the choices."""

    title = _("outcome")
    parameter_name = "outcome"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Name the statuses that a turn or a call ends with."""
        ends = {**dict(call_statuses()), **dict(turn_statuses())}
        return [(status, words) for status, words in ends.items() if status not in _OPEN]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(outcome=self.value()) if self.value() else queryset


@admin.register(CancelRequest)
class CancelRequestAdmin(ExactSearchAdmin):
    """Every request to cancel, newest first."""

    content_fields: Collection[str] = ("answer",)
    list_display = ["requested_at", "what", "whose", "took", "outcome_label", "turn_link"]
    list_select_related = ["turn__conversation__owner"]
    list_filter = [
        time_filter("requested_at", default=DAY),
        SettledFilter,
        "reason",
        "source",
        OutcomeFilter,
        "mode",
        *turn_filters.of_requests(),
    ]
    id_fields = ("turn",)
    search_fields = ["by_name", "tool_id"]
    search_help_text = _("A whole id of a turn or a call, or a whole user name")
    readonly_fields = ["what", "took", "turn_link", "tools", "outcome_label", "answer"]
    fields: ClassVar[Any] = [
        "turn_link",
        "what",
        "reason",
        "source",
        "by_name",
        "note",
        "mode",
        "tools",
        "requested_at",
        "settled_at",
        "took",
        "outcome_label",
        "answer",
    ]

    @admin.display(description=_("by"), ordering="by_name")
    def whose(self, obj: CancelRequest) -> str:
        """Who wanted it, and by what means; or why it was made where nobody did."""
        if not obj.by_name:
            return str(obj.get_reason_display())
        return f"{obj.by_name}, {obj.get_source_display()}"

    @admin.display(description=_("outcome"), ordering="outcome")
    def outcome_label(self, obj: CancelRequest) -> str:
        return outcome_text(obj)

    @admin.display(description=_("cancel word and answer"))
    def answer(self, obj: CancelRequest) -> str:
        """What was said where it was a cancel word, and what the person was told."""
        row = Acknowledgement.objects.filter(request=obj).first()
        return f"“{row.said}” → “{row.text}”" if row else NOTHING

    @admin.display(description=_("what"), ordering="tool_id")
    def what(self, obj: CancelRequest) -> str:
        """The turn, or one call of it."""
        return obj.tool_id or str(_("the turn"))

    @admin.display(description=_("requested → settled"), ordering="settled_ms")
    def took(self, obj: CancelRequest) -> str:
        """How long it took to come true."""
        return format_span(obj.settled_ms)

    @admin.display(description=_("what was running"))
    def tools(self, obj: CancelRequest) -> str:
        """The tools that waited or ran when it was made."""
        return ", ".join(obj.running_tools) or NOTHING

    @admin.display(description=_("turn"))
    def turn_link(self, obj: CancelRequest) -> SafeString | str:
        return turn_link(obj.turn, reader=reader_of(obj))


@admin.register(Repair)
class RepairAdmin(ExactSearchAdmin):
    """Every repair of a history, newest first."""

    list_display = ["at", "kind", "cause", "turn_link"]
    list_select_related = ["turn__conversation__owner"]
    list_filter = [
        time_filter("at"),
        "kind",
        "cause",
        "found_when",
        *turn_filters.of_rows_of_turns(),
    ]
    id_fields = ("turn", "conversation")
    search_fields = ["tool_id"]
    search_help_text = _("A whole id of a turn, a call or a conversation")
    figures = [(_("Repairs by day"), f"admin:{REPAIRS_BY_DAY}")]
    readonly_fields = ["turn_link", "at"]
    fields = [
        "at",
        "kind",
        "cause",
        "found_when",
        "tool_id",
        "text",
        "turn_link",
        "conversation",
    ]

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.by_day_view)
        return [path("days/", view, name=REPAIRS_BY_DAY), *super().get_urls()]

    def by_day_view(self, request: HttpRequest) -> HttpResponse:
        """Show how many there were, and why."""
        return show_figures(request, self, title=_("Repairs by day"), draw=repairs_by_day)

    @admin.display(description=_("turn"))
    def turn_link(self, obj: Repair) -> SafeString | str:
        return NOTHING if obj.turn is None else turn_link(obj.turn, reader=reader_of(obj))
