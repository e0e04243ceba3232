"""The project's settings: `GOVERNANCE_<NAME>` in Django's settings is `app_settings.<NAME>` here, read on access."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from operator import is_
from typing import TYPE_CHECKING, Annotated, Any

from django.conf import settings

from governance.app_settings import WEEK, AppSettings, Setting, values_of
from governance.core.policy import ApprovalRule, ToolLimits
from governance.toolbox import ToolboxSettings

EVERY_OTHER = "*"
_SECRET_SETTING = re.compile(r"(?:DSN|KEY|KEYS|KEY_FALLBACKS|PASSWORD|SECRET|TOKEN)$")


def _are_rules(rules: Mapping[str, str]) -> bool:
    return set(rules.values()) <= set(ApprovalRule)


class GovernanceSettings(AppSettings, of=(ToolboxSettings,)):
    """Every setting, those of the built-in tools too. Each docstring is its line in `docs/settings/governance.md`."""

    PREFIX = "GOVERNANCE_"

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The settings of the built-in tools."""

    DEFAULT_TIMEOUT: Annotated[
        float | None, Setting("governance.E001", 0, WEEK, none="the built-in one")
    ] = None
    """Limit of a tool that has no other one. `0` = no limit, `None` = the built-in 120 s (T2)."""

    TOOL_TIMEOUTS: Annotated[
        Mapping[str, float],
        Setting(
            "governance.E002",
            0,
            WEEK,
            hint='a dict of tool names and seconds, such as {"web_fetch": 60}; 0 = no limit',
            kind="dict: tool → seconds",
        ),
    ] = {}
    """Limits of single tools; each goes before what the tool declares (T2)."""

    TIMEOUT_CEILING: Annotated[float, Setting("governance.E003", 0, WEEK)] = 3600.0
    """The most a call may ask for itself, and the highest limit an administrator may set. `0` = no ceiling (A3)."""

    LIMIT_NOTE_REQUIRED: Annotated[bool, Setting("governance.E061")] = False
    """Whether an administrator has to say why with each change of a limit."""

    APPROVAL: Annotated[
        Mapping[str, str],
        Setting(
            "governance.E037",
            is_valid=_are_rules,
            hint='a dict of tool names and "never", "once_per_conversation" or "always"; "*" = every other tool',
            kind="dict: tool → rule",
        ),
    ] = {}
    """Whether a person must let calls through: `"never"`, `"once_per_conversation"` or `"always"`; `"*"` = every tool
    that is not named (D1)."""

    APPROVAL_TIMEOUT: Annotated[float, Setting("governance.E038", 0, WEEK)] = 600.0
    """How long a person may take to decide. `0` = no limit (D3)."""

    ERROR_TEXT: Annotated[
        Sequence[str],
        Setting(
            "governance.E045",
            hint='a list of names of tools, such as ["web_fetch"]; "*" = every tool',
            kind="list of tools",
        ),
    ] = ()
    """Tools of which the chat model and the person read what an exception says; `"*"` = every tool. See [own
    tools](../howto/own-tools.md#what-the-model-reads) (T4)."""

    CANCEL_GRACE: Annotated[float, Setting("governance.E004", 0, 60)] = 0.6
    """How long a call may take to end after it was asked to, before it is killed or abandoned (C1)."""

    MAX_RUNNING: Annotated[int, Setting("governance.E006", 1, 100_000)] = 100
    """Calls that run at once in one process (P4)."""

    MAX_QUEUED: Annotated[int, Setting("governance.E007", 0, 1_000_000)] = 200
    """Calls that wait for a slot in one process; one more is refused (P4)."""

    MAX_RUNNING_PER_SCOPE: Annotated[int, Setting("governance.E008", 1, 100_000)] = 16
    """Calls of one conversation that run at once (P4)."""

    QUEUE_TIMEOUT: Annotated[float, Setting("governance.E009", 0.001, WEEK)] = 300.0
    """How long a call waits for a slot before it gives up (P4)."""

    MAX_THREADS: Annotated[int, Setting("governance.E010", 1, 10_000)] = 32
    """Threads for plain tools in one process (T7)."""

    MAX_ABANDONED_THREADS: Annotated[int, Setting("governance.E011", 0, 10_000)] = 16
    """Threads that outlived their deadline; at this number plain tools are refused (T7)."""

    MAX_WORKERS: Annotated[int, Setting("governance.E012", 1, 1_000)] = 4
    """Worker processes for tools with `isolation="process"` (T8)."""

    PROGRESS_INTERVAL: Annotated[float, Setting("governance.E013", 0.1, 3_600)] = 5.0
    """How often a running call is reported as alive (V1)."""

    RESULT_LIMIT: Annotated[
        int, Setting("governance.E014", 1_000, 100_000_000, kind="characters")
    ] = 100_000
    """How much of a result is kept."""


app_settings = GovernanceSettings()


def tool_setting_limits(tool_name: str) -> ToolLimits:
    """Return what the project's settings say of one tool, as a level of the policy (T2, D1)."""
    rules, told, timeouts = values_of(_OF_EACH_TOOL)
    rule = rules.get(tool_name, rules.get(EVERY_OTHER))
    return _limits(
        timeout=timeouts.get(tool_name),
        approval=None if rule is None else ApprovalRule(rule),
        error_text=tool_name in told or EVERY_OTHER in told,
    )


def known_secrets() -> Iterator[str]:
    # Django's own defaults hold none, and to read one that is deprecated warns.
    for name in filter(_SECRET_SETTING.search, dir(settings)):
        if not settings.is_overridden(name):  # type: ignore[misc]  # missing in the stubs
            continue
        value = getattr(settings, name)
        yield from map(str, value if isinstance(value, list | tuple) else [value])
    for database in settings.DATABASES.values():
        yield str(database.get("PASSWORD") or "")
    for mailer in getattr(settings, "MAILERS", {}).values():
        yield str(mailer.get("OPTIONS", {}).get("password") or "")


def setting_limits() -> ToolLimits:
    """Return what the project's settings say of every tool, as a level of the policy (T2)."""
    timeout, ceiling, approval_timeout = values_of(_OF_ALL_TOOLS)
    return _limits(timeout=timeout, ceiling=ceiling, approval_timeout=approval_timeout)


def _defaults_of(*names: str) -> dict[str, Any]:
    """Return the defaults of settings by their names in Django's settings."""
    declared = [app_settings.DECLARED[name] for name in names]
    return {setting.full_name: setting.default for setting in declared}


_OF_EACH_TOOL = _defaults_of("APPROVAL", "ERROR_TEXT", "TOOL_TIMEOUTS")
_OF_ALL_TOOLS = _defaults_of("DEFAULT_TIMEOUT", "TIMEOUT_CEILING", "APPROVAL_TIMEOUT")


@lru_cache(maxsize=256)  # read for every call, and compared with those of the last one
def _limits(**limits: Any) -> ToolLimits:
    return ToolLimits(**limits)


def toolbox_settings() -> ToolboxSettings:
    """Return the settings of the built-in tools, as they are now.

    Raises:
        ValueError: a setting has another type than it must have; the system checks say which.
    """
    global _parsed
    values = values_of(_TOOLBOX_DEFAULTS)
    known, settings_of_tools = _parsed
    if settings_of_tools is None or not all(map(is_, known, values)):
        parse = {name: setting.parse for name, setting in _OF_TOOLBOX.items()}
        settings_of_tools = ToolboxSettings(
            **{
                name.lower(): parse[name](value)
                for name, value in zip(_OF_TOOLBOX, values, strict=True)
            }
        )
        _parsed = values, settings_of_tools
    return settings_of_tools


_OF_TOOLBOX = {
    name: setting
    for name, setting in app_settings.DECLARED.items()
    if hasattr(ToolboxSettings, name.lower())
}
_TOOLBOX_DEFAULTS = _defaults_of(*_OF_TOOLBOX)
_parsed: tuple[list[Any], ToolboxSettings | None] = [], None
