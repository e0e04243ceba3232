"""The settings of governance: `app_settings.<NAME>` reads `GOVERNANCE_<NAME>` from Django's settings at each access."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from django.conf import settings

from governance.app_settings import WEEK, AppSettings, Setting
from governance.core.policy import ApprovalRule, ToolLimits
from governance.toolbox import ToolboxSettings

EVERY_OTHER = "*"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_SETTING = re.compile(r"(?:DSN|KEY|KEYS|KEY_FALLBACKS|PASSWORD|SECRET|TOKEN)$")


def _are_rules(rules: Mapping[str, str]) -> bool:
    return set(rules.values()) <= set(ApprovalRule)


def _are_variables(names: Sequence[str]) -> bool:
    return all(map(_VARIABLE.fullmatch, names))


class GovernanceSettings(AppSettings, of=(ToolboxSettings,)):
    """All settings, including those of the built-in tools. Their docstrings appear in `docs/settings/governance.md`."""

    PREFIX = "GOVERNANCE_"

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return a setting of the built-in tools."""

    DEFAULT_TIMEOUT: Annotated[
        float | None, Setting("governance.E001", 0, WEEK, none="the built-in one")
    ] = None
    """The limit of a tool that has no other limit. `0` means no limit; `None` means the built-in limit of 120 s
    (T2)."""

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
    """Limits of individual tools. Each takes precedence over the limit that the tool declares (T2)."""

    TIMEOUT_CEILING: Annotated[float, Setting("governance.E003", 0, WEEK)] = 3600.0
    """The highest limit that a call may request or an administrator may set. `0` means no ceiling (A3)."""

    LIMIT_NOTE_REQUIRED: Annotated[bool, Setting("governance.E061")] = False
    """Whether administrators have to give a reason for each change of a limit."""

    APPROVAL: Annotated[
        Mapping[str, str],
        Setting(
            "governance.E037",
            is_valid=_are_rules,
            hint='a dict of tool names and "never", "once_per_conversation" or "always"; "*" = every other tool',
            kind="dict: tool → rule",
        ),
    ] = {}
    """When calls of a tool need a person's approval: `"never"`, `"once_per_conversation"` or `"always"`. The name
    `"*"` sets the rule for all tools that are not named (D1)."""

    APPROVAL_TIMEOUT: Annotated[float, Setting("governance.E038", 0, WEEK)] = 600.0
    """How long a person may take to decide whether a call may run. `0` means no limit (D3)."""

    ERROR_TEXT: Annotated[
        Sequence[str],
        Setting(
            "governance.E045",
            hint='a list of names of tools, such as ["web_fetch"]; "*" = every tool',
            kind="list of tools",
        ),
    ] = ()
    """Tools whose exception messages the chat model and the user may read; `"*"` means every tool. See [What the
    model reads](../howto/own-tools.md#what-the-model-reads) (T4)."""

    CANCEL_GRACE: Annotated[float, Setting("governance.E004", 0, 60)] = 0.6
    """How long a call may take to end after a cancel before it is killed or abandoned (C1)."""

    MAX_RUNNING: Annotated[int, Setting("governance.E006", 1, 100_000)] = 100
    """Maximum number of simultaneous calls in one process (P4)."""

    MAX_QUEUED: Annotated[int, Setting("governance.E007", 0, 1_000_000)] = 200
    """Maximum number of calls that wait for a slot in one process; further calls are refused (P4)."""

    MAX_RUNNING_PER_SCOPE: Annotated[int, Setting("governance.E008", 1, 100_000)] = 16
    """Maximum number of simultaneous calls in one conversation (P4)."""

    QUEUE_TIMEOUT: Annotated[float, Setting("governance.E009", 0.001, WEEK)] = 300.0
    """How long a call waits for a slot before it fails with `queue_timeout` (P4)."""

    MAX_THREADS: Annotated[int, Setting("governance.E010", 1, 10_000)] = 32
    """Maximum number of plain tools that run at the same time in one process, each in its own thread (T7)."""

    MAX_DATABASE_THREADS: Annotated[int, Setting("governance.E063", 1, 10_000)] = 16
    """Maximum number of threads in which coroutine tools use the ORM, each with its own connection (T7)."""

    MAX_WORKERS: Annotated[int, Setting("governance.E012", 1, 1_000)] = 4
    """Maximum number of simultaneous calls of tools with `isolation="process"` in one server process, each in its
    own worker process (T8)."""

    PROGRESS_INTERVAL: Annotated[float, Setting("governance.E013", 0.1, 3_600)] = 5.0
    """How often the server sends a progress event for a running call whose tool reports nothing (V1)."""

    RESULT_LIMIT: Annotated[
        int, Setting("governance.E014", 1_000, 100_000_000, kind="characters")
    ] = 100_000
    """Maximum length of a tool's result; a longer result is shortened before it is stored."""

    MCP_VARIABLES: Annotated[
        Sequence[str],
        Setting(
            "governance.E067",
            is_valid=_are_variables,
            hint='a list of names of environment variables, such as ["GITHUB_MCP_AUTHORIZATION"]',
            kind="list of names",
        ),
    ] = ()
    """The environment variables that [MCP servers](../howto/mcp.md) may receive, in a header or in a command's
    environment. A server that names another variable is not connected (G2)."""

    ADMIN_CSP: Annotated[str | None, Setting("governance.E066", none="no header")] = (
        "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'self'; form-action 'self'; "
        "object-src 'none'"
    )
    """The Content-Security-Policy of Turnkeeper's admin pages, if they use Django's own base templates. `{nonce}` is
    replaced by the response's nonce. With `None` or an admin theme, the project sets the policy."""


app_settings = GovernanceSettings()


def tool_setting_limits(tool_name: str) -> ToolLimits:
    """Return the limits that the project's settings set for one tool, as a level of the policy (T2, D1)."""
    rules, error_texts = app_settings.APPROVAL, app_settings.ERROR_TEXT
    rule = rules.get(tool_name, rules.get(EVERY_OTHER))
    return _limits(
        timeout=app_settings.TOOL_TIMEOUTS.get(tool_name),
        approval=None if rule is None else ApprovalRule(rule),
        error_text=tool_name in error_texts or EVERY_OTHER in error_texts,
    )


def known_secrets() -> Iterator[str]:
    # Django's own defaults contain no secrets, and reading a deprecated one emits a warning.
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
    """Return the limits that the project's settings set for every tool, as a level of the policy (T2)."""
    return _limits(
        timeout=app_settings.DEFAULT_TIMEOUT,
        ceiling=app_settings.TIMEOUT_CEILING,
        approval_timeout=app_settings.APPROVAL_TIMEOUT,
    )


# Cached, because the limits are read for every call, and compared by identity with the previous ones.
@lru_cache(maxsize=256)
def _limits(**limits: Any) -> ToolLimits:
    return ToolLimits(**limits)


def toolbox_settings() -> ToolboxSettings:
    """Return the current settings of the built-in tools.

    Raises:
        ValueError: a setting has the wrong type. The system checks report which one.
    """
    return ToolboxSettings(
        **{
            name.lower(): setting.parse(getattr(app_settings, name))
            for name, setting in app_settings.DECLARED.items()
            if hasattr(ToolboxSettings, name.lower())
        }
    )
