"""Governance for the tools of other programs: plain callables, and agents of other frameworks (B8)."""
