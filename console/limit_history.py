"""The history of one tool's limits: its own changes, and those of the default limits that affected it (sync ORM)."""

import copy
from collections.abc import Collection, Sequence
from typing import Any

from governance.core.policy import LIMITS, ToolLimits, resolve
from governance.models import DefaultPolicy, Limits, PolicyChange, ToolPolicy
from governance.policies import Policies
from governance.services import DEFAULT_FIELDS, TOOL_FIELDS

MOST = 50  # changes that are read of the tool's own limits, and of the default limits


def own_changes(tool_name: str) -> list[PolicyChange]:
    """Return the last changes to a tool's own limits, newest first."""
    return list(PolicyChange.objects.filter(tool_name=tool_name)[:MOST])


def followed_changes(
    row: ToolPolicy, own: Sequence[PolicyChange], *, declared: ToolLimits
) -> list[PolicyChange]:
    """Return the changes to the default limits that changed a limit of the tool, newest first.

    Starting from the present `row`, the changes to the tool's `own` limits and to the default limits are undone one by
    one, to find which limits applied to the tool at each time. Settings and declarations are assumed not to have changed.
    """
    default = DefaultPolicy.objects.first()
    if default is None:
        return []
    first = own[-1].version if len(own) == MOST else 0
    of_default = list(PolicyChange.objects.filter(tool_name="", version__gt=first)[:MOST])
    tool, changes_followed = copy.copy(row), []
    for change in newest_first([*own, *of_default]):
        if change.tool_name:
            _undo(change, tool, TOOL_FIELDS)
            continue
        later_limits = _limits(tool, default, declared)
        _undo(change, default, DEFAULT_FIELDS)
        if _limits(tool, default, declared) != later_limits:
            changes_followed.append(change)
    return changes_followed


def newest_first(changes: Sequence[PolicyChange]) -> list[PolicyChange]:
    return sorted(changes, key=lambda change: change.version, reverse=True)


def _undo(change: PolicyChange, row: Limits, fields: Collection[str]) -> None:
    blank = type(row)()
    for name, (old, _new) in change.changes.items():
        if name in fields:
            setattr(row, name, getattr(blank, name) if old is None else old)


def _limits(tool: ToolPolicy, default: DefaultPolicy, declared: ToolLimits) -> list[Any]:
    """Return the limits of the tool's next call, without their sources."""
    name = tool.tool_name
    policies = Policies(default=default.as_limits(), overrides={name: tool.as_limits()})
    policy = resolve(policies.levels_of(name, declared=declared))
    return [getattr(policy, each) for each in LIMITS]
