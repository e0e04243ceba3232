"""System checks for MCP servers: enabled servers need the SDK, and may name only permitted variables."""

from typing import Any

from django.apps import apps
from django.core import checks
from django.db import DatabaseError

from governance.mcp.tools import is_installed
from governance.mcp.validation import unlisted


def check_sdk(*, databases: Any = None, **_: Any) -> list[checks.CheckMessage]:
    """Check that the SDK is installed if servers are enabled. This runs only with database access, as in `migrate`."""
    if not databases or is_installed():
        return []
    names = [name for name, _environment, _headers in _rows()]
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


def check_variables(*, databases: Any = None, **_: Any) -> list[checks.CheckMessage]:
    """Check that the enabled servers name only permitted variables, because a server that names another variable is not
    connected. This runs only with database access, as in `migrate`.
    """
    if not databases:
        return []
    return [
        checks.Warning(
            f"The MCP server {name!r} names variables that it may not be given, so it is not connected:"
            f" {', '.join(refused)}.",
            hint="Add them to GOVERNANCE_MCP_VARIABLES if the server may have them, or change its row in the admin.",
            id="governance.W022",
        )
        for name, environment, headers in _rows()
        if (refused := _refused(environment, headers))
    ]


def _refused(environment: Any, headers: Any) -> list[str]:
    try:
        return unlisted([*environment, *headers.values()])
    except (AttributeError, TypeError):  # saved without the model's validation
        return []


def _rows() -> list[tuple[str, Any, Any]]:
    """Return the name, the environment and the headers of each enabled server."""
    servers = apps.get_model("governance.McpServer").objects.filter(enabled=True).order_by("name")
    try:
        return list(servers.values_list("name", "environment", "headers"))
    except DatabaseError:  # before the first migration
        return []
