"""The built-in tools of turns: they report a turn's status, read earlier results, and start sub-agents (C10)."""

from turns.tools.results import read_result
from turns.tools.sessions import sessions_ask, sessions_cancel, sessions_spawn
from turns.tools.status import session_status

__all__ = ["read_result", "session_status", "sessions_ask", "sessions_cancel", "sessions_spawn"]
