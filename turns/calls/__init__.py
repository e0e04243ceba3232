"""The tool calls of turns: their serialization, their questions to people, changes to their limits, and late results."""
