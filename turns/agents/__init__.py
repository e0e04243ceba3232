"""Who answers in a conversation: agents, their edits, and the tools that they are offered."""
