"""Admin pages for the audit of edits (limits, agents, servers, policies), deletions and exports."""

from typing import Any, ClassVar

from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.filters import time_filter
from console.formats import NOTHING, Column, format_time
from console.links import Link, address_of_tool, anchor, may_open, reader_of
from console.lists import HistoryList
from governance.models import Export, PolicyChange


class ChangeList(HistoryList):
    """The base of the admin lists of edits, one for each kind of row; the newest edit is first."""

    list_display: Any = ("at", "action", "summary", "by_name")
    fields: ClassVar[Any] = list_display
    list_filter = [time_filter("at"), "action"]
    readonly_fields = ["at", "summary"]

    summary = Column(gettext_lazy("old → new"), lambda change: change.summary)


def _limits_of(change: PolicyChange) -> SafeString | str:
    """Return a link to the tool's page, or a label for the default limits."""
    if not change.tool_name:
        return _("all tools (default limits)")
    reader, name = reader_of(change), change.tool_name
    may_see = may_open(reader, "governance_toolpolicy")
    return anchor(Link(name, address_of_tool(reader, name) if may_see else ""))


class PolicyChangeAdmin(ChangeList):
    """The admin list of every edit of a limit."""

    list_display = ["at", "what", "action", "summary", "by_name", "why", "version"]
    search_fields = ["tool_name", "by_name"]
    search_help_text = gettext_lazy("Tool, or who made the change")
    fields = ["at", "what", "action", "summary", "why", "by_name", "version"]
    readonly_fields = ["at", "what", "summary", "why"]

    what = Column(gettext_lazy("limits of"), _limits_of, ordering="tool_name")
    why = Column(gettext_lazy("reason"), lambda change: change.why or NOTHING)


class McpServerChangeAdmin(ChangeList):
    list_display = fields = ("at", "server", "action", "summary", "by_name")
    search_fields = ["server", "by_name"]

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Hide the history from users who may not see servers, because commands are confidential."""
        return bool(request.user.is_superuser)


class AgentChangeAdmin(ChangeList):
    list_display = fields = ("at", "agent_name", "action", "summary", "by_name")
    search_fields = ["agent_name", "by_name"]
    search_help_text = gettext_lazy("Agent, or who made the change")

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        may_see_agents = request.user.has_perm("turns.view_agent")
        return may_see_agents or super().has_view_permission(request, obj)


class DisconnectPolicyChangeAdmin(ChangeList):
    list_filter = [time_filter("at")]
    search_fields = ["by_name"]

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("turns.view_disconnectpolicy")


class ConversationChangeAdmin(ChangeList):
    """The admin list of every deletion of a conversation."""

    list_display = fields = ("at", "conversation_id", "by_name")
    list_filter = [time_filter("at")]
    search_fields = ["by_name"]
    search_help_text = gettext_lazy("The person who deleted it")


def _chosen(export: Export) -> str:
    """Return the search and the filters of an export. Only users who may see content see the search terms."""
    terms = export.terms if reader_of(export).has_perm("governance.view_content") else {}
    parameters = (export.filters | terms).items()
    return ", ".join(f"{name}={'|'.join(values)}" for name, values in parameters) or NOTHING


def _finished(export: Export) -> SafeString | str:
    at = export.finished_at
    return format_time(at) if at else _("not finished")


class ExportAdmin(HistoryList):
    """The admin list of every export, newest first."""

    content_fields = ("terms",)
    list_display = fields = (
        "at", "what", "chosen", "format", "has_content", "rows", "finished", "by_name",
    )  # fmt: skip
    list_filter = [time_filter("at"), "format", "has_content"]
    search_fields = ["source", "by_name"]
    search_help_text = gettext_lazy("List (such as “ToolCall”), or the person who exported it")
    readonly_fields = ["at", "what", "chosen", "finished"]

    what = Column(gettext_lazy("list"), lambda export: export.source_name, ordering="source")
    chosen = Column(gettext_lazy("filters"), _chosen)
    finished = Column(gettext_lazy("finished at"), _finished, ordering="finished_at")
