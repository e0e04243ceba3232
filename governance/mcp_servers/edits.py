"""Edits of MCP servers: saved together with an audit of what was before and what is now."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

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


def save_server(
    *, pk: int | None, values: Mapping[str, Any], by: Editor, seen: datetime | None = None
) -> McpServer:
    """Add or change a server; what `values` leave out stays as it is. Return the server as it is stored.

    `seen` is the `updated_at` that the editor has seen.

    Raises:
        django.core.exceptions.ValidationError: a value makes no sense, or somebody else has edited it; words by field.
    """
    with transaction.atomic():
        locked = McpServer.objects.select_for_update()
        stored = None if pk is None else locked.filter(pk=pk).first()
        server = stored or McpServer()
        settled = {**values, "read_only_tools": _settled_trust(server, values)}
        changes = audit.edit(server, settled, fields=FIELDS, seen=seen)
        if stored is not None and not changes:
            return server
        server.full_clean()
        # Its health is written by others meanwhile.
        server.save(update_fields=[*changes, "updated_at"] if stored else None)
        _record(server, "change" if stored else "add", changes, by=by)
        return server


def delete_server(server: McpServer, *, by: Editor) -> McpServerChange:
    """Delete the server, and keep its values in the audit."""
    nothing = McpServer()
    pairs = {name: [getattr(server, name), getattr(nothing, name)] for name in FIELDS}
    changes = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    with transaction.atomic():
        change = _record(server, "delete", changes, by=by)
        server.delete()
        return change


def _settled_trust(server: McpServer, values: Mapping[str, Any]) -> list[str] | None:
    """Return the marks that the editor has seen in place of a blank list; no other edit extends it."""

    def edited(name: str) -> Any:
        return values.get(name, getattr(server, name))

    if not edited("trusts_read_only"):
        return None
    if named := edited("read_only_tools"):
        return list(named)
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
