"""MCP servers as tools: connected lazily, one task for each session, governed like every other tool (G2)."""
