"""The tools of MCP servers. Servers are connected lazily, with one task for each session, and their tools are governed
like every other tool (G2).
"""
