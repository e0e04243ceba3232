"""The tools of other processes: each process reports its own, and the reports are merged here."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from governance.core.policy import LIMITS, ApprovalRule, ToolLimits
from governance.core.registry import LONGEST_TITLE, registry
from governance.core.tools import Tool
from governance.models import ToolPolicy
from governance.sanitize import sanitize_json, sanitize_text

MOST_TOOLS = 2_000
LONGEST_DESCRIPTION = 200
_LONGEST_NAME = ToolPolicy._meta.get_field("tool_name").max_length
_UNSET = ToolLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedTool:
    """A tool that is not registered here, and the names of the `processes` that have it."""

    name: str
    title: str = ""
    description: str = ""
    server: str = ""
    isolation: str = ""
    tokens: int = 0
    permission: str = ""
    limits: ToolLimits = _UNSET
    processes: tuple[str, ...] = ()


Report = Sequence[Mapping[str, Any]]


def merge(reports: Iterable[tuple[str, Report]]) -> dict[str, ReportedTool]:
    """Return the tools that only other processes have, by tool name. `reports` contains the name of each process and
    its report.

    If the reports describe a tool differently, the first one is used.
    """
    merged: dict[str, ReportedTool] = {}
    for process, report in reports:
        for values in report:
            name = values["name"]
            if name in registry:
                continue
            tool = merged[name] if name in merged else _parse(values)
            if process not in tool.processes:
                tool = replace(tool, processes=(*tool.processes, process))
            merged[name] = tool
    return merged


def registered() -> tuple[Tool, ...]:
    """Return the tools of this process, sorted by name. May be called from any thread."""
    return tuple(registry)


def describe(tools: Iterable[Tool]) -> Report:
    """Return the report of a process with these tools: at most `MOST_TOOLS`, and storable in every database."""
    reported = [tool for tool in tools if _may_have_limits(tool.name)]
    # The site's own tools come before those of MCP servers.
    reported.sort(key=lambda tool: bool(tool.server))
    return [sanitize_json(_describe(tool)) for tool in reported[:MOST_TOOLS]]


def _may_have_limits(name: str) -> bool:
    """Return whether the name can be stored unchanged; a shortened name could be that of another tool."""
    return len(name) <= (_LONGEST_NAME or 0) and name == sanitize_text(name)


def _describe(tool: Tool) -> Mapping[str, Any]:
    limits = {name: getattr(tool.limits, name) for name in LIMITS}
    return {
        "name": tool.name,
        "title": tool.title[:LONGEST_TITLE],
        "description": tool.description.partition("\n")[0][:LONGEST_DESCRIPTION],
        "server": tool.server,
        "isolation": tool.isolation.value,
        "tokens": tool.tokens,
        "permission": tool.permission,
        "limits": {key: value for key, value in limits.items() if value != getattr(_UNSET, key)},
    }


def _parse(values: Mapping[str, Any]) -> ReportedTool:
    """Parse the entry of another process, which may run another version of this code."""
    return ReportedTool(
        name=values["name"],
        title=values.get("title", ""),
        description=values.get("description", ""),
        server=values.get("server", ""),
        isolation=values.get("isolation", ""),
        tokens=values.get("tokens", 0),
        permission=values.get("permission", ""),
        limits=_limits_of(values.get("limits", {})),
    )


def _limits_of(values: Mapping[str, Any]) -> ToolLimits:
    fields: dict[str, Any] = {
        name: value
        for name, value in values.items()
        if name in LIMITS and isinstance(value, int | float)
    }
    rules = {rule.value: rule for rule in ApprovalRule}
    return ToolLimits(**{**fields, "approval": rules.get(values.get("approval", ""))})
