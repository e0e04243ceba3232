"""System checks of the settings. Each problem has a permanent id, a description and a hint."""

import shutil
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import packages_distributions
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_permission_codename
from django.core import checks
from django.db import DatabaseError, router
from django.db.models import Model

from governance import setting_rules
from governance.conf import EVERY_OTHER, app_settings, toolbox_settings
from governance.core.policy import BUILT_IN_TIMEOUT
from governance.core.registry import registry
from governance.mcp import checks as mcp_checks
from governance.toolbox.commands import SEARCH_PATH
from governance.toolbox.sandbox import Mode, Sandbox, find_gaps, find_sandbox
from governance.toolbox.settings import SandboxChoice, SearchEngine

OUR_PACKAGES = ("console", "governance", "turns", "webchat")
_INSTANT = 1.0  # a cancelled turn is over within one second (C1)


def check_sandbox(**_: Any) -> list[checks.CheckMessage]:
    """Check that the requested sandbox works. Invalid values are left to `check_values`."""
    if setting_rules.check_values(app_settings):
        return []
    choice = app_settings.EXEC_SANDBOX
    is_demanded = choice == SandboxChoice.BWRAP
    has_git = bool(app_settings.WORKSPACE_ROOT) and shutil.which("git", path=SEARCH_PATH)
    is_used = app_settings.EXEC_ENABLED or has_git
    if not is_demanded and not (is_used and choice == SandboxChoice.AUTO):
        return []
    sandbox = find_sandbox(toolbox_settings())
    if sandbox.mode is not Mode.NONE:
        return _weaknesses(sandbox)
    if not is_demanded and not app_settings.EXEC_ENABLED:
        return []  # the git tools are disabled and report the reason
    return [_missing(sandbox, is_demanded=is_demanded)]


def _missing(sandbox: Sandbox, *, is_demanded: bool) -> checks.CheckMessage:
    """Return the check message that reports that no sandbox works."""
    hint = (
        "Install bubblewrap (on Debian and Ubuntu: apt install bubblewrap), and allow the server's user to create"
        " namespaces: `bwrap --unshare-user --unshare-pid --ro-bind / / true` must succeed."
    )
    if is_demanded:
        return checks.Error(
            f'GOVERNANCE_EXEC_SANDBOX is "bwrap", but that does not work here: {sandbox.problem}. Commands are'
            " refused.",
            hint=hint,
            id="governance.E036",
        )
    return checks.Warning(
        f"Without a sandbox, commands run with all rights of the server's user: {sandbox.problem}.",
        hint=f'{hint} Or set GOVERNANCE_EXEC_SANDBOX to "none" to confirm that this is intended.',
        id="governance.W009",
    )


def _weaknesses(sandbox: Sandbox) -> list[checks.CheckMessage]:
    """Return warnings about a working sandbox."""
    warnings: list[checks.CheckMessage] = []
    if sandbox.is_roots:
        warnings.append(
            checks.Warning(
                "The server runs as root. A program that escapes from the sandbox through a flaw in it or in the kernel"
                " controls the whole machine.",
                hint="Run the server as its own user. Until then, commands need approval in spite of the sandbox, unless"
                ' GOVERNANCE_EXEC_SANDBOX is "bwrap".',
                id="governance.W030",
            )
        )
    if gaps := find_gaps(sandbox):
        warnings.append(
            checks.Warning(
                f"These limits of commands in the sandbox are set but have no effect: {', '.join(gaps)}.",
                hint="The kernel does not count root's processes, so run the server as its own user. The other limits need"
                " the program prlimit (util-linux), and bubblewrap 0.7 or newer for the size of /tmp.",
                id="governance.W031",
            )
        )
    return warnings


def check_search(**_: Any) -> list[checks.CheckMessage]:
    """Check that the search engine has an address, built in or configured."""
    if app_settings.SEARCH_PROVIDER != SearchEngine.SEARXNG or app_settings.SEARCH_URL:
        return []
    return [
        checks.Error(
            'GOVERNANCE_SEARCH_PROVIDER is "searxng", but GOVERNANCE_SEARCH_URL is not set.',
            hint="Set GOVERNANCE_SEARCH_URL to the address of your SearXNG server.",
            id="governance.E035",
        )
    ]


def check_search_provider(**_: Any) -> list[checks.CheckMessage]:
    """Check that the project's own search engine can be imported."""
    name = app_settings.valid("SEARCH_PROVIDER")
    if name in tuple(SearchEngine):
        return []
    return setting_rules.check_path(
        name,
        what="There is no search engine",
        otherwise=app_settings.DECLARED["SEARCH_PROVIDER"].hint,
        check_id="governance.E060",
    )


def check_values(**_: Any) -> list[checks.CheckMessage]:
    """Check that every setting has the right type and a sensible value."""
    return setting_rules.check_values(app_settings)


def check_names(**_: Any) -> list[checks.CheckMessage]:
    """Warn about unknown settings, because Django would ignore them silently."""
    return setting_rules.check_names(app_settings, check_id="governance.W001")


def check_tool_names(**_: Any) -> list[checks.CheckMessage]:
    """Check that settings about tools name only known tools, because a misspelled name would have no effect."""
    names_with_approval = [
        name for name, rule in app_settings.valid("APPROVAL").items() if rule != "never"
    ]
    return [
        *_not_installed("TOOL_TIMEOUTS", app_settings.valid("TOOL_TIMEOUTS"), "governance.W002"),
        *_not_installed("APPROVAL", {*names_with_approval} - {EVERY_OTHER}, "governance.W021"),
        *_not_installed(
            "ERROR_TEXT", {*app_settings.valid("ERROR_TEXT")} - {EVERY_OTHER}, "governance.W045"
        ),
    ]


def _not_installed(setting: str, names: Iterable[str], check_id: str) -> list[checks.CheckMessage]:
    return [
        checks.Warning(
            f"GOVERNANCE_{setting} names the tool {name!r}, which is not installed.",
            hint="Correct the name or remove it, unless the tool belongs to an MCP server, whose tools are not known yet."
            f" Installed: {', '.join(tool.name for tool in registry) or 'none'}.",
            id=check_id,
        )
        for name in sorted(names)
        if name not in registry
    ]


def check_tools(**_: Any) -> list[checks.CheckMessage]:
    """Check that no tool declares an idle limit above its total limit, which the tool or the site's settings may set."""
    timeouts = app_settings.valid("TOOL_TIMEOUTS")
    totals = {tool: timeouts.get(tool.name, tool.timeout) for tool in registry}
    return [
        checks.Warning(
            f"The tool {tool.name!r} declares an idle limit of {tool.idle_timeout:g} s above its total limit"
            f" of {total:g} s: it would never be reached.",
            hint="Set its idle_timeout below its timeout, and below its limit in GOVERNANCE_TOOL_TIMEOUTS.",
            id="governance.W003",
        )
        for tool, total in totals.items()
        if total and tool.idle_timeout and tool.idle_timeout > total
    ]


def check_permissions(**_: Any) -> list[checks.CheckMessage]:
    """Check that each permission that a tool requires can exist, because otherwise no one could use the tool."""
    required = {tool.name: tool.permission for tool in registry if tool.permission}
    if not required:
        return []
    declared = {
        f"{model._meta.app_label}.{codename}"
        for model in apps.get_models()
        for codename in _codenames(model)
    }
    problems: list[checks.CheckMessage] = []
    for name, permission in required.items():
        app_label, dot, codename = permission.partition(".")
        if not (app_label and dot and codename):
            problems.append(
                checks.Error(
                    f"The tool {name!r} requires the permission {permission!r}, which names no app, so no user can have it.",
                    hint='Write it as "app_label.codename", such as "shop.refund_order".',
                    id="governance.E068",
                )
            )
        elif permission not in declared:
            problems.append(
                checks.Warning(
                    f"The tool {name!r} requires the permission {permission!r}, which no installed model declares.",
                    hint="Correct its name, or add it to Meta.permissions of a model and run migrate. Silence this if your"
                    " project creates the permission in another way.",
                    id="governance.W046",
                )
            )
    return problems


def _codenames(model: type[Model]) -> Iterator[str]:
    for action in model._meta.default_permissions:
        yield get_permission_codename(action, model._meta)
    for codename, _name in model._meta.permissions:
        yield codename


def check_time_zones(**_: Any) -> list[checks.CheckMessage]:
    """Check that `USE_TZ` is on, because limits and pages would otherwise be wrong by the time zone's offset."""
    if settings.USE_TZ:
        return []
    return [
        checks.Error(
            "USE_TZ is False, so times would be stored without a time zone, which limits, leases and pages need.",
            hint="Set USE_TZ = True. Django's page on time zones explains what this changes in your own code:"
            " https://docs.djangoproject.com/en/stable/topics/i18n/timezones/#migration-guide",
            id="governance.E064",
        )
    ]


# Cached, because reading the metadata of every package takes a noticeable part of a check.
_distributions = cache(packages_distributions)


def check_distributions(**_: Any) -> list[checks.CheckMessage]:
    """Check that each of our packages comes from one distribution, because a second one would overwrite files."""
    installed = _distributions()
    owners = {name: sorted(set(installed.get(name, ()))) for name in OUR_PACKAGES}
    return [
        checks.Error(
            f"Several installed distributions contain a package {name!r}: {', '.join(names)}. Some files of one have"
            " replaced those of the other.",
            hint="Uninstall all of them, then install the one that you need.",
            id="governance.E065",
        )
        for name, names in owners.items()
        if len(names) > 1
    ]


def check_shadowed(*, databases: Any = None, **_: Any) -> list[checks.CheckMessage]:
    """Warn about limits in the settings that have no effect, because an administrator has set another limit. The check
    runs only if the database may be queried, as in `migrate`.
    """
    timeouts = app_settings.valid("TOOL_TIMEOUTS")
    if not databases:
        return []
    rows = apps.get_model("governance.ToolPolicy").objects.exclude(timeout_ms=None)
    effective = rows.filter(is_active=True, tool_name__in=list(timeouts))
    try:
        names = sorted(effective.values_list("tool_name", flat=True))
    except DatabaseError:  # before the first migration
        return []
    return [
        checks.Info(
            f"GOVERNANCE_TOOL_TIMEOUTS sets a limit for the tool {name!r}, but an administrator has set another one,"
            " which takes precedence.",
            hint="Remove one of them. The administrator's limit is under Tool limits in the admin.",
            id="governance.I001",
        )
        for name in names
    ]


def check_together(**_: Any) -> list[checks.CheckMessage]:
    """Check that the limits are consistent. Invalid values are left to `check_values`."""
    return [] if check_values() else [*_check_grace(), *_check_default(), *_check_slots()]


def check_routers(**_: Any) -> list[checks.CheckMessage]:
    """Check that the routers keep our models, and the Django models that they refer to, in one database.

    Neither a transaction nor a foreign key can span two databases.
    """
    models = [
        model
        for label in ("governance", "turns", "webchat")
        if apps.is_installed(label)
        for model in apps.get_app_config(label).get_models()
    ]
    related_models = [
        settings.AUTH_USER_MODEL,
        "auth.Group",
        "contenttypes.ContentType",
        "admin.LogEntry",
    ]
    installed = {config.label for config in apps.get_app_configs()}
    models += [
        apps.get_model(name) for name in related_models if name.partition(".")[0] in installed
    ]
    places: dict[str, list[str]] = {}
    for model in models:
        for alias in {router.db_for_write(model), router.db_for_read(model)}:
            places.setdefault(alias, []).append(model._meta.label)
    if len(places) == 1:
        return []
    split = "; ".join(f"{alias!r} has {', '.join(labels)}" for alias, labels in places.items())
    return [
        checks.Error(
            f"DATABASE_ROUTERS spread models that belong together over {len(places)} databases: {split}.",
            hint="Make the routers return one database, for reading and for writing, for the apps governance, turns and"
            " webchat, for your user model, and for auth, contenttypes and admin.",
            id="governance.E062",
        )
    ]


def _check_grace() -> Iterator[checks.CheckMessage]:
    grace = app_settings.CANCEL_GRACE + app_settings.KILL_GRACE
    if grace > _INSTANT + 1e-9:
        yield checks.Warning(
            f"GOVERNANCE_CANCEL_GRACE and GOVERNANCE_KILL_GRACE add up to {grace:g} s: a cancelled turn"
            " may take longer than a second to end.",
            hint="Lower them, so that they add up to at most 1 second.",
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
    """Check that commands have a directory, and warn if chat users can run commands while `DEBUG` is off."""
    problems: list[checks.CheckMessage] = []
    if app_settings.EXEC_ENABLED and not str(app_settings.WORKSPACE_ROOT):
        problems.append(
            checks.Error(
                "GOVERNANCE_EXEC_ENABLED is on, but GOVERNANCE_WORKSPACE_ROOT is not set: commands would have no"
                " directory of their own.",
                hint="Set GOVERNANCE_WORKSPACE_ROOT to an absolute path, or switch exec off.",
                id="governance.E021",
            )
        )
    if app_settings.EXEC_ENABLED and not settings.DEBUG:
        problems.append(
            checks.Warning(
                "GOVERNANCE_EXEC_ENABLED is on while DEBUG is off: everyone who may chat can run commands on this"
                " machine.",
                hint="Switch it off, or run commands in a sandbox (GOVERNANCE_EXEC_SANDBOX) on a machine that you can"
                " afford to lose, and silence this check.",
                id="governance.W007",
            )
        )
    return problems


def check_private_addresses(**_: Any) -> list[checks.CheckMessage]:
    """Warn if the tools may read from the server's own network while `DEBUG` is off."""
    if not app_settings.WEB_ALLOW_PRIVATE or settings.DEBUG:
        return []
    return [
        checks.Warning(
            "GOVERNANCE_WEB_ALLOW_PRIVATE is on while DEBUG is off: web_fetch can read pages that only this"
            " machine's network can reach.",
            hint="Switch it off, unless everyone who may chat may also read from that network. In that case, silence this check.",
            id="governance.W008",
        )
    ]


def register_all() -> None:
    for check in (
        check_values,
        check_names,
        check_tool_names,
        check_tools,
        check_permissions,
        check_together,
        check_exec,
        check_private_addresses,
        check_routers,
        check_time_zones,
        check_distributions,
        check_sandbox,
        check_search,
        check_search_provider,
    ):
        checks.register(check, "governance")
    checks.register(mcp_checks.check_sdk, checks.Tags.database)
    checks.register(mcp_checks.check_variables, checks.Tags.database)
    checks.register(check_shadowed, checks.Tags.database)
