"""The rows of turns: agents, conversations with their messages and events, turns, processes."""

from turns.models.acknowledgements import Acknowledgement
from turns.models.agents import Agent, AgentChange, AgentGroup
from turns.models.attachments import Attachment
from turns.models.conversations import (
    Conversation,
    ConversationChange,
    Event,
    Message,
    MessageTally,
    Operation,
    Viewer,
)
from turns.models.disconnects import DisconnectPolicy, DisconnectPolicyChange
from turns.models.processes import Process, ToolReport
from turns.models.turns import (
    CancelledTurn,
    CancelRequest,
    DeadlineOrder,
    Repair,
    RunningTurn,
    Turn,
)

__all__ = [
    "Acknowledgement",
    "Agent",
    "AgentChange",
    "AgentGroup",
    "Attachment",
    "CancelRequest",
    "CancelledTurn",
    "Conversation",
    "ConversationChange",
    "DeadlineOrder",
    "DisconnectPolicy",
    "DisconnectPolicyChange",
    "Event",
    "Message",
    "MessageTally",
    "Operation",
    "Process",
    "Repair",
    "RunningTurn",
    "ToolReport",
    "Turn",
    "Viewer",
]
