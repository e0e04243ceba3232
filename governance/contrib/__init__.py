"""Governance for the tools of others: plain callables, and agents of other frameworks (B8)."""
