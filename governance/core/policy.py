"""The limits one call runs under, and where each came from (T2).

The first limit that is set wins: the call's own hint (capped by the ceiling) → an administrator's override for
the tool → the tool's declared timeout → the administrator's default → the project's setting → the built-in default.
`0` or less means "no framework limit" at every level.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

Limit = TypeVar("Limit", int, float)

BUILT_IN_TIMEOUT = 120.0
BUILT_IN_CEILING = 3600.0


class TimeoutSource(StrEnum):
    """Where a limit came from; sent to the chat and stored on the call."""

    HINT = "hint"
    ARGUMENT = "argument"
    OVERRIDE = "override"
    TOOL = "tool"
    DEFAULT = "default"
    SETTING = "setting"
    BUILT_IN = "built_in"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLimits:
    """What one level says of a tool; None where it says nothing. Seconds."""

    timeout: float | None = None
    idle_timeout: float | None = None
    ceiling: float | None = None
    max_running: int | None = None
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLevels:
    """Every level's word on one tool, strongest first. `version` counts the administrators' edits."""

    override: ToolLimits = ToolLimits()
    declared: ToolLimits = ToolLimits()
    default: ToolLimits = ToolLimits()
    setting: ToolLimits = ToolLimits()
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The limits that apply to one call. `timeout` None = no framework limit; `capped_from` = the hint asked for."""

    timeout: float | None
    timeout_source: TimeoutSource
    idle_timeout: float | None = None
    ceiling: float = BUILT_IN_CEILING
    max_running: int | None = None
    enabled: bool = True
    capped_from: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A limit that the call itself asks for: `_meta.timeout_ms` (A3), or the tool's own timeout argument."""

    timeout: float
    source: TimeoutSource = TimeoutSource.HINT


def resolve(levels: PolicyLevels, *, hint: Hint | None = None) -> Policy:
    """Return the policy of a call (T2, A3)."""
    ordered = (levels.override, levels.declared, levels.default, levels.setting)
    ceiling = _first(
        *(level.ceiling for level in (levels.override, levels.default, levels.setting))
    )
    ceiling = BUILT_IN_CEILING if ceiling is None else ceiling
    timeout, source, capped_from = _timeout(levels, hint=hint, ceiling=ceiling)
    return Policy(
        timeout=timeout or None,
        timeout_source=source,
        idle_timeout=max(_first(*(level.idle_timeout for level in ordered)) or 0.0, 0.0) or None,
        ceiling=ceiling,
        max_running=_first(*(level.max_running for level in ordered)),
        enabled=all(level.enabled for level in ordered),
        capped_from=capped_from,
    )


def cap(timeout: float, *, ceiling: float) -> float:
    """Return `timeout` no higher than `ceiling`; an unlimited wish becomes the ceiling. A ceiling of 0 caps nothing."""
    if ceiling <= 0:
        return max(timeout, 0.0)
    return ceiling if timeout <= 0 else min(timeout, ceiling)


def _timeout(
    levels: PolicyLevels, *, hint: Hint | None, ceiling: float
) -> tuple[float, TimeoutSource, float | None]:
    if hint is not None:
        timeout = cap(hint.timeout, ceiling=ceiling)
        return timeout, hint.source, (hint.timeout if timeout != hint.timeout else None)
    for level, source in (
        (levels.override, TimeoutSource.OVERRIDE),
        (levels.declared, TimeoutSource.TOOL),
        (levels.default, TimeoutSource.DEFAULT),
        (levels.setting, TimeoutSource.SETTING),
    ):
        if level.timeout is not None:
            return max(level.timeout, 0.0), source, None
    return BUILT_IN_TIMEOUT, TimeoutSource.BUILT_IN, None


def _first(*values: Limit | None) -> Limit | None:
    return next((value for value in values if value is not None), None)
