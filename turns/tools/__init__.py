"""The tools of turns: what a model may ask about its turn, and agents that work for agents (C10)."""

from turns.tools.sessions import sessions_ask, sessions_cancel, sessions_spawn
from turns.tools.status import session_status

__all__ = ["session_status", "sessions_ask", "sessions_cancel", "sessions_spawn"]
