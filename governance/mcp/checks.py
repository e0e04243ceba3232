"""The system check of the MCP servers: rows of servers are of no use without the SDK."""

from typing import Any

from django.apps import apps
from django.core import checks
from django.db import DatabaseError

from governance.mcp.tools import is_installed


def check_sdk(*, databases: Any = None, **_: Any) -> list[checks.CheckMessage]:
    """The SDK is installed where servers are in use. Runs where the database may be asked, as in `migrate`."""
    if not databases or is_installed():
        return []
    try:
        names = sorted(
            apps.get_model("governance.McpServer")
            .objects.filter(enabled=True)
            .values_list("name", flat=True)
        )
    except DatabaseError:  # before the first migration
        return []
    if not names:
        return []
    return [
        checks.Warning(
            f"MCP servers are in use ({', '.join(names)}), but the package `mcp` is not installed: their tools are"
            " not offered.",
            hint="Install django-turnkeeper[mcp], or switch the servers off in the admin.",
            id="governance.W020",
        )
    ]
