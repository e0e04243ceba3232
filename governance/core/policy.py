"""The limits one call runs under, and where each came from (T2).

The first limit that is set wins: the call's own hint (capped by the ceiling) → an administrator's override for
the tool → the project's setting for the tool → the tool's declared timeout → the administrator's default → the
project's setting for every tool → the built-in default. `0` or less means "no framework limit" at every level. The
other limits follow the same order, as far as a level has a word on them.

The approval rule is found otherwise (D1): an administrator's override for the tool always counts. Else it is what the
project's settings say, or what the tool declares, and never less strict than the administrator's default.
Whoever hosts the call (an agent) can make the rule stricter, never weaker.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TypeVar

Value = TypeVar("Value")

BUILT_IN_TIMEOUT = 120.0
BUILT_IN_CEILING = 3600.0
BUILT_IN_APPROVAL_TIMEOUT = 600.0


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


_SOURCES = (  # of the levels of `PolicyLevels`, strongest first
    TimeoutSource.OVERRIDE,
    TimeoutSource.SETTING,
    TimeoutSource.TOOL,
    TimeoutSource.DEFAULT,
    TimeoutSource.SETTING,
)


class ApprovalRule(StrEnum):
    """Whether a person must let a call through (D1)."""

    NEVER = "never"
    ONCE_PER_CONVERSATION = "once_per_conversation"
    ALWAYS = "always"

    @property
    def strictness(self) -> int:
        """Its place among the rules: the higher, the stricter."""
        return _STRICTNESS[self]


_STRICTNESS = {rule: place for place, rule in enumerate(ApprovalRule)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLimits:
    """What one level says of a tool; None where it says nothing. Seconds."""

    timeout: float | None = None
    idle_timeout: float | None = None
    ceiling: float | None = None
    max_running: int | None = None
    enabled: bool = True
    approval: ApprovalRule | None = None
    approval_timeout: float | None = None
    error_text: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLevels:
    """Every level's word on one tool, strongest first; `tool_setting` is about this tool, `setting` about every one.

    `version` counts the administrators' edits; `changed_by` made the last one that is about this tool.
    """

    override: ToolLimits = ToolLimits()
    tool_setting: ToolLimits = ToolLimits()
    declared: ToolLimits = ToolLimits()
    default: ToolLimits = ToolLimits()
    setting: ToolLimits = ToolLimits()
    version: int = 0
    changed_by: str = ""

    @property
    def ordered(self) -> tuple[ToolLimits, ...]:
        """The levels, strongest first."""
        return (self.override, self.tool_setting, self.declared, self.default, self.setting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The limits that apply to one call.

    `timeout` None = no framework limit; `capped_from` = the hint asked for; `approval_timeout` None = a person may take
    any time; `changed_by` = who edited the administrators' limits of the tool last; `error_text` = the model and the
    person may read what an exception of the tool says (invariant 12).
    """

    timeout: float | None
    timeout_source: TimeoutSource
    idle_timeout: float | None = None
    ceiling: float = BUILT_IN_CEILING
    max_running: int | None = None
    enabled: bool = True
    capped_from: float | None = None
    approval: ApprovalRule = ApprovalRule.NEVER
    approval_timeout: float | None = BUILT_IN_APPROVAL_TIMEOUT
    changed_by: str = ""
    error_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A limit that the call itself asks for: `_meta.timeout_ms` (A3), or the tool's own timeout argument."""

    timeout: float
    source: TimeoutSource = TimeoutSource.HINT


@lru_cache(
    maxsize=512
)  # the same limits hold for call after call, and this is a fifth of a call's cost
def resolve(
    levels: PolicyLevels, *, hint: Hint | None = None, at_least: ApprovalRule = ApprovalRule.NEVER
) -> Policy:
    """Return the policy of a call (T2, A3); its approval rule is `at_least` as strict as that (D1)."""
    ordered = levels.ordered
    ceiling = _first(*(level.ceiling for level in ordered if level is not levels.declared))
    ceiling = BUILT_IN_CEILING if ceiling is None else ceiling
    timeout, source, capped_from = _timeout(levels, hint=hint, ceiling=ceiling)
    approval_timeout = _first(*(level.approval_timeout for level in ordered))
    if approval_timeout is None:
        approval_timeout = BUILT_IN_APPROVAL_TIMEOUT
    return Policy(
        timeout=timeout or None,
        timeout_source=source,
        idle_timeout=max(_first(*(level.idle_timeout for level in ordered)) or 0.0, 0.0) or None,
        ceiling=ceiling,
        max_running=_first(*(level.max_running for level in ordered)),
        enabled=all(level.enabled for level in ordered),
        capped_from=capped_from,
        approval=stricter(_approval(levels), at_least),
        approval_timeout=max(approval_timeout, 0.0) or None,
        changed_by=levels.changed_by,
        error_text=bool(_first(*(level.error_text for level in ordered))),
    )


def stricter(*rules: ApprovalRule | None) -> ApprovalRule:
    """Return the strictest of the rules; None says nothing."""
    said = [rule for rule in rules if rule is not None]
    return max(said, key=lambda rule: rule.strictness, default=ApprovalRule.NEVER)


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
    for level, source in zip(levels.ordered, _SOURCES, strict=True):
        if level.timeout is not None:
            return max(level.timeout, 0.0), source, None
    return BUILT_IN_TIMEOUT, TimeoutSource.BUILT_IN, None


def _approval(levels: PolicyLevels) -> ApprovalRule:
    if levels.override.approval is not None:
        return levels.override.approval
    own = _first(
        *(level.approval for level in (levels.tool_setting, levels.setting, levels.declared))
    )
    return stricter(own, levels.default.approval)


def _first(*values: Value | None) -> Value | None:
    return next((value for value in values if value is not None), None)
