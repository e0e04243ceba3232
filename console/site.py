"""Registers the console's pages in an `AdminSite`."""

from typing import Any

from django.apps import apps
from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.auth import get_user_model
from django.db.models import Model

from console.activity import ActivityAdmin
from console.agents import AgentAdmin
from console.audit import CancelledTurnAdmin, CancelRequestAdmin, RepairAdmin
from console.calls import ApprovalAdmin, ToolCallAdmin
from console.changes import (
    AgentChangeAdmin,
    ConversationChangeAdmin,
    DisconnectPolicyChangeAdmin,
    ExportAdmin,
    McpServerChangeAdmin,
    PolicyChangeAdmin,
)
from console.conversations import AttachmentAdmin, ConversationAdmin
from console.disconnects import DisconnectPolicyAdmin
from console.limits import DefaultPolicyAdmin, ToolPolicyAdmin
from console.mcp import McpServerAdmin
from console.people import ForgetsPeople
from console.processes import ProcessAdmin
from console.running import RunningTurnAdmin
from console.turns import TurnAdmin

PAGES: dict[str, Any] = {
    "governance.Activity": ActivityAdmin,
    "governance.Approval": ApprovalAdmin,
    "governance.DefaultPolicy": DefaultPolicyAdmin,
    "governance.Export": ExportAdmin,
    "governance.McpServer": McpServerAdmin,
    "governance.McpServerChange": McpServerChangeAdmin,
    "governance.PolicyChange": PolicyChangeAdmin,
    "governance.ToolCall": ToolCallAdmin,
    "governance.ToolPolicy": ToolPolicyAdmin,
    "turns.Agent": AgentAdmin,
    "turns.AgentChange": AgentChangeAdmin,
    "turns.Attachment": AttachmentAdmin,
    "turns.CancelRequest": CancelRequestAdmin,
    "turns.CancelledTurn": CancelledTurnAdmin,
    "turns.Conversation": ConversationAdmin,
    "turns.ConversationChange": ConversationChangeAdmin,
    "turns.DisconnectPolicy": DisconnectPolicyAdmin,
    "turns.DisconnectPolicyChange": DisconnectPolicyChangeAdmin,
    "turns.Process": ProcessAdmin,
    "turns.Repair": RepairAdmin,
    "turns.RunningTurn": RunningTurnAdmin,
    "turns.Turn": TurnAdmin,
}
if apps.is_installed("webchat"):
    from console.tokens import ApiTokenAdmin, ApiTokenChangeAdmin

    PAGES |= {"webchat.ApiToken": ApiTokenAdmin, "webchat.ApiTokenChange": ApiTokenChangeAdmin}


def register(site: AdminSite, *, base: type[Any] = ModelAdmin) -> None:
    """Register the console's admins, replacing those registered for the same models.

    `base` is the `ModelAdmin` of the site's theme, which styles fields and buttons.
    """
    for label, page in PAGES.items():
        model: type[Model] = apps.get_model(label)
        if site.is_registered(model):
            site.unregister(model)
        dressed = page if issubclass(page, base) else type(page.__name__, (page, base), {})
        site.register(model, dressed)
    _add_forgetting(site)


def _add_forgetting(site: AdminSite) -> None:
    """Add the "forget" link and action to the site's user admin."""
    users = get_user_model()
    if not site.is_registered(users):
        return
    admin_class: type[Any] = type(site.get_model_admin(users))
    if not issubclass(admin_class, ForgetsPeople):
        site.unregister(users)
        site.register(users, type(admin_class.__name__, (ForgetsPeople, admin_class), {}))
