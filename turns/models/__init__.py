"""Rows of turns: agents, conversations with their messages and events, turns, owning processes."""

from turns.models.acknowledgements import Acknowledgement
from turns.models.agents import Agent, AgentChange
from turns.models.conversations import (
    Conversation,
    Event,
    Message,
    MessageTally,
    Operation,
    Viewer,
)
from turns.models.disconnects import DisconnectPolicy
from turns.models.processes import Process
from turns.models.turns import CancelRequest, DeadlineOrder, Repair, RunningTurn, Turn

__all__ = [
    "Acknowledgement",
    "Agent",
    "AgentChange",
    "CancelRequest",
    "Conversation",
    "DeadlineOrder",
    "DisconnectPolicy",
    "Event",
    "Message",
    "MessageTally",
    "Operation",
    "Process",
    "Repair",
    "RunningTurn",
    "Turn",
    "Viewer",
]
