"""Admin pages for the limits.

Every save, action and deletion goes through `governance.services` and takes effect immediately.
"""

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from console import tools
from console.formats import NOTHING, Column, format_time
from console.limit_pages import LimitsPage, ToolPage, in_force_context, reach, view_name
from console.lists import EditedList, OneRow, module
from console.tool_rows import DefaultPolicyForm, ToolPolicyForm, reporters_text, tool_row
from governance import services
from governance.admin import editor_of
from governance.conf import app_settings
from governance.core.policy import LIMITS
from governance.core.registry import registry
from governance.durations import format_limit, limit_ms
from governance.models import PolicyChange, ToolPolicy
from governance.toolbox import described

_OBEYED_WHILE_RUNNING = {f"{name}_ms" for name, limit in LIMITS.items() if limit.is_live} | {
    "is_active"
}


class LimitsAdmin(EditedList):
    """The base of the admins of both kinds of limits: readable values, messages about the effect, one audit trail."""

    change_form_template = "console/limits_form.html"

    class Media:
        js = [module("refresh.js")]

    changed = Column(
        gettext_lazy("changed at"),
        lambda row: format_time(None if row._state.adding else row.updated_at),
    )

    def get_urls(self) -> list[Any]:
        """Add the address of the line that shows where the limits apply."""
        view = self.admin_site.admin_view(require_GET(self.in_force_view))
        return [path("in-force/", view, name=view_name(self.opts)), *super().get_urls()]

    def in_force_view(self, request: HttpRequest) -> HttpResponse:
        """Return the line alone, without the figures of all tools."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        context = in_force_context(self.opts, request.user)
        return TemplateResponse(request, "console/in_force.html", context)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Also show the line on a row's page, which is shown after a save."""
        page_context = {**context, **in_force_context(self.opts, request.user)}
        return super().render_change_form(request, page_context, *args, **kwargs)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Show the reason field only to users who may edit."""
        fields = super().get_fields(request, obj)
        may_edit = obj is None or self.has_change_permission(request, obj)
        return [name for name in fields if may_edit or name not in ("why", "accepted")]

    def say_saved(self, request: HttpRequest, change: PolicyChange | None) -> None:
        """Tell the user what was saved, which calls it affects and how many processes have applied it so far."""
        if change is None:
            return
        words = {
            "version": change.version,
            "what": change.tool_name or _("default limits"),
            "summary": change.summary or _("no limits set yet"),
        }
        sentence = _("Version %(version)s. %(what)s: %(summary)s.") % words
        sentences = [sentence, _covered(change), reach(change.version).words]
        self.message_user(request, " ".join(filter(None, sentences)), messages.INFO)


class DefaultPolicyAdmin(OneRow, LimitsAdmin):
    """The admin page of the default limits: one row, which applies to every tool without its own limits."""

    form = DefaultPolicyForm
    fields = [*services.DEFAULT_FIELDS, "why", "revision", "accepted", "version", "changed"]
    readonly_fields = ["version", "changed"]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001
        saved = services.save_default_policy(
            values=form.edits, by=editor_of(request), revision=obj.revision, reason=form.reason
        )
        self.say_saved(request, saved)


class ToolPolicyAdmin(LimitsAdmin):
    """The admin pages of the limits of tools: one page to tune them all, and a form for each tool."""

    form = ToolPolicyForm
    delete_confirmation_template = "console/delete_limits.html"
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

    in_force = Column(gettext_lazy("effective limits"), lambda row: _in_force(row))
    about_tool = Column(gettext_lazy("about the tool"), lambda row: _about_tool(row))

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return [*super().get_readonly_fields(request, obj), *(["tool_name"] if obj else [])]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """List every tool of the site; explain an edit conflict."""
        try:
            return LimitsPage(self, request).respond()
        except ValidationError as refusal:
            return self.refused(request, refusal)

    def get_urls(self) -> list[Any]:
        """Add a page for each tool. Its address may contain any text as the tool's name."""
        view = self.admin_site.admin_view(self.tool_view)
        name = "governance_toolpolicy_tool"
        return [path("tool/<path:name>/", view, name=name), *super().get_urls()]

    def tool_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Show how long a tool's calls ran and how its limits changed; explain an edit conflict."""
        try:
            return ToolPage(self, request, name).respond()
        except ValidationError as refusal:
            return self.refused(request, refusal)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001
        if change and not form.edits:
            return
        saved = services.save_tool_policy(
            tool_name=obj.tool_name,
            values=form.edits,
            by=editor_of(request),
            revision=obj.revision if change else 0,
            reason=form.reason,
            tool=tools.find(obj.tool_name),
        )
        obj.pk = ToolPolicy.objects.values_list("pk", flat=True).get(tool_name=obj.tool_name)
        self.say_saved(request, saved)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> HttpResponse:
        """Ask for confirmation and a reason."""
        context = {**(extra_context or {}), "is_note_required": app_settings.LIMIT_NOTE_REQUIRED}
        return super().delete_view(request, object_id, context)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        deleted = services.delete_tool_policy(
            tool_name=obj.tool_name, by=editor_of(request), reason=request.POST.get("why", "")
        )
        self.say_saved(request, deleted)


def _covered(change: PolicyChange) -> str:
    """Return a sentence about which calls the change affects."""
    fields = change.changes.keys() - {"note"}
    if not fields:
        return ""
    if "is_active" not in fields and _is_out_of_force(change.tool_name):
        return _("These limits are inactive and apply to no call.")
    if fields & _OBEYED_WHILE_RUNNING:
        return _(
            "The new limits now apply to running calls of this process, and to those of other processes within seconds."
        )
    return _(
        "The new limits apply to calls that start from now on, in other processes within seconds. Running calls keep theirs."
    )


def _is_out_of_force(tool_name: str) -> bool:
    return ToolPolicy.objects.filter(tool_name=tool_name, is_active=False).exists()


def _in_force(policy: ToolPolicy) -> str:
    """Return the limits of the tool's next call, and their source."""
    if policy._state.adding:
        return NOTHING
    row = tool_row(policy)
    columns = {field.name: field.verbose_name for field in ToolPolicy._meta.fields}
    details = (f"{columns[name]}: {words}" for name, words in row.inherited.items())
    return "; ".join([row.in_force, *details])


def _about_tool(policy: ToolPolicy) -> str:
    """Return the tool's description and declared limits, or a note that it is not installed."""
    if policy._state.adding:
        return NOTHING
    if policy.tool_name in registry:
        tool = described(registry.get(policy.tool_name))
        timeout = tool.limits.timeout
        return _(
            "%(description)s Runs as %(isolation)s. Limit declared by the tool: %(limit)s."
        ) % {
            "description": tool.description,
            "isolation": tool.isolation.value,
            "limit": format_limit(None if timeout is None else limit_ms(timeout)),
        }
    entry = tools.find(policy.tool_name)
    if entry is None:
        return _(
            "No tool with this name is installed. Its limits are kept and apply again if the tool is installed."
        )
    if entry.server:
        words = _("%(description)s Provided by the MCP server %(server)s.")
        return words % {"description": entry.description, "server": entry.server}
    return ": ".join(filter(None, [entry.description, reporters_text(entry)]))
