"""The tools of other processes: each process reports its own, and apps above tell what the live ones have reported."""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    limits: ToolLimits = _UNSET
    processes: tuple[str, ...] = ()


Report = Sequence[Mapping[str, Any]]
Source = Callable[[], Iterable[tuple[str, Report]]]
_sources: list[Source] = []


def register(read: Source) -> None:
    """Let `read` tell of the other processes that are alive: name and report of each. The same one counts once."""
    if read not in _sources:
        _sources.append(read)


def read() -> dict[str, ReportedTool]:
    """Return the tools that only other processes have, by name; what the first of them declares counts."""
    found: dict[str, ReportedTool] = {}
    for process, report in (told for source in _sources for told in source()):
        for values in report:
            name = values["name"]
            if name in registry:
                continue
            tool = found[name] if name in found else _parse(values)
            if process not in tool.processes:
                tool = replace(tool, processes=(*tool.processes, process))
            found[name] = tool
    return found


def registered() -> tuple[Tool, ...]:
    """Return the tools of this process, by name; safe in any thread."""
    return tuple(registry)


def describe(tools: Iterable[Tool]) -> Report:
    """Return the report of a process with these tools: fit for every database, and of no more than `MOST_TOOLS`."""
    reported = [tool for tool in tools if _may_have_limits(tool.name)]
    reported.sort(
        key=lambda tool: bool(tool.server)
    )  # no server pushes out what the site itself has
    return [sanitize_json(_describe(tool)) for tool in reported[:MOST_TOOLS]]


def _may_have_limits(name: str) -> bool:
    """A name that was cut or replaced would be that of another tool."""
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
        "limits": {key: value for key, value in limits.items() if value != getattr(_UNSET, key)},
    }


def _parse(values: Mapping[str, Any]) -> ReportedTool:
    """Read what a process has written, which may run another version of this code."""
    return ReportedTool(
        name=values["name"],
        title=values.get("title", ""),
        description=values.get("description", ""),
        server=values.get("server", ""),
        isolation=values.get("isolation", ""),
        tokens=values.get("tokens", 0),
        limits=_limits_of(values.get("limits", {})),
    )


def _limits_of(values: Mapping[str, Any]) -> ToolLimits:
    known: dict[str, Any] = {
        name: value
        for name, value in values.items()
        if name in LIMITS and isinstance(value, int | float)
    }
    rules = {rule.value: rule for rule in ApprovalRule}
    return ToolLimits(**{**known, "approval": rules.get(values.get("approval", ""))})
