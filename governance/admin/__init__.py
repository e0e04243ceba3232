"""The Django admin of governance: limits that are edited live, and history that can only be read."""

from governance.admin.approvals import ApprovalAdmin
from governance.admin.calls import ToolCallAdmin
from governance.admin.changes import ExportAdmin, PolicyChangeAdmin
from governance.admin.mcp import McpServerAdmin, McpServerChangeAdmin
from governance.admin.policies import DefaultPolicyAdmin, ToolPolicyAdmin

__all__ = [
    "ApprovalAdmin",
    "DefaultPolicyAdmin",
    "ExportAdmin",
    "McpServerAdmin",
    "McpServerChangeAdmin",
    "PolicyChangeAdmin",
    "ToolCallAdmin",
    "ToolPolicyAdmin",
]
