"""The models: limits and their edits, tool calls and their durations, decisions, exports, MCP servers, activity."""

from governance.models.activity import Activity
from governance.models.approvals import Approval
from governance.models.calls import ToolCall
from governance.models.exports import Export
from governance.models.histograms import RolledUp, ToolDay, ToolHour
from governance.models.mcp_servers import McpServer, McpServerChange
from governance.models.policies import DefaultPolicy, Limits, PolicyChange, ToolPolicy

__all__ = [
    "Activity",
    "Approval",
    "DefaultPolicy",
    "Export",
    "Limits",
    "McpServer",
    "McpServerChange",
    "PolicyChange",
    "RolledUp",
    "ToolCall",
    "ToolDay",
    "ToolHour",
    "ToolPolicy",
]
