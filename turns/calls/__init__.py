"""The tool calls of turns: how clients see them, questions to people, new limits, late ends."""
