"""The history of one tool's limits: the changes of the default limits that the tool followed (sync ORM)."""

import copy
from collections.abc import Collection, Sequence
from typing import Any

from governance.core.policy import LIMITS, ToolLimits, resolve
from governance.models import DefaultPolicy, Limits, PolicyChange, ToolPolicy
from governance.policies import Policies
from governance.services import DEFAULT_FIELDS, TOOL_FIELDS

MOST = 50  # of its own changes, and of those of the default limits


def own_changes(tool_name: str) -> list[PolicyChange]:
    """Return the last changes of a tool's own limits, newest first."""
    return list(PolicyChange.objects.filter(tool_name=tool_name)[:MOST])


def followed_changes(
    row: ToolPolicy, own: Sequence[PolicyChange], *, declared: ToolLimits
) -> list[PolicyChange]:
    """Return the changes of the default limits that changed a limit of the tool, newest first.

    `row` says what counts now. From there each change is undone, the tool's `own` too. So it is known what the tool
    followed at that time. What settings and the tool itself say counts as they say it now.
    """
    default = DefaultPolicy.objects.first()
    if default is None:
        return []
    first = own[-1].version if len(own) == MOST else 0
    of_default = list(PolicyChange.objects.filter(tool_name="", version__gt=first)[:MOST])
    tool, found = copy.copy(row), []
    for change in newest_first([*own, *of_default]):
        if change.tool_name:
            _undo(change, tool, TOOL_FIELDS)
            continue
        after = _limits(tool, default, declared)
        _undo(change, default, DEFAULT_FIELDS)
        if _limits(tool, default, declared) != after:
            found.append(change)
    return found


def newest_first(changes: Sequence[PolicyChange]) -> list[PolicyChange]:
    return sorted(changes, key=lambda change: change.version, reverse=True)


def _undo(change: PolicyChange, row: Limits, fields: Collection[str]) -> None:
    blank = type(row)()
    for name, (old, _new) in change.changes.items():
        if name in fields:
            setattr(row, name, getattr(blank, name) if old is None else old)


def _limits(tool: ToolPolicy, default: DefaultPolicy, declared: ToolLimits) -> list[Any]:
    """The limits of the tool's next call, without where they come from."""
    name = tool.tool_name
    policies = Policies(default=default.as_limits(), overrides={name: tool.as_limits()})
    policy = resolve(policies.levels_of(name, declared=declared))
    return [getattr(policy, each) for each in LIMITS]
