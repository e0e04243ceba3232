"""What clients may read of conversations and turns; checked for each user."""

from turns.selectors.conversations import (
    ConversationSummary,
    active_turn_ids,
    active_turns,
    conversation_events,
    get_conversation,
    get_turn,
    history,
    last_seq,
    last_seqs,
    list_agents,
    list_conversations,
    partial_text,
    processes_lack_shared_layer,
    reaches_back,
    snapshot,
    turn_events,
)

__all__ = [
    "ConversationSummary",
    "active_turn_ids",
    "active_turns",
    "conversation_events",
    "get_conversation",
    "get_turn",
    "history",
    "last_seq",
    "last_seqs",
    "list_agents",
    "list_conversations",
    "partial_text",
    "processes_lack_shared_layer",
    "reaches_back",
    "snapshot",
    "turn_events",
]
