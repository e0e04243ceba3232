"""Agents that work for agents: their turns, how they are followed, cancelled and reported (C10)."""
