"""The Django admin of turns: history that can only be read, and one action that cancels what runs."""

from governance import call_filters, call_links
from turns.admin import exports, turn_filters
from turns.admin.agents import AgentAdmin, AgentChangeAdmin
from turns.admin.attachments import AttachmentAdmin
from turns.admin.audit import CancelRequestAdmin, RepairAdmin
from turns.admin.cancellations import CancelledTurnAdmin, register_columns
from turns.admin.conversations import ConversationAdmin, ConversationChangeAdmin
from turns.admin.disconnects import DisconnectPolicyAdmin, DisconnectPolicyChangeAdmin
from turns.admin.processes import ProcessAdmin
from turns.admin.running import RunningTurnAdmin
from turns.admin.turn_links import LABELS, LISTED, links_of_groups
from turns.admin.turns import TurnAdmin

call_links.register(links_of_groups, labels=LABELS, listed=LISTED)
call_filters.register(*turn_filters.of_calls())
exports.register()
register_columns()

__all__ = [
    "AgentAdmin",
    "AgentChangeAdmin",
    "AttachmentAdmin",
    "CancelRequestAdmin",
    "CancelledTurnAdmin",
    "ConversationAdmin",
    "ConversationChangeAdmin",
    "DisconnectPolicyAdmin",
    "DisconnectPolicyChangeAdmin",
    "ProcessAdmin",
    "RepairAdmin",
    "RunningTurnAdmin",
    "TurnAdmin",
]
