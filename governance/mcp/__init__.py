"""The tools of MCP servers. Servers are connected on demand, one task owns each session, and the servers' tools are
governed like every other tool (G2).
"""
