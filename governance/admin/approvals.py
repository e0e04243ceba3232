"""Admin of approvals: the call, the question, who decided and when; read-only (D4)."""

from django.contrib import admin
from django.db.models import Q
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance.admin.calls import preformatted
from governance.admin.filters import ConditionFilter, ToolFilter
from governance.admin.formatting import NOTHING, format_span, format_time
from governance.admin.search import ToolSearchAdmin
from governance.admin.time_filter import time_filter
from governance.models import Approval


class DecisionFilter(ConditionFilter):
    """What became of a question."""

    title = gettext_lazy("decision")
    parameter_name = "decided"
    conditions = {
        "open": (gettext_lazy("Waits for a person"), Q(decision="")),
        "approved": (gettext_lazy("Approved"), Q(decision="approved")),
        "remembered": (
            gettext_lazy("Approved for the conversation"),
            Q(decision="approved", remember=True),
        ),
        "denied": (gettext_lazy("Denied"), Q(decision="denied", is_late=False)),
        "late": (gettext_lazy("Denied too late"), Q(is_late=True)),
        "expired": (gettext_lazy("Nobody answered"), Q(decision="expired")),
        "cancelled": (
            gettext_lazy("Cancelled or interrupted"),
            Q(decision__in=("cancelled", "interrupted")),
        ),
    }


@admin.register(Approval)
class ApprovalAdmin(ToolSearchAdmin):
    """Every question, newest first."""

    list_display = ["requested", "tool_name", "state", "by_name", "reason", "took"]
    list_filter = [time_filter("requested_at"), DecisionFilter, "rule", ToolFilter]
    search_fields = ["group", "scope", "call_id", "by_name", "tool_name"]
    search_help_text = gettext_lazy(
        "A whole id of a call, a turn or a conversation, a whole user name, or part of the name of a tool of this site"
    )
    fields = [
        "tool_name",
        "input_text",
        "state",
        "by_name",
        "reason",
        "rule",
        "remember",
        "requested_at",
        "expires_at",
        "decided_at",
        "took",
        "call_id",
        "group",
        "scope",
        "definition",
    ]
    readonly_fields = ["input_text", "state", "took"]

    @admin.display(description=gettext_lazy("requested at"), ordering="requested_at")
    def requested(self, obj: Approval) -> str:
        """When a person was asked."""
        return format_time(obj.requested_at)

    @admin.display(description=gettext_lazy("decision"), ordering="decision")
    def state(self, obj: Approval) -> str:
        """The decision's label; a late one changed nothing."""
        if not obj.decision:
            return _("waits for a person")
        if obj.is_late:
            return _("%(decision)s, too late") % {"decision": obj.get_decision_display()}
        decision: str = obj.get_decision_display()
        return f"{decision} ({_('for the conversation')})" if obj.remember else decision

    @admin.display(description=gettext_lazy("took"))
    def took(self, obj: Approval) -> str:
        """How long the question waited."""
        if obj.decided_at is None:
            return NOTHING
        return format_span(round((obj.decided_at - obj.requested_at).total_seconds() * 1000))

    @admin.display(description=gettext_lazy("input"))
    def input_text(self, obj: Approval) -> str:
        """The arguments as they were shown."""
        return preformatted(obj.input)
