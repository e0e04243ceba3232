"""The Django admin of turns: history that can only be read, and one action that cancels what runs."""

from turns.admin.agents import AgentAdmin, AgentChangeAdmin
from turns.admin.audit import CancelRequestAdmin, RepairAdmin
from turns.admin.conversations import ConversationAdmin
from turns.admin.disconnects import DisconnectPolicyAdmin
from turns.admin.running import RunningTurnAdmin
from turns.admin.turns import TurnAdmin

__all__ = [
    "AgentAdmin",
    "AgentChangeAdmin",
    "CancelRequestAdmin",
    "ConversationAdmin",
    "DisconnectPolicyAdmin",
    "RepairAdmin",
    "RunningTurnAdmin",
    "TurnAdmin",
]
