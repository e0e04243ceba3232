"""Edits of MCP servers: saved together with an audit of what was before and what is now."""

from django.db import transaction

from governance import audit
from governance.audit import Changes, Editor
from governance.models import McpServer, McpServerChange

FIELDS = (
    "name",
    "enabled",
    "transport",
    "command",
    "environment",
    "url",
    "headers",
    "allow_private",
    "allowed_tools",
    "trusts_read_only",
    "read_only_tools",
    "timeout_ms",
    "max_running",
    "prefix",
)
_IDENTITY = ("transport", "command", "url")


def save_server(server: McpServer, *, by: Editor) -> McpServerChange | None:
    """Add or change the server. Return the audit entry, or None if nothing changed."""
    with transaction.atomic():
        before = McpServer.objects.select_for_update().filter(pk=server.pk).first()
        _settle_trust(server, before)
        changes = _changes(before or McpServer(), server)
        if before is None:
            server.save()
        elif changes:
            server.save(update_fields=FIELDS)  # its health is written by others meanwhile
        else:
            return None
        return _record(server, "change" if before else "add", changes, by=by)


def delete_server(server: McpServer, *, by: Editor) -> McpServerChange:
    """Delete the server, and keep its values in the audit."""
    with transaction.atomic():
        change = _record(server, "delete", _changes(server, McpServer()), by=by)
        server.delete()
        return change


def _settle_trust(server: McpServer, before: McpServer | None) -> None:
    """Store the marks that the editor has seen in place of a blank list; no other edit extends it."""
    if not server.trusts_read_only:
        server.read_only_tools = None
        return
    if server.read_only_tools:
        return
    is_same = before is not None and all(
        getattr(before, name) == getattr(server, name) for name in _IDENTITY
    )
    if before is not None and is_same and before.trusts_read_only and not before.read_only_tools:
        server.read_only_tools = before.read_only_tools
    else:
        marked = [tool["name"] for tool in server.tools_found if tool.get("read_only")]
        server.read_only_tools = marked if is_same and server.tools_found else None


def _changes(before: McpServer, after: McpServer) -> Changes:
    pairs = {name: [getattr(before, name), getattr(after, name)] for name in FIELDS}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _record(server: McpServer, action: str, changes: Changes, *, by: Editor) -> McpServerChange:
    return audit.record(
        McpServerChange, server, action=action, changes=changes, by=by, server=server.name
    )
