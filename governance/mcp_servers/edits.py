"""Saves and deletes MCP servers, and records the old and new values in the audit."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from governance import audit
from governance.audit import Changes, Editor
from governance.db import atomic
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
    "uses_instructions",
    "asks_people",
    "timeout_ms",
    "max_running",
    "prefix",
)
_IDENTITY = ("transport", "command", "url")


def save_server(
    *, pk: int | None, values: Mapping[str, Any], by: Editor, version: datetime | None = None
) -> McpServer:
    """Add or change a server, and return the stored row. Fields that are missing in `values` keep their values.

    `version` is the value of `updated_at` that the editor has seen.

    Raises:
        EditConflict: another person has edited the server since `version`.
        django.core.exceptions.ValidationError: a value is invalid; the messages are grouped by field.
    """
    with atomic():
        locked = McpServer.objects.select_for_update()
        old_row = None if pk is None else locked.filter(pk=pk).first()
        server = old_row or McpServer()
        settled = {**values, "read_only_tools": _settled_trust(server, values)}
        changes = audit.edit(server, settled, fields=FIELDS, version=version)
        if old_row is not None and not changes:
            return server
        server.full_clean()
        # Only the changed columns, because other processes update its health concurrently.
        server.save(update_fields=[*changes, "updated_at"] if old_row else None)
        _record(server, "change" if old_row else "add", changes, by=by)
        return server


def delete_server(server: McpServer, *, by: Editor) -> McpServerChange:
    """Delete the server, and record its values in the audit."""
    blank = McpServer()
    pairs = {name: [getattr(server, name), getattr(blank, name)] for name in FIELDS}
    changes = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    with atomic():
        change = _record(server, "delete", changes, by=by)
        server.delete()
        return change


def _settled_trust(server: McpServer, values: Mapping[str, Any]) -> list[str] | None:
    """Return the trusted tools to store.

    A blank list is replaced with the tools that the server marks as read-only now, so that tools that it marks later
    are not trusted. No other edit extends the list.
    """

    def edited(name: str) -> Any:
        return values.get(name, getattr(server, name))

    if not edited("trusts_read_only"):
        return None
    if names := edited("read_only_tools"):
        return list(names)
    is_same = not server._state.adding and all(
        edited(name) == getattr(server, name) for name in _IDENTITY
    )
    if is_same and server.trusts_read_only and not server.read_only_tools:
        unchanged: list[str] | None = server.read_only_tools
        return unchanged
    marked = [tool["name"] for tool in server.tools_found if tool.get("read_only")]
    return marked if is_same and server.tools_found else None


def _record(server: McpServer, action: str, changes: Changes, *, by: Editor) -> McpServerChange:
    return audit.record(
        McpServerChange, server, action=action, changes=changes, by=by, server=server.name
    )
