"""Admin of the audit: who changed which limit from what to what, and when (acceptance 94)."""

from django.contrib import admin
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance.admin.readonly import ReadOnlyAdmin
from governance.admin.time_filter import time_filter
from governance.models import PolicyChange


@admin.register(PolicyChange)
class PolicyChangeAdmin(ReadOnlyAdmin):
    """Every edit of a limit, newest first."""

    list_display = ["at", "what", "action", "summary", "by_name", "version"]
    list_filter = [time_filter("at"), "action"]
    search_fields = ["tool_name", "by_name"]
    search_help_text = gettext_lazy("Tool, or who made the change")
    fields = ["at", "what", "action", "summary", "by_name", "version"]
    readonly_fields = ["what", "summary"]

    @admin.display(description=gettext_lazy("limits of"), ordering="tool_name")
    def what(self, obj: PolicyChange) -> str:
        """The tool, or the default limits."""
        return obj.tool_name or _("every tool (default limits)")

    @admin.display(description=gettext_lazy("old → new"))
    def summary(self, obj: PolicyChange) -> str:
        return obj.summary
