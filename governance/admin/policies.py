"""Admin of the limits: every save, action and deletion goes through `governance.services`, and is in force at once."""

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance import selectors, services
from governance.admin.formatting import NOTHING
from governance.admin.forms import DefaultPolicyForm, ToolPolicyForm, ToolPolicyRowForm
from governance.admin.limits import LimitsAdmin, editor_of, values_of
from governance.admin.mixins import OneRowAdmin
from governance.core.policy import ApprovalRule, Policy, resolve
from governance.core.registry import registry
from governance.durations import format_limit, limit_ms
from governance.labels import approval_rules, label_for, timeout_sources
from governance.models import DefaultPolicy, Limits, PolicyChange, ToolPolicy
from governance.policies import Policies, read_policies
from governance.selectors import OfferedTool
from governance.toolbox import described


@admin.register(DefaultPolicy)
class DefaultPolicyAdmin(OneRowAdmin[Limits], LimitsAdmin):
    """The one row of limits for every tool that has no others."""

    form = DefaultPolicyForm
    fields = [*services.DEFAULT_FIELDS, "revision", "version", "updated_at"]
    readonly_fields = ["version", "updated_at"]

    def save_model(self, request: HttpRequest, obj: Limits, form: Any, change: bool) -> None:  # noqa: FBT001
        """Save the default limits, and say so."""
        saved = services.save_default_policy(
            values=values_of(form), by=editor_of(request), revision=obj.revision
        )
        self.say_saved(request, saved)


@admin.register(ToolPolicy)
class ToolPolicyAdmin(LimitsAdmin):
    """The limits of single tools, and what is in force for each."""

    form = ToolPolicyForm
    fields = [
        "tool_name",
        "about_tool",
        "in_force",
        *services.TOOL_FIELDS,
        "revision",
        "updated_at",
    ]
    readonly_fields = ["about_tool", "in_force", "updated_at"]
    # The fields that are edited most, in a row beside menu and filters; the form has all, actions switch.
    list_display = ["tool_name", "in_force", "timeout_ms", "idle_timeout_ms", "changed", "revision"]
    list_editable = ["timeout_ms", "idle_timeout_ms", "revision"]
    list_filter = ["is_active", "tool_enabled"]
    search_fields = ["tool_name", "note"]
    actions = ["put_in_force", "put_out_of_force", "allow_tools", "forbid_tools"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Limits]:
        """Add who edited each row last, in the same query."""
        edits = PolicyChange.objects.filter(tool_name=OuterRef("tool_name"))
        return (
            super().get_queryset(request).annotate(changed_by=Subquery(edits.values("by_name")[:1]))
        )

    def get_readonly_fields(self, request: HttpRequest, obj: Limits | None = None) -> Any:
        """A row keeps its tool."""
        return [*super().get_readonly_fields(request, obj), *(["tool_name"] if obj else [])]

    def get_changelist_form(self, request: HttpRequest, **kwargs: Any) -> Any:
        """Edit rows of the list with units and with the check for other editors."""
        return super().get_changelist_form(request, form=ToolPolicyRowForm, **kwargs)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Read the limits in force once for all rows."""
        changelist = super().get_changelist_instance(request)
        policies = read_policies()
        known = {tool.name: tool for tool in selectors.offered_tools()}
        for row in changelist.result_list:
            row.policies, row.known = policies, known
        return changelist

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show every tool of the site beside the rows; explain an edit conflict."""
        tools = [
            (tool, _limits_in_words(tool.policy, disabled_reason=tool.tool.disabled_reason))
            for tool in selectors.tools_in_force()
        ]
        others = [(tool, words) for tool, words in tools if not tool.has_override]
        try:
            return super().changelist_view(
                request, {**(extra_context or {}), "other_tools": others}
            )
        except ValidationError as refusal:
            return self.refused(request, refusal)

    def save_model(self, request: HttpRequest, obj: Limits, form: Any, change: bool) -> None:  # noqa: FBT001
        """Save one tool's limits, and say so."""
        policy, values = cast(ToolPolicy, obj), values_of(form)
        if change and not values:
            return
        saved = services.save_tool_policy(
            tool_name=policy.tool_name,
            values=values,
            by=editor_of(request),
            revision=policy.revision if change else 0,
        )
        policy.pk = ToolPolicy.objects.values_list("pk", flat=True).get(tool_name=policy.tool_name)
        self.say_saved(request, saved)

    def delete_model(self, request: HttpRequest, obj: Limits) -> None:
        """Delete through the service."""
        deleted = services.delete_tool_policy(
            tool_name=cast(ToolPolicy, obj).tool_name, by=editor_of(request)
        )
        self.say_saved(request, deleted)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        """Delete every row through the service, all or none."""
        with transaction.atomic():
            for name in list(queryset.values_list("tool_name", flat=True)):
                deleted = services.delete_tool_policy(tool_name=name, by=editor_of(request))
                self.say_saved(request, deleted)

    @admin.action(permissions=["change"], description=gettext_lazy("Put in force"))
    def put_in_force(self, request: HttpRequest, queryset: QuerySet[ToolPolicy]) -> None:
        """Activate the selected rows."""
        self._save_each(request, queryset, values={"is_active": True})

    @admin.action(
        permissions=["change"], description=gettext_lazy("Put out of force (the next level counts)")
    )
    def put_out_of_force(self, request: HttpRequest, queryset: QuerySet[ToolPolicy]) -> None:
        """Ignore the selected rows."""
        self._save_each(request, queryset, values={"is_active": False})

    @admin.action(permissions=["change"], description=gettext_lazy("Allow these tools"))
    def allow_tools(self, request: HttpRequest, queryset: QuerySet[ToolPolicy]) -> None:
        """Enable the tools."""
        self._save_each(request, queryset, values={"tool_enabled": True})

    @admin.action(permissions=["change"], description=gettext_lazy("Forbid these tools"))
    def forbid_tools(self, request: HttpRequest, queryset: QuerySet[ToolPolicy]) -> None:
        """Refuse calls of the tools, whatever the other fields say."""
        self._save_each(request, queryset, values={"tool_enabled": False, "is_active": True})

    @admin.display(description=gettext_lazy("in force"))
    def in_force(self, obj: ToolPolicy) -> str:
        """The limits that the tool's next call gets, and where they come from."""
        if obj._state.adding:
            return NOTHING
        known: Mapping[str, OfferedTool] | None = getattr(obj, "known", None)
        tool = selectors.find_tool(obj.tool_name) if known is None else known.get(obj.tool_name)
        if tool is None:
            return _("not installed")
        policies: Policies = getattr(obj, "policies", None) or read_policies()
        policy = resolve(policies.levels_of(tool.name, declared=tool.limits))
        words = _limits_in_words(policy, disabled_reason=tool.disabled_reason)
        if not tool.isolation:
            words += ", " + _("not connected here")
        return words if obj.is_active else words + ", " + _("this row is out of force")

    @admin.display(description=gettext_lazy("about the tool"))
    def about_tool(self, obj: ToolPolicy) -> str:
        """The tool's declared limits; or that it is not installed."""
        if obj._state.adding:
            return NOTHING
        if obj.tool_name not in registry and (found := selectors.find_tool(obj.tool_name)):
            words = _("%(description)s A tool of the MCP server %(server)s.")
            return words % {"description": found.description, "server": found.server}
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

    @admin.display(description=gettext_lazy("changed"), ordering="updated_at")
    def changed(self, obj: ToolPolicy) -> str:
        """When the row was edited last, and by whom."""
        at = f"{obj.updated_at:%Y-%m-%d %H:%M}"
        by = getattr(obj, "changed_by", "")
        return f"{at}, {by}" if by else at

    def _save_each(
        self, request: HttpRequest, queryset: QuerySet[ToolPolicy], *, values: Any
    ) -> None:
        """Edit every row through the service, all or none."""
        save = partial(services.save_tool_policy, values=values, by=editor_of(request))
        names = list(queryset.values_list("tool_name", flat=True))
        try:
            with transaction.atomic():
                saved = [save(tool_name=name) for name in names]
        except ValidationError as refusal:
            self.refused(request, refusal)
            return
        for change in saved:
            self.say_saved(request, change)
        if not any(saved):
            self.message_user(request, _("Nothing to change."), messages.INFO)


def _limits_in_words(policy: Policy, *, disabled_reason: str) -> str:
    words = _("%(limit)s (from: %(source)s)") % {
        "limit": format_limit(limit_ms(policy.timeout)),
        "source": label_for(policy.timeout_source, timeout_sources()),
    }
    if policy.idle_timeout:
        words += ", " + _("idle %(limit)s") % {"limit": format_limit(limit_ms(policy.idle_timeout))}
    if policy.approval is not ApprovalRule.NEVER:
        words += ", " + _("approval %(rule)s") % {
            "rule": label_for(policy.approval, approval_rules())
        }
    if not policy.enabled:
        words += ", " + _("switched off")
    return f"{words}. {disabled_reason}" if disabled_reason else words
