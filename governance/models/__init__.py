"""Rows of governance: the administrators' limits and their edits, the tool calls, the MCP servers."""

from governance.models.calls import ToolCall
from governance.models.mcp_servers import McpServer
from governance.models.policies import DefaultPolicy, Limits, PolicyChange, ToolPolicy, in_words

__all__ = [
    "DefaultPolicy",
    "Limits",
    "McpServer",
    "PolicyChange",
    "ToolCall",
    "ToolPolicy",
    "in_words",
]
