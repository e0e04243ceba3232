"""Admin of the audit: who changed which limit from what to what, who exported which list, and when (acceptance 94)."""

from django.contrib import admin
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance.admin.formatting import NOTHING, format_time
from governance.admin.links import anchor, may_open, reader_of
from governance.admin.readonly import ReadOnlyAdmin
from governance.admin.time_filter import time_filter
from governance.admin.tool_page import address_of
from governance.call_links import Link
from governance.models import Export, PolicyChange


@admin.register(PolicyChange)
class PolicyChangeAdmin(ReadOnlyAdmin):
    """Every edit of a limit, newest first."""

    list_display = ["at", "what", "action", "summary", "by_name", "why", "version"]
    list_filter = [time_filter("at"), "action"]
    search_fields = ["tool_name", "by_name"]
    search_help_text = gettext_lazy("Tool, or who made the change")
    fields = ["at", "what", "action", "summary", "why", "by_name", "version"]
    readonly_fields = ["at", "what", "summary", "why"]

    @admin.display(description=gettext_lazy("limits of"), ordering="tool_name")
    def what(self, obj: PolicyChange) -> SafeString | str:
        """The tool with its page, or the default limits."""
        if not obj.tool_name:
            return _("every tool (default limits)")
        may_see = may_open(reader_of(obj), "governance_toolpolicy")
        return anchor(Link(obj.tool_name, address_of(obj.tool_name) if may_see else ""))

    @admin.display(description=gettext_lazy("old → new"))
    def summary(self, obj: PolicyChange) -> str:
        return obj.summary

    @admin.display(description=gettext_lazy("why"))
    def why(self, obj: PolicyChange) -> str:
        """The reason, for its reader."""
        return obj.why or NOTHING


@admin.register(Export)
class ExportAdmin(ReadOnlyAdmin):
    """Every export of a list, newest first."""

    content_fields = ("terms",)
    list_display = fields = (
        "at",
        "what",
        "chosen",
        "format",
        "has_content",
        "rows",
        "finished",
        "by_name",
    )
    list_filter = [time_filter("at"), "format", "has_content"]
    search_fields = ["source", "by_name"]
    search_help_text = gettext_lazy("List (as “ToolCall”), or who exported it")
    readonly_fields = ["at", "what", "chosen", "finished"]

    @admin.display(description=gettext_lazy("list"), ordering="source")
    def what(self, obj: Export) -> str:
        return obj.source_name

    @admin.display(description=gettext_lazy("filters"))
    def chosen(self, obj: Export) -> str:
        """The search and the filters, as in the list's address; terms for whoever may see content."""
        terms = obj.terms if reader_of(obj).has_perm("governance.view_content") else {}
        asked = (obj.filters | terms).items()
        return ", ".join(f"{name}={'|'.join(values)}" for name, values in asked) or NOTHING

    @admin.display(description=gettext_lazy("finished at"), ordering="finished_at")
    def finished(self, obj: Export) -> SafeString | str:
        return format_time(obj.finished_at) if obj.finished_at else _("stopped, or still going on")
