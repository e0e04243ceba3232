"""The messages of conversations, the reports of sub-agents, and the history for a chat model."""
