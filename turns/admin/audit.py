"""Admin of the audit: requests to cancel with who, how and why, and repairs of histories."""

from django.contrib import admin
from django.db.models import Q
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from governance.admin.cells import NOTHING, span
from governance.admin.filters import ConditionFilter
from turns.admin.rows import link
from turns.admin.search import IdSearchAdmin
from turns.models import CancelRequest, Repair


class SettledFilter(ConditionFilter):
    """Whether the request has come true, and how fast (B5)."""

    title = _("settled")
    parameter_name = "settled"
    conditions = {
        "no": (_("Not yet"), Q(settled_at=None)),
        "fast": (_("Within 1 s"), Q(settled_ms__lt=1000)),
        "slow": (_("After more than 1 s"), Q(settled_ms__gte=1000)),
    }


@admin.register(CancelRequest)
class CancelRequestAdmin(IdSearchAdmin):
    """Every request to cancel, newest first."""

    list_display = [
        "requested_at",
        "what",
        "reason",
        "source",
        "by_name",
        "took",
        "outcome",
        "turn_link",
    ]
    list_filter = [SettledFilter, "reason", "source", "outcome", "mode"]
    id_fields = ("turn",)
    search_fields = ["tool_id__exact", "by_name__exact"]
    search_help_text = _("A whole id of a turn or a call, or a whole user name")
    date_hierarchy = "requested_at"
    readonly_fields = ["what", "took", "turn_link", "tools"]
    fields = [
        "turn_link",
        "what",
        "reason",
        "source",
        "by",
        "by_name",
        "note",
        "mode",
        "tools",
        "requested_at",
        "settled_at",
        "took",
        "outcome",
    ]

    @admin.display(description=_("what"), ordering="tool_id")
    def what(self, obj: CancelRequest) -> str:
        """The turn, or one call of it."""
        return obj.tool_id or str(_("the turn"))

    @admin.display(description=_("requested → settled"), ordering="settled_ms")
    def took(self, obj: CancelRequest) -> str:
        """How long it took to come true."""
        return span(obj.settled_ms)

    @admin.display(description=_("what was running"))
    def tools(self, obj: CancelRequest) -> str:
        """The tools that waited or ran when it was made."""
        return ", ".join(obj.running_tools) or NOTHING

    @admin.display(description=_("turn"))
    def turn_link(self, obj: CancelRequest) -> SafeString:
        """The turn's page."""
        return link("turns_turn", obj.turn_id, obj.turn_id)


@admin.register(Repair)
class RepairAdmin(IdSearchAdmin):
    """Every repair of a history, newest first."""

    list_display = ["at", "kind", "cause", "found_when", "tool_id", "turn_link"]
    list_filter = ["kind", "cause", "found_when"]
    id_fields = ("turn", "conversation")
    search_fields = ["tool_id__exact"]
    search_help_text = _("A whole id of a turn, a call or a conversation")
    date_hierarchy = "at"
    readonly_fields = ["turn_link"]
    fields = ["at", "kind", "cause", "found_when", "tool_id", "text", "turn_link", "conversation"]

    @admin.display(description=_("turn"))
    def turn_link(self, obj: Repair) -> SafeString | str:
        """The turn's page."""
        return NOTHING if obj.turn_id is None else link("turns_turn", obj.turn_id, obj.turn_id)
