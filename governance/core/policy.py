"""The limits of one call, and the sources that they come from (T2).

The first limit that is set applies, in this order:

1. the call's own hint, capped by the ceiling
2. an administrator's override for the tool
3. the project's setting for the tool
4. the tool's declared timeout
5. the administrator's default
6. the project's setting for every tool
7. the built-in default

At every level, `0` or less means no limit. The other limits follow the same order.

The approval rule follows another order (D1). An administrator's override for the tool always applies. Without one, the
rule is the project's setting or the tool's declaration, but never less strict than the administrator's default. The
host of the call (an agent) can make the rule stricter, but never weaker.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, get_args

BUILT_IN_TIMEOUT = 120.0
BUILT_IN_CEILING = 3600.0
BUILT_IN_APPROVAL_TIMEOUT = 600.0


class TimeoutSource(StrEnum):
    """The source of a limit, which is sent to the chat and stored with the call."""

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
    """The rule that says whether a person must approve a call (D1)."""

    NEVER = "never"
    ONCE_PER_CONVERSATION = "once_per_conversation"
    ALWAYS = "always"

    @property
    def strictness(self) -> int:
        """The rank of the rule. A rule with a higher rank is stricter."""
        return _STRICTNESS[self]


_STRICTNESS = {rule: place for place, rule in enumerate(ApprovalRule)}


@dataclass(frozen=True, slots=True)
class LimitField:
    """The description of a limit: how its effective value is computed from the values of all levels.

    `merge` accepts these values, strongest first, and the `default`; a value of `None` means not set. If `is_live` is
    true, edits of the limit apply to running calls. If `is_capped` is true, the limit cannot be set above the site's
    ceiling in the admin.
    """

    merge: Callable[[Sequence[Any], Any], Any]
    default: Any = None
    is_live: bool = False
    is_capped: bool = False


def _first(words: Sequence[Any], default: Any = None) -> Any:
    return next((word for word in words if word is not None), default)


def _first_span(words: Sequence[Any], default: Any) -> float | None:
    return max(_first(words, default) or 0.0, 0.0) or None


def _ceiling(words: Sequence[Any], default: Any) -> Any:
    """Return the ceiling, without the tool's declaration, because a tool cannot raise its own ceiling."""
    override, tool_setting, _declared, *weaker = words
    return _first((override, tool_setting, *weaker), default)


def _unanimous(words: Sequence[Any], _default: Any) -> bool:
    return all(words)


def _approval(words: Sequence[Any], _default: Any) -> ApprovalRule:
    override, tool_setting, declared, default, setting = words
    if override is not None:
        return ApprovalRule(override)
    return stricter(_first((tool_setting, setting, declared)), default)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLimits:
    """The limits that one level sets for a tool, where `None` means not set. Times are in seconds.

    A limit is declared here, and as a column of `governance.models.Limits` if administrators may edit it. A limit
    that a tool may declare is a field of `Tool` with the same name.
    """

    timeout: Annotated[
        float | None, LimitField(_first_span, BUILT_IN_TIMEOUT, is_live=True, is_capped=True)
    ] = None
    idle_timeout: Annotated[float | None, LimitField(_first_span, is_live=True, is_capped=True)] = (
        None
    )
    ceiling: Annotated[
        float | None, LimitField(_ceiling, BUILT_IN_CEILING, is_live=True, is_capped=True)
    ] = None
    max_running: Annotated[int | None, LimitField(_first)] = None
    enabled: Annotated[bool, LimitField(_unanimous)] = True
    approval: Annotated[ApprovalRule | None, LimitField(_approval)] = None
    approval_timeout: Annotated[
        float | None, LimitField(_first_span, BUILT_IN_APPROVAL_TIMEOUT)
    ] = None
    error_text: Annotated[bool | None, LimitField(_first, default=False)] = None


LIMITS: Mapping[str, LimitField] = {
    name: get_args(annotation)[1] for name, annotation in ToolLimits.__annotations__.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLevels:
    """The limits of every level for one tool, strongest first.

    `tool_setting` is the project's setting for this tool, and `setting` the one for all tools. `version` is the number
    of edits by administrators, and `changed_by` is the person who last edited this tool's limits.
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
class Policy(ToolLimits):
    """The limits of one call, resolved from all levels.

    A `timeout` or `approval_timeout` of `None` means no limit. `capped_from` is the requested limit, if the ceiling has
    lowered it. `changed_by` is the person who last edited the tool's limits. With `error_text`, the model and the
    person may read the text of the tool's exceptions (invariant 12).
    """

    timeout_source: TimeoutSource
    ceiling: float = BUILT_IN_CEILING
    capped_from: float | None = None
    approval: ApprovalRule = ApprovalRule.NEVER
    approval_timeout: float | None = BUILT_IN_APPROVAL_TIMEOUT
    changed_by: str = ""
    error_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A limit that the call itself requests: `_meta.timeout_ms` (A3), or the tool's own timeout argument."""

    timeout: float
    source: TimeoutSource = TimeoutSource.HINT


def resolve(
    levels: PolicyLevels, *, hint: Hint | None = None, at_least: ApprovalRule = ApprovalRule.NEVER
) -> Policy:
    """Return the policy of a call (T2, A3), with an approval rule at least as strict as `at_least` (D1)."""
    ordered = levels.ordered
    resolved = {
        name: limit.merge([getattr(level, name) for level in ordered], limit.default)
        for name, limit in LIMITS.items()
    }
    timeout, source, capped_from = _timeout(levels, hint=hint, ceiling=resolved["ceiling"])
    resolved["timeout"] = timeout or None
    resolved["approval"] = stricter(resolved["approval"], at_least)
    return Policy(
        **resolved, timeout_source=source, capped_from=capped_from, changed_by=levels.changed_by
    )


def source_of(name: str, levels: PolicyLevels) -> TimeoutSource:
    """Return the source of a limit: the strongest level whose value alone results in the effective limit."""
    merge = LIMITS[name].merge
    words = [getattr(level, name) for level in levels.ordered]
    in_force = merge(words, None)
    for position, (word, source) in enumerate(zip(words, _SOURCES, strict=True)):
        alone = [word if each == position else None for each in range(len(words))]
        if word is not None and merge(alone, None) == in_force:
            return source
    return TimeoutSource.BUILT_IN


def stricter(*rules: ApprovalRule | None) -> ApprovalRule:
    """Return the strictest of the rules, ignoring None."""
    set_rules = [rule for rule in rules if rule is not None]
    return max(set_rules, key=lambda rule: rule.strictness, default=ApprovalRule.NEVER)


def cap(timeout: float, *, ceiling: float) -> float:
    """Return `timeout`, lowered to `ceiling` if it is higher or 0 (no limit). A ceiling of 0 has no effect."""
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
