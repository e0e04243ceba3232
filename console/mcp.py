"""Admin pages for the MCP servers: configuration, offered tools and last problem.

A row names programs to run and variables to send, so only superusers may edit it.
"""

from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.template.defaultfilters import linebreaksbr
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.formats import NOTHING, Column
from console.lists import EditedList, section
from governance.admin import McpServerAdmin as PlainServerAdmin
from governance.admin import editor_of
from governance.form_fields import LinesField, VersionedForm
from governance.mcp_servers import edits
from governance.models import McpServer, McpServerChange


class HeadersField(LinesField):
    """A form field for headers and the variables that hold their values, one pair per line."""

    default_error_messages = {
        "pair": gettext_lazy("“%(line)s” is not of the form “Header: VARIABLE”.")
    }

    def prepare_value(self, value: Any) -> Any:
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
        """Return whether the pairs have changed; spaces around them do not matter."""
        try:
            return bool(self.to_python(data) != (initial or {}))
        except ValidationError:
            return True


def _help(name: str) -> Any:
    return McpServer._meta.get_field(name).help_text  # type: ignore[union-attr]  # never a relation


class McpServerForm(VersionedForm):
    """The form of one server, with units for durations and one list item per line."""

    headers = HeadersField(label=gettext_lazy("Headers"), help_text=_help("headers"))
    environment = LinesField(label=gettext_lazy("Environment"), help_text=_help("environment"))
    allowed_tools = LinesField(
        label=gettext_lazy("Allowed tools"), help_text=_help("allowed_tools")
    )
    read_only_tools = LinesField(
        label=gettext_lazy("Trusted read-only tools"), help_text=_help("read_only_tools")
    )

    class Meta:
        model = McpServer
        fields = edits.FIELDS
        widgets = {
            "command": forms.Textarea(attrs={"rows": 2}),
            "url": forms.URLInput(attrs={"size": 60}),
        }

    def clean(self) -> dict[str, Any] | None:
        """Refuse an edit based on an outdated revision; warn once about a limit below one second."""
        cleaned = super().clean()
        self.refuse_stale(McpServerChange.objects.filter(server=self.instance.name))
        self.warn()
        return cleaned


def _health(server: McpServer) -> str:
    """Describe the result of the last connection."""
    if server.last_ok_at is None and not server.last_error:
        return _("not used yet; it is connected when a turn starts")
    if server.is_unwell:
        return _("unhealthy: %(problem)s") % {"problem": server.last_error}
    return (
        _("healthy; %(problem)s") % {"problem": server.last_error}
        if server.last_error
        else _("healthy")
    )


def _offered(server: McpServer) -> SafeString | str:
    if not server.tools_found:
        return NOTHING
    doubted = server.doubted_tools
    rows = format_html_join(
        "",
        "<li><code>{}</code> {} {}</li>",
        (
            (tool["name"], tool["text"], _mark(tool, is_doubted=tool["name"] in doubted))
            for tool in server.tools_found
        ),
    )
    return format_html('<ul class="governance-offered">{}</ul>', rows)


def _mark(tool: dict[str, Any], *, is_doubted: bool) -> SafeString:
    if not tool.get("read_only"):
        return SafeString("")
    words = (
        _("read-only according to the server; approval required") if is_doubted else _("read-only")
    )
    return format_html("<em>({})</em>", words)


class McpServerAdmin(EditedList, PlainServerAdmin):
    """The admin pages of the servers. Saved rows apply in this process immediately, and in others within seconds."""

    form = McpServerForm
    fields = None
    list_display = [
        "name", "enabled", "transport", "timeout_ms", "tool_count", "weight", "doubted", "health", "last_ok_at",
    ]  # fmt: skip
    list_filter = ["enabled", "transport"]
    search_fields = ["name", "command", "url"]
    readonly_fields = ["health", "last_ok_at", "last_error_at", "offered", "instructions"]
    fieldsets = [
        section(None, "name", "enabled", "transport"),
        section(gettext_lazy("A command on this server"), "command", "environment"),
        section(gettext_lazy("An address"), "url", "headers", "allow_private"),
        section(
            gettext_lazy("Tools"),
            "allowed_tools", "trusts_read_only", "read_only_tools", "uses_instructions", "asks_people", "timeout_ms", "max_running",
            "prefix",
        ),
        section(
            gettext_lazy("Health"),
            "health", "last_ok_at", "last_error_at", "offered", "instructions",
        ),
    ]  # fmt: skip

    doubted = Column(  # tools whose read-only mark is not trusted
        gettext_lazy("read-only mark not trusted"),
        lambda server: ", ".join(server.doubted_tools) or NOTHING,
    )
    health = Column(gettext_lazy("health"), _health)
    tool_count = Column(gettext_lazy("tools"), lambda server: len(server.tools_found))
    weight = Column(  # in each request of an agent that has all of them
        gettext_lazy("tokens (about)"),
        lambda server: sum(tool.get("tokens", 0) for tool in server.tools_found),
    )
    instructions = Column(  # its text, as agents read it
        gettext_lazy("its instructions"),
        lambda server: (
            format_html('<div class="readonly">{}</div>', linebreaksbr(server.instructions_found))
            if server.instructions_found
            else NOTHING
        ),
    )
    offered = Column(gettext_lazy("offered tools"), _offered)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """For editors, add the hidden fields that detect conflicts and remember warnings."""
        (title, options), *others = super().get_fieldsets(request, obj)
        hidden_fields = ["seen", "accepted"] if self.has_change_permission(request, obj) else []
        return [(title, {**options, "fields": [*options["fields"], *hidden_fields]}), *others]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001
        """Save the edit, and report which tools run without approval because the server calls them read-only."""
        values = {
            name: form.cleaned_data[name] for name in form.changed_data if name in edits.FIELDS
        }
        server = edits.save_server(
            pk=obj.pk, values=values, by=editor_of(request), version=form.loaded_updated_at
        )
        obj.pk = server.pk
        if believed := server.read_only_tools:
            text = _("These tools of “%(server)s” run without approval: %(tools)s.")
            words = {"server": obj.name, "tools": ", ".join(believed)}
            self.message_user(request, text % words, messages.INFO)
        if doubted := server.doubted_tools:
            text = _(
                "“%(server)s” marks these tools as read-only, but their calls still need approval: %(tools)s."
            )
            words = {"server": obj.name, "tools": ", ".join(doubted)}
            self.message_user(request, text % words, messages.WARNING)
