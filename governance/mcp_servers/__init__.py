"""The MCP servers that administrators have set up: their rows, their edits, and their connections in this process."""
