"""The tools of this site: those of this process, those of the MCP servers, and those that only other processes have."""

from governance import selectors
from governance.core.registry import registry
from governance.models import ToolPolicy
from governance.selectors import OfferedTool
from turns.processes import tool_reports


def offered() -> list[OfferedTool]:
    return selectors.offered_tools(tool_reports.read())


def find(name: str) -> OfferedTool | None:
    """Return the tool with this name in a live process or on an MCP server; None if there is none."""
    if name in registry:
        return selectors.find_tool(name)
    return next((tool for tool in offered() if tool.name == name), None)


def known() -> list[str]:
    """Return the sorted names of all tools that this site offers or has limits for."""
    names = {tool.name for tool in offered()}
    return sorted(names.union(ToolPolicy.objects.values_list("tool_name", flat=True)) - {""})
