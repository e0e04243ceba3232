"""Admin of approvals: the call, the question, who decided and when; read-only (D4)."""

from datetime import timedelta

from django.contrib import admin
from django.db.models import F, Q
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance.admin.calls import preformatted
from governance.admin.filters import ConditionFilter, ToolFilter
from governance.admin.formatting import NOTHING, format_span
from governance.admin.links import LinkedCallAdmin
from governance.admin.time_filter import DAY, time_filter
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


def _before(seconds: int) -> Q:
    return Q(decided_at__lt=F("requested_at") + timedelta(seconds=seconds))


class TookFilter(ConditionFilter):
    """How long a question waited for its answer."""

    title = gettext_lazy("took")
    parameter_name = "took"
    conditions = {
        "10": (gettext_lazy("Under 10 s"), _before(10)),
        "60": (gettext_lazy("10 s to 1 min"), _before(60) & ~_before(10)),
        "600": (gettext_lazy("1 to 10 min"), _before(600) & ~_before(60)),
        "more": (gettext_lazy("10 min and more"), Q(decided_at__isnull=False) & ~_before(600)),
    }


@admin.register(Approval)
class ApprovalAdmin(LinkedCallAdmin):
    """Every question, newest first."""

    content_fields = ("input_text", "input", "host")
    list_display = ["requested_at", "tool_name", "state", "by_name", "reason", "took"]
    list_filter = [
        time_filter("requested_at", default=DAY),
        DecisionFilter,
        "rule",
        ToolFilter,
        TookFilter,
    ]
    search_fields = ["group", "scope", "call_id", "by_name", "tool_name"]
    search_help_text = gettext_lazy(
        "A whole id (call, turn, conversation), a whole user name, or part of the name of a tool"
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
        "lapsed_at",
        "took",
        "call_id",
        "group",
        "scope",
        "definition",
    ]
    readonly_fields = ["input_text", "state", "took"]

    @admin.display(description=gettext_lazy("decision"), ordering="decision")
    def state(self, obj: Approval) -> str:
        """The decision's label; a late one changed nothing."""
        if not obj.decision:
            return _("waits for a person")
        if obj.is_late:
            return _("%(decision)s, too late") % {"decision": obj.get_decision_display()}
        decision: str = obj.get_decision_display()
        if not obj.remember:
            return decision
        lapsed = obj.lapsed_at and _("for the conversation, until a message before it was edited")
        return f"{decision} ({lapsed or _('for the conversation')})"

    @admin.display(description=gettext_lazy("took"))
    def took(self, obj: Approval) -> str:
        if obj.decided_at is None:
            return NOTHING
        return format_span(round((obj.decided_at - obj.requested_at).total_seconds() * 1000))

    @admin.display(description=gettext_lazy("input"))
    def input_text(self, obj: Approval) -> str:
        return preformatted(obj.input)
