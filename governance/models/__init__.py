"""Rows of governance: the administrators' limits and their edits, the tool calls, the decisions on them, the MCP servers."""

from governance.models.approvals import Approval
from governance.models.calls import ToolCall
from governance.models.mcp_servers import McpServer, McpServerChange
from governance.models.policies import DefaultPolicy, Limits, PolicyChange, ToolPolicy

__all__ = [
    "Approval",
    "DefaultPolicy",
    "Limits",
    "McpServer",
    "McpServerChange",
    "PolicyChange",
    "ToolCall",
    "ToolPolicy",
]
