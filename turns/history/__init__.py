"""What was said: messages, reports of sub-agents, and the history that a chat model gets."""
