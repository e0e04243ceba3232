"""System checks of every setting: an id that is never reused, the problem, and a hint what to write instead."""

from collections.abc import Iterable, Iterator
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.db import DatabaseError

from governance import setting_rules, toolbox_checks
from governance.conf import EVERY_OTHER, app_settings
from governance.core.policy import BUILT_IN_TIMEOUT
from governance.core.registry import registry
from governance.mcp import checks as mcp_checks

_INSTANT = 1.0  # a cancelled turn is over within one second (C1)


def check_values(**_: Any) -> list[checks.CheckMessage]:
    """Every setting has the right type and a sensible value."""
    return setting_rules.check_values(app_settings)


def check_names(**_: Any) -> list[checks.CheckMessage]:
    """Warn of unknown settings: Django would ignore them silently."""
    return setting_rules.check_names(app_settings, check_id="governance.W001")


def check_tool_names(**_: Any) -> list[checks.CheckMessage]:
    """No tool that exists is misspelled where a setting is about tools: what is set would not count for it."""
    asked = [name for name, rule in app_settings.valid("APPROVAL").items() if rule != "never"]
    return [
        *_not_installed("TOOL_TIMEOUTS", app_settings.valid("TOOL_TIMEOUTS"), "governance.W002"),
        *_not_installed("APPROVAL", {*asked} - {EVERY_OTHER}, "governance.W021"),
        *_not_installed(
            "ERROR_TEXT", {*app_settings.valid("ERROR_TEXT")} - {EVERY_OTHER}, "governance.W045"
        ),
    ]


def _not_installed(setting: str, names: Iterable[str], check_id: str) -> list[checks.CheckMessage]:
    return [
        checks.Warning(
            f"GOVERNANCE_{setting} names the tool {name!r}, which is not installed.",
            hint="Correct the name or remove it, unless it is a tool of an MCP server, which is not known yet."
            f" Installed: {', '.join(tool.name for tool in registry) or 'none'}.",
            id=check_id,
        )
        for name in sorted(names)
        if name not in registry
    ]


def check_tools(**_: Any) -> list[checks.CheckMessage]:
    """No tool declares an idle limit that its total limit, the declared one or the site's, makes unreachable."""
    timeouts = app_settings.valid("TOOL_TIMEOUTS")
    totals = {tool: timeouts.get(tool.name, tool.timeout) for tool in registry}
    return [
        checks.Warning(
            f"The tool {tool.name!r} declares an idle limit of {tool.idle_timeout:g} s above its total limit"
            f" of {total:g} s: it would never be reached.",
            hint="Let its idle_timeout be below its timeout, and below its limit in GOVERNANCE_TOOL_TIMEOUTS.",
            id="governance.W003",
        )
        for tool, total in totals.items()
        if total and tool.idle_timeout and tool.idle_timeout > total
    ]


def check_shadowed(*, databases: Any = None, **_: Any) -> list[checks.CheckMessage]:
    """Tell which limits of the settings are without effect. Runs where the database may be asked, as in `migrate`."""
    timeouts = app_settings.valid("TOOL_TIMEOUTS")
    if not databases:
        return []
    rows = apps.get_model("governance.ToolPolicy").objects.exclude(timeout_ms=None)
    counting = rows.filter(is_active=True, tool_name__in=list(timeouts))
    try:
        names = sorted(counting.values_list("tool_name", flat=True))
    except DatabaseError:  # before the first migration
        return []
    return [
        checks.Info(
            f"GOVERNANCE_TOOL_TIMEOUTS sets a limit for the tool {name!r}, but an administrator has set another one,"
            " which is stronger.",
            hint="Remove one of them: Tool limits in the admin has the administrator's.",
            id="governance.I001",
        )
        for name in names
    ]


def check_together(**_: Any) -> list[checks.CheckMessage]:
    """The limits fit each other. Values that are wrong in themselves are left to `check_values`."""
    return [] if check_values() else [*_check_grace(), *_check_default(), *_check_slots()]


def _check_grace() -> Iterator[checks.CheckMessage]:
    grace = app_settings.CANCEL_GRACE + app_settings.KILL_GRACE
    if grace > _INSTANT + 1e-9:
        yield checks.Warning(
            f"GOVERNANCE_CANCEL_GRACE and GOVERNANCE_KILL_GRACE add up to {grace:g} s: a cancelled turn"
            " may take longer than a second to end.",
            hint="Let them add up to 1 second or less.",
            id="governance.W004",
        )


def _check_default() -> Iterator[checks.CheckMessage]:
    default = (
        BUILT_IN_TIMEOUT if app_settings.DEFAULT_TIMEOUT is None else app_settings.DEFAULT_TIMEOUT
    )
    if 0 < app_settings.TIMEOUT_CEILING < default:
        yield checks.Warning(
            f"The default limit of {default:g} s is above GOVERNANCE_TIMEOUT_CEILING.",
            hint="Raise the ceiling, or lower GOVERNANCE_DEFAULT_TIMEOUT.",
            id="governance.W005",
        )


def _check_slots() -> Iterator[checks.CheckMessage]:
    if app_settings.MAX_RUNNING_PER_SCOPE > app_settings.MAX_RUNNING:
        yield checks.Warning(
            "GOVERNANCE_MAX_RUNNING_PER_SCOPE is above GOVERNANCE_MAX_RUNNING: one conversation can take"
            " every slot of the process.",
            hint="Set it well below GOVERNANCE_MAX_RUNNING.",
            id="governance.W006",
        )


def check_exec(**_: Any) -> list[checks.CheckMessage]:
    """Check that commands of chat users were enabled on purpose, and have a directory."""
    found: list[checks.CheckMessage] = []
    if app_settings.EXEC_ENABLED and not str(app_settings.WORKSPACE_ROOT):
        found.append(
            checks.Error(
                "GOVERNANCE_EXEC_ENABLED is on, but GOVERNANCE_WORKSPACE_ROOT is not set: commands would have no"
                " directory of their own.",
                hint="Set GOVERNANCE_WORKSPACE_ROOT to an absolute path, or switch exec off.",
                id="governance.E021",
            )
        )
    if app_settings.EXEC_ENABLED and not settings.DEBUG:
        found.append(
            checks.Warning(
                "GOVERNANCE_EXEC_ENABLED is on while DEBUG is off: everybody who may chat can run commands on this"
                " machine.",
                hint="Switch it off, or let commands run in a sandbox (GOVERNANCE_EXEC_SANDBOX) on a machine that may"
                " be lost; then silence this.",
                id="governance.W007",
            )
        )
    return found


def check_private_addresses(**_: Any) -> list[checks.CheckMessage]:
    """Check that the tools were let into the server's own network on purpose."""
    if not app_settings.WEB_ALLOW_PRIVATE or settings.DEBUG:
        return []
    return [
        checks.Warning(
            "GOVERNANCE_WEB_ALLOW_PRIVATE is on while DEBUG is off: web_fetch can read what only this machine's"
            " network may see.",
            hint="Switch it off unless everybody who may chat may see that network; then silence this.",
            id="governance.W008",
        )
    ]


def register_all() -> None:
    for check in (
        check_values,
        check_names,
        check_tool_names,
        check_tools,
        check_together,
        check_exec,
        check_private_addresses,
        toolbox_checks.check_sandbox,
        toolbox_checks.check_search,
        toolbox_checks.check_search_provider,
    ):
        checks.register(check, "governance")
    checks.register(mcp_checks.check_sdk, checks.Tags.database)
    checks.register(check_shadowed, checks.Tags.database)
