"""The execution of tool calls, each from its request to its one outcome, without any framework (B8)."""
