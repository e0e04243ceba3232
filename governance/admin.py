"""Plain admin pages for editing limits and MCP servers, and for reading the history. The app `console` replaces them
with richer pages.
"""

from typing import TYPE_CHECKING, Any, ClassVar, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.base_user import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from governance import selectors, services
from governance.mcp_servers import edits
from governance.models import (
    Approval,
    DefaultPolicy,
    McpServer,
    McpServerChange,
    PolicyChange,
    ToolCall,
    ToolPolicy,
)

if TYPE_CHECKING:
    AnyForm = forms.ModelForm[Any]

    class AnyAdmin(admin.ModelAdmin[Any]):
        """Django's `ModelAdmin`, generic for type checkers, with columns that need not be field names."""

        actions: Any
        fields: ClassVar[Any]
        fieldsets: ClassVar[Any]
        list_display: Any
        readonly_fields: ClassVar[Any]
else:
    AnyAdmin, AnyForm = admin.ModelAdmin, forms.ModelForm


class HistoryAdmin(AnyAdmin):
    """Read-only admin pages of rows that the system writes. Only users with the permission `governance.view_content`
    see the `content_fields`.
    """

    content_fields: ClassVar[Any] = ()
    list_per_page = 50
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_exclude(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields that are hidden from this user or from everyone."""
        never = self.exclude or ()
        may_view = request.user.has_perm("governance.view_content")
        return never if may_view else {*self.content_fields, *never}

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Refuse filters on hidden fields, because the remaining rows would reveal their values."""
        is_hidden = lookup.split("__")[0] in self.get_exclude(request)
        return not is_hidden and super().lookup_allowed(lookup, value, request)


class EditedAdmin(AnyAdmin):
    """Admin pages of rows that a service saves. The service may refuse an edit, and adds it to the admin's history."""

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show a message if the service refuses the edit, for example because another edit was saved meanwhile."""
        try:
            return super().changeform_view(request, *args, **kwargs)
        except ValidationError as refusal:
            return self.refused(request, refusal)

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return super().delete_view(request, *args, **kwargs)
        except ValidationError as refusal:
            return self.refused(request, refusal)

    def refused(self, request: HttpRequest, refusal: ValidationError) -> HttpResponse:
        """Explain why nothing was saved, and show the page again."""
        self.say_refused(request, refusal)
        return HttpResponseRedirect(request.get_full_path())

    def say_refused(self, request: HttpRequest, refusal: ValidationError) -> None:
        for sentence in refusal.messages:
            self.message_user(request, sentence, messages.ERROR)

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Log nothing, because the service has already logged the edit."""

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Log nothing, because the service has already logged the edit."""

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        """Log nothing, because the service has already logged the edit."""


class LimitsForm(AnyForm):
    """A form for the limits of one row, and the reason for a change."""

    why = forms.CharField(required=False, max_length=500)


class ToolLimitsForm(LimitsForm):
    """A form for the limits of one tool, which is offered by this process or by an MCP server."""

    tool_name = forms.ChoiceField()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(field := self.fields.get("tool_name"), forms.ChoiceField):
            field.choices = [(tool.name, tool.name) for tool in selectors.offered_tools()]


class DefaultPolicyAdmin(EditedAdmin):
    """Admin pages of the one row of default limits, which tools inherit."""

    form = LimitsForm
    fields = (*services.DEFAULT_FIELDS, "why")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return not DefaultPolicy.objects.exists()

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001
        values = {name: form.cleaned_data[name] for name in form.changed_data if name != "why"}
        reason = form.cleaned_data["why"]
        services.save_default_policy(values=values, by=editor_of(request), reason=reason)
        obj.pk = 1


class ToolPolicyAdmin(EditedAdmin):
    """Admin pages of the limits of individual tools."""

    form = ToolLimitsForm
    list_display = ("tool_name", *services.TOOL_FIELDS)
    fields = ("tool_name", *services.TOOL_FIELDS, "why")
    actions = None

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Make the tool of an existing row read-only."""
        return ("tool_name",) if obj else ()

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001
        data = form.cleaned_data
        values = {name: data[name] for name in form.changed_data if name in services.TOOL_FIELDS}
        name, by = obj.tool_name, editor_of(request)
        services.save_tool_policy(tool_name=name, values=values, by=by, reason=data["why"])
        obj.pk = ToolPolicy.objects.filter(tool_name=name).values_list("pk", flat=True).first()

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        services.delete_tool_policy(tool_name=obj.tool_name, by=editor_of(request))


class McpServerAdmin(EditedAdmin):
    """Admin pages of the MCP servers. Only superusers may edit a row, because it names programs that run on this
    machine and environment variables that they receive.
    """

    list_display: Any = ("name", "enabled", "transport", "last_ok_at", "last_error_at")
    fields: ClassVar[Any] = edits.FIELDS

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_superuser)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_superuser)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_superuser)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001
        names = set(form.changed_data).intersection(edits.FIELDS)
        values = {name: form.cleaned_data[name] for name in names}
        obj.pk = edits.save_server(pk=obj.pk, values=values, by=editor_of(request)).pk

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        edits.delete_server(obj, by=editor_of(request))

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        for server in queryset:
            self.delete_model(request, server)


class ToolCallAdmin(HistoryAdmin):
    """Read-only admin pages of all tool calls."""

    content_fields = (
        "input", "result", "detail", "late_text", "progress", "images",
    )  # fmt: skip
    list_display = ("requested_at", "tool_name", "status", "duration_ms", "group")
    list_filter = ("status",)
    search_fields = ("=group", "=scope", "=call_id", "=tool_name")


class ApprovalAdmin(HistoryAdmin):
    """Read-only admin pages of all questions to people."""

    content_fields = ("input", "host", "reason")
    list_display = ("requested_at", "tool_name", "decision", "by_name")
    list_filter = ("decision",)


class PolicyChangeAdmin(HistoryAdmin):
    """Read-only admin pages of all edits of limits."""

    list_display = ("at", "tool_name", "action", "summary", "by_name", "reason")


class McpServerChangeAdmin(HistoryAdmin):
    """Read-only admin pages of all edits of MCP servers. Only superusers may see them, because they show commands."""

    list_display = ("at", "server", "action", "summary", "by_name")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_superuser)


def editor_of(request: HttpRequest) -> AbstractBaseUser:
    return cast(AbstractBaseUser, request.user)  # the admin lets only users in


admin.site.register(Approval, ApprovalAdmin)
admin.site.register(DefaultPolicy, DefaultPolicyAdmin)
admin.site.register(McpServer, McpServerAdmin)
admin.site.register(McpServerChange, McpServerChangeAdmin)
admin.site.register(PolicyChange, PolicyChangeAdmin)
admin.site.register(ToolCall, ToolCallAdmin)
admin.site.register(ToolPolicy, ToolPolicyAdmin)
