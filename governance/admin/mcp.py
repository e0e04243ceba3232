"""Admin of the MCP servers: what they are, which tools they offer, and what was wrong last (G2).

A row names programs that run here and variables that are sent away, so only superusers may edit it.
"""

from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance.admin.formatting import NOTHING
from governance.admin.mixins import AuditedAdmin, DurationsAdmin, TimesAdmin
from governance.admin.readonly import ReadOnlyAdmin
from governance.admin.time_filter import time_filter
from governance.form_fields import LinesField, VersionedForm
from governance.mcp_servers import edits
from governance.models import McpServer, McpServerChange

if TYPE_CHECKING:
    McpServerModelAdmin = admin.ModelAdmin[McpServer]
else:
    McpServerModelAdmin = admin.ModelAdmin


class HeadersField(LinesField):
    """Headers and the variables that hold their values, one pair in each line."""

    default_error_messages = {"pair": gettext_lazy("“%(line)s” is not “Header: VARIABLE”.")}

    def prepare_value(self, value: Any) -> Any:
        """Show stored pairs in lines."""
        if isinstance(value, dict):
            return "\n".join(f"{header}: {variable}" for header, variable in value.items())
        return value

    def to_python(self, value: Any) -> Any:
        pairs = {}
        for line in super().to_python(value):
            header, colon, variable = line.partition(":")
            if not colon:
                raise ValidationError(
                    self.error_messages["pair"], code="pair", params={"line": line[:60]}
                )
            pairs[header.strip()] = variable.strip()
        return pairs

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare pairs, not their spelling."""
        try:
            return bool(self.to_python(data) != (initial or {}))
        except ValidationError:
            return True


def _help(name: str) -> Any:
    return McpServer._meta.get_field(name).help_text  # type: ignore[union-attr]  # never a relation


class McpServerForm(VersionedForm):
    """One server; durations with their unit, lists in lines."""

    headers = HeadersField(label=gettext_lazy("Headers"), help_text=_help("headers"))
    environment = LinesField(label=gettext_lazy("Environment"), help_text=_help("environment"))
    allowed_tools = LinesField(
        label=gettext_lazy("Allowed tools"), help_text=_help("allowed_tools")
    )
    read_only_tools = LinesField(
        label=gettext_lazy("Trusted to only read"), help_text=_help("read_only_tools")
    )

    class Meta:
        model = McpServer
        fields = edits.FIELDS
        widgets = {
            "command": forms.Textarea(attrs={"rows": 2}),
            "url": forms.URLInput(attrs={"size": 60}),
        }

    def clean(self) -> dict[str, Any] | None:
        """Refuse an edit of what has changed meanwhile; warn once of a limit below a second."""
        cleaned = super().clean()
        self.refuse_stale(McpServerChange.objects.filter(server=self.instance.name))
        self.warn()
        return cleaned


@admin.register(McpServer)
class McpServerAdmin(
    AuditedAdmin[McpServer], TimesAdmin[McpServer], DurationsAdmin[McpServer], McpServerModelAdmin
):
    """The servers, and how they do. Saved rows are in force at once here, in other processes within seconds."""

    form = McpServerForm
    list_display = [
        "name",
        "enabled",
        "transport",
        "timeout_ms",
        "tool_count",
        "weight",
        "doubted",
        "health",
        "last_ok_at",
    ]
    list_filter = ["enabled", "transport"]
    search_fields = ["name", "command", "url"]
    readonly_fields = ["health", "last_ok_at", "last_error_at", "offered"]
    fieldsets = [
        (None, {"fields": ["name", "enabled", "transport"]}),
        (gettext_lazy("A command on this machine"), {"fields": ["command", "environment"]}),
        (gettext_lazy("An address"), {"fields": ["url", "headers", "allow_private"]}),
        (
            gettext_lazy("Its tools"),
            {
                "fields": [
                    "allowed_tools",
                    "trusts_read_only",
                    "read_only_tools",
                    "timeout_ms",
                    "max_running",
                    "prefix",
                ]
            },
        ),
        (
            gettext_lazy("How it does"),
            {"fields": ["health", "last_ok_at", "last_error_at", "offered"]},
        ),
    ]

    def get_fieldsets(self, request: HttpRequest, obj: McpServer | None = None) -> Any:
        """Add what tells two editors apart, and what the form keeps of a warning, for those who may edit."""
        (title, options), *others = super().get_fieldsets(request, obj)
        kept = ["seen", "accepted"] if self.has_change_permission(request, obj) else []
        return [(title, {**options, "fields": [*options["fields"], *kept]}), *others]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Only superusers name programs and variables."""
        return bool(request.user.is_superuser)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Only superusers name programs and variables."""
        return bool(request.user.is_superuser)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Only superusers take a server away."""
        return bool(request.user.is_superuser)

    def save_model(self, request: HttpRequest, obj: McpServer, form: Any, change: bool) -> None:  # noqa: FBT001
        """Save what was edited, and say for which tools the server's word counts, and for which it does not."""
        values = {
            name: form.cleaned_data[name] for name in form.changed_data if name in edits.FIELDS
        }
        stored = edits.save_server(
            pk=obj.pk, values=values, by=cast(Any, request.user), seen=form.loaded_updated_at
        )
        obj.pk = stored.pk
        if believed := stored.read_only_tools:
            text = _("Nobody is asked about these tools of “%(server)s”: %(tools)s.")
            words = {"server": obj.name, "tools": ", ".join(believed)}
            self.message_user(request, text % words, messages.INFO)
        if doubted := stored.doubted_tools:
            text = _(
                "“%(server)s” says of these tools that they only read, and people are asked about them: %(tools)s."
            )
            words = {"server": obj.name, "tools": ", ".join(doubted)}
            self.message_user(request, text % words, messages.WARNING)

    def delete_model(self, request: HttpRequest, obj: McpServer) -> None:
        edits.delete_server(obj, by=cast(Any, request.user))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[McpServer]) -> None:
        for server in queryset:
            edits.delete_server(server, by=cast(Any, request.user))

    @admin.display(description=gettext_lazy("asked about, though “read-only”"))
    def doubted(self, obj: McpServer) -> str:
        """The tools whose mark does not count."""
        return ", ".join(obj.doubted_tools) or NOTHING

    @admin.display(description=gettext_lazy("health"))
    def health(self, obj: McpServer) -> str:
        """How the server did when it was needed last."""
        if obj.last_ok_at is None and not obj.last_error:
            return _("not needed yet: it is connected when a turn begins")
        if obj.is_unwell:
            return _("not well: %(problem)s") % {"problem": obj.last_error}
        return _("well; %(problem)s") % {"problem": obj.last_error} if obj.last_error else _("well")

    @admin.display(description=gettext_lazy("tools"))
    def tool_count(self, obj: McpServer) -> int:
        """How many tools the server has named."""
        return len(obj.tools_found)

    @admin.display(description=gettext_lazy("tokens (about)"))
    def weight(self, obj: McpServer) -> int:
        """About how many tokens its tools take of each request of an agent that has them all."""
        return sum(tool.get("tokens", 0) for tool in obj.tools_found)

    @admin.display(description=gettext_lazy("tools it offers"))
    def offered(self, obj: McpServer) -> SafeString:
        if not obj.tools_found:
            return format_html("{}", NOTHING)
        doubted = obj.doubted_tools
        rows = format_html_join(
            "",
            "<li><code>{}</code> {} {}</li>",
            (
                (tool["name"], tool["text"], _mark(tool, is_doubted=tool["name"] in doubted))
                for tool in obj.tools_found
            ),
        )
        return format_html("<ul>{}</ul>", rows)


def _mark(tool: dict[str, Any], *, is_doubted: bool) -> SafeString:
    if not tool.get("read_only"):
        return SafeString("")
    words = _("says that it only reads; asked about") if is_doubted else _("only reads")
    return format_html("<em>({})</em>", words)


@admin.register(McpServerChange)
class McpServerChangeAdmin(ReadOnlyAdmin):
    """Every edit of an MCP server, newest first."""

    list_display = ["at", "server", "action", "summary", "by_name"]
    list_filter = [time_filter("at"), "action"]
    search_fields = ["server", "by_name"]
    fields = ["at", "server", "action", "summary", "by_name"]
    readonly_fields = ["summary"]

    @admin.display(description=gettext_lazy("old → new"))
    def summary(self, obj: McpServerChange) -> str:
        return obj.summary

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Hide the history from people who may not see servers: commands are confidential."""
        return bool(request.user.is_superuser)
