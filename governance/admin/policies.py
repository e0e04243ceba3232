"""Admin of the limits: every save, action and deletion goes through `governance.services`, and is in force at once."""

from typing import Any, cast

from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance import selectors, services
from governance.admin.formatting import NOTHING
from governance.admin.forms import DefaultPolicyForm, ToolPolicyForm
from governance.admin.limits import LimitsAdmin, editor_of, values_of, why_of
from governance.admin.limits_page import LimitsPage
from governance.admin.mixins import OneRowAdmin
from governance.admin.tool_page import TOOL_VIEW, ToolPage
from governance.admin.tool_rows import reporters_text, tool_row
from governance.conf import app_settings
from governance.core.registry import registry
from governance.durations import format_limit, limit_ms
from governance.models import DefaultPolicy, Limits, ToolPolicy
from governance.selectors import OfferedTool
from governance.toolbox import described


@admin.register(DefaultPolicy)
class DefaultPolicyAdmin(OneRowAdmin[Limits], LimitsAdmin):
    """The one row of limits for every tool that has no others."""

    form = DefaultPolicyForm
    fields = [*services.DEFAULT_FIELDS, "why", "revision", "accepted", "version", "changed"]
    readonly_fields = ["version", "changed"]

    def save_model(self, request: HttpRequest, obj: Limits, form: Any, change: bool) -> None:  # noqa: FBT001
        saved = services.save_default_policy(
            values=values_of(form),
            by=editor_of(request),
            revision=obj.revision,
            reason=why_of(form),
        )
        self.say_saved(request, saved)


@admin.register(ToolPolicy)
class ToolPolicyAdmin(LimitsAdmin):
    """The limits of each tool: one page to tune them all, and a form with every limit of one."""

    form = ToolPolicyForm
    fields = [
        "tool_name",
        "about_tool",
        "in_force",
        *services.TOOL_FIELDS,
        "why",
        "revision",
        "accepted",
        "changed",
    ]
    readonly_fields = ["about_tool", "in_force", "changed"]

    def get_readonly_fields(self, request: HttpRequest, obj: Limits | None = None) -> Any:
        """A row keeps its tool."""
        return [*super().get_readonly_fields(request, obj), *(["tool_name"] if obj else [])]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show every tool of the site; explain an edit conflict."""
        try:
            with selectors.tools_read_once():
                return LimitsPage(self, request).respond()
        except ValidationError as refusal:
            return self.refused(request, refusal)

    def get_urls(self) -> list[Any]:
        """Add the page of each tool; its name may be any text."""
        view = self.admin_site.admin_view(self.tool_view)
        return [path("tool/<path:name>/", view, name=TOOL_VIEW), *super().get_urls()]

    def tool_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Show how long a tool's calls ran, and what was changed; explain an edit conflict."""
        try:
            with selectors.tools_read_once():
                return ToolPage(self, request, name).respond()
        except ValidationError as refusal:
            return self.refused(request, refusal)

    def save_model(self, request: HttpRequest, obj: Limits, form: Any, change: bool) -> None:  # noqa: FBT001
        policy, values = cast(ToolPolicy, obj), values_of(form)
        if change and not values:
            return
        saved = services.save_tool_policy(
            tool_name=policy.tool_name,
            values=values,
            by=editor_of(request),
            revision=policy.revision if change else 0,
            reason=why_of(form),
        )
        policy.pk = ToolPolicy.objects.values_list("pk", flat=True).get(tool_name=policy.tool_name)
        self.say_saved(request, saved)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> HttpResponse:
        """Ask before the deletion, and ask why."""
        asked = {**(extra_context or {}), "is_note_required": app_settings.LIMIT_NOTE_REQUIRED}
        return super().delete_view(request, object_id, asked)

    def delete_model(self, request: HttpRequest, obj: Limits) -> None:
        deleted = services.delete_tool_policy(
            tool_name=cast(ToolPolicy, obj).tool_name,
            by=editor_of(request),
            reason=request.POST.get("why", ""),
        )
        self.say_saved(request, deleted)

    @admin.display(description=gettext_lazy("in force"))
    def in_force(self, obj: ToolPolicy) -> str:
        """The limits that the tool's next call gets, and where they come from."""
        if obj._state.adding:
            return NOTHING
        row = tool_row(obj)
        columns = {field.name: field.verbose_name for field in ToolPolicy._meta.fields}
        told = (f"{columns[name]}: {words}" for name, words in row.inherited.items())
        return "; ".join([row.in_force, *told])

    @admin.display(description=gettext_lazy("about the tool"))
    def about_tool(self, obj: ToolPolicy) -> str:
        """The tool's declared limits; or that it is not installed."""
        if obj._state.adding:
            return NOTHING
        if obj.tool_name not in registry and (found := selectors.find_tool(obj.tool_name)):
            return _about_reported(found)
        if obj.tool_name not in registry:
            return _(
                "No tool of this name is installed now. The limits are kept and count if it comes back."
            )
        tool = described(registry.get(obj.tool_name))
        limit = format_limit(None if tool.limits.timeout is None else limit_ms(tool.limits.timeout))
        words = _("%(description)s Runs as %(isolation)s. Its own limit: %(limit)s.")
        return words % {
            "description": tool.description,
            "isolation": tool.isolation.value,
            "limit": limit,
        }


def _about_reported(tool: OfferedTool) -> str:
    """What is known of a tool that is not registered in this process."""
    if tool.server:
        words = _("%(description)s A tool of the MCP server %(server)s.")
        return words % {"description": tool.description, "server": tool.server}
    return ": ".join(filter(None, [tool.description, reporters_text(tool)]))
