"""System checks of every setting: an id that is never reused, what is wrong, and a hint what to write instead."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core import checks

from governance.conf import GovernanceSettings, app_settings
from governance.core.policy import BUILT_IN_TIMEOUT
from governance.core.tools import registry

PREFIX = GovernanceSettings.PREFIX
_WEEK = 7 * 24 * 3600.0
_INSTANT = 1.0  # a cancelled turn is over within one second (C1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """What one setting must be, in code and in words."""

    id: str
    is_valid: Callable[[Any], bool]
    hint: str


def _number(least: float, most: float) -> Callable[[Any], bool]:
    def is_valid(value: Any) -> bool:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and math.isfinite(value) and least <= value <= most

    return is_valid


def _count(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    )


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_timeouts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and _number(0, _WEEK)(seconds) for name, seconds in value.items()
    )


def _is_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) and name for name in value)


def _is_directory_or_empty(value: Any) -> bool:
    return isinstance(value, str | Path) and (not str(value) or Path(value).is_absolute())


def _seconds(check_id: str, least: float, most: float, *, or_none: bool = False) -> _Rule:
    within = _number(least, most)
    hint = f"Set it to a number of seconds from {least:g} to {most:g}."
    if not or_none:
        return _Rule(id=check_id, is_valid=within, hint=hint)
    or_built_in = f"{hint} None stands for the built-in one."
    return _Rule(
        id=check_id, is_valid=lambda value: value is None or within(value), hint=or_built_in
    )


def _whole(check_id: str, least: int, most: int) -> _Rule:
    return _Rule(
        id=check_id,
        is_valid=_count(least, most),
        hint=f"Set it to a whole number from {least} to {most}.",
    )


def _switch(check_id: str) -> _Rule:
    return _Rule(id=check_id, is_valid=_is_bool, hint="Set it to True or False.")


RULES: dict[str, _Rule] = {
    "DEFAULT_TIMEOUT": _seconds("governance.E001", 0, _WEEK, or_none=True),
    "TOOL_TIMEOUTS": _Rule(
        id="governance.E002",
        is_valid=_is_timeouts,
        hint='Set it to a dict of tool names and seconds, such as {"web_fetch": 60}; 0 = no limit.',
    ),
    "TIMEOUT_CEILING": _seconds("governance.E003", 0, _WEEK),
    "CANCEL_GRACE": _seconds("governance.E004", 0, 60),
    "KILL_GRACE": _seconds("governance.E005", 0, 60),
    "MAX_RUNNING": _whole("governance.E006", 1, 100_000),
    "MAX_QUEUED": _whole("governance.E007", 0, 1_000_000),
    "MAX_RUNNING_PER_SCOPE": _whole("governance.E008", 1, 100_000),
    "QUEUE_TIMEOUT": _seconds("governance.E009", 0.001, _WEEK),
    "MAX_THREADS": _whole("governance.E010", 1, 10_000),
    "MAX_ABANDONED_THREADS": _whole("governance.E011", 0, 10_000),
    "MAX_WORKERS": _whole("governance.E012", 1, 1_000),
    "PROGRESS_INTERVAL": _seconds("governance.E013", 0.1, 3_600),
    "RESULT_LIMIT": _whole("governance.E014", 1_000, 100_000_000),
    "POLICY_POLL": _seconds("governance.E015", 0.05, 3_600),
    "EXEC_ENABLED": _switch("governance.E016"),
    "EXEC_OUTPUT_LIMIT": _whole("governance.E017", 1_000, 100_000_000),
    "WORKSPACE_ROOT": _Rule(
        id="governance.E018",
        is_valid=_is_directory_or_empty,
        hint="Set it to an absolute path, or to an empty string for no workspaces.",
    ),
    "WEB_ALLOW_PRIVATE": _switch("governance.E019"),
    "WEB_MAX_BYTES": _whole("governance.E020", 1_000, 1_000_000_000),
    "WEB_MAX_REDIRECTS": _whole("governance.E022", 0, 100),
    "FILE_MAX_BYTES": _whole("governance.E023", 1_000, 10_000_000_000),
    "EXEC_ENVIRONMENT": _Rule(
        id="governance.E024",
        is_valid=_is_names,
        hint='Set it to a list of names of environment variables, such as ["LANG"].',
    ),
}


def check_values(**_: Any) -> list[checks.CheckMessage]:
    """Every setting has the right type and a sensible value."""
    return [
        checks.Error(
            f"{PREFIX}{name} is {getattr(app_settings, name)!r}.", hint=rule.hint, id=rule.id
        )
        for name, rule in RULES.items()
        if not rule.is_valid(getattr(app_settings, name))
    ]


def check_names(**_: Any) -> list[checks.CheckMessage]:
    """No setting is misspelled: it would be ignored without a word."""
    known = {PREFIX + name for name in GovernanceSettings.__annotations__}
    unknown = sorted(
        name for name in dir(settings) if name.startswith(PREFIX) and name not in known
    )
    return [
        checks.Warning(
            f"There is no setting {name}.",
            hint="Correct its name or remove it; docs/settings/governance.md lists the settings.",
            id="governance.W001",
        )
        for name in unknown
    ]


def check_tool_names(**_: Any) -> list[checks.CheckMessage]:
    """Limits are set for tools that exist."""
    timeouts = app_settings.TOOL_TIMEOUTS
    names = (
        sorted(name for name in timeouts if name not in registry) if _is_timeouts(timeouts) else []
    )
    return [
        checks.Warning(
            f"GOVERNANCE_TOOL_TIMEOUTS names the tool {name!r}, which is not installed.",
            hint=f"Correct the name or remove it. Installed: {_listed(tool.name for tool in registry)}.",
            id="governance.W002",
        )
        for name in names
    ]


def check_tools(**_: Any) -> list[checks.CheckMessage]:
    """No tool declares an idle limit that its total limit makes unreachable."""
    return [
        checks.Warning(
            f"The tool {tool.name!r} declares an idle limit of {tool.idle_timeout:g} s above its total limit"
            f" of {tool.timeout:g} s: it would never be reached.",
            hint="Declare an idle_timeout below the timeout.",
            id="governance.W003",
        )
        for tool in registry
        if tool.timeout and tool.idle_timeout and tool.idle_timeout > tool.timeout
    ]


def check_together(**_: Any) -> list[checks.CheckMessage]:
    """The limits fit each other. Values that are wrong in themselves are left to `check_values`."""
    if check_values():
        return []
    found: list[checks.CheckMessage] = []
    grace = app_settings.CANCEL_GRACE + app_settings.KILL_GRACE
    if grace > _INSTANT + 1e-9:
        found.append(
            checks.Warning(
                f"GOVERNANCE_CANCEL_GRACE and GOVERNANCE_KILL_GRACE add up to {grace:g} s: a cancelled turn"
                " may take longer than a second to end.",
                hint="Let them add up to 1 second or less.",
                id="governance.W004",
            )
        )
    default = (
        BUILT_IN_TIMEOUT if app_settings.DEFAULT_TIMEOUT is None else app_settings.DEFAULT_TIMEOUT
    )
    if 0 < app_settings.TIMEOUT_CEILING < default:
        found.append(
            checks.Warning(
                f"The default limit of {default:g} s is above GOVERNANCE_TIMEOUT_CEILING.",
                hint="Raise the ceiling, or lower GOVERNANCE_DEFAULT_TIMEOUT.",
                id="governance.W005",
            )
        )
    if app_settings.MAX_RUNNING_PER_SCOPE > app_settings.MAX_RUNNING:
        found.append(
            checks.Warning(
                "GOVERNANCE_MAX_RUNNING_PER_SCOPE is above GOVERNANCE_MAX_RUNNING: one conversation can take"
                " every slot of the process.",
                hint="Set it well below GOVERNANCE_MAX_RUNNING.",
                id="governance.W006",
            )
        )
    return found


def check_exposure(**_: Any) -> list[checks.CheckMessage]:
    """Tools that reach the host or its network are on only where somebody meant it."""
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
                " machine, with the rights of the server.",
                hint="Switch it off, or run the server as a user in a container that may be lost; then silence this.",
                id="governance.W007",
            )
        )
    if app_settings.WEB_ALLOW_PRIVATE and not settings.DEBUG:
        found.append(
            checks.Warning(
                "GOVERNANCE_WEB_ALLOW_PRIVATE is on while DEBUG is off: web_fetch can read what only this machine's"
                " network may see.",
                hint="Switch it off unless everybody who may chat may see that network; then silence this.",
                id="governance.W008",
            )
        )
    return found


def register_all() -> None:
    """Register the checks with Django."""
    for check in (
        check_values,
        check_names,
        check_tool_names,
        check_tools,
        check_together,
        check_exposure,
    ):
        checks.register(check, "governance")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
