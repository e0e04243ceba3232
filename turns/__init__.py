"""Conversations and their turns: rows, history, chat models, and the processes that run them; independent of browsers."""

from turns.core import wire
from turns.core.events import EVENTS, TextDelta, ThoughtDelta, TurnEvent
from turns.core.messages import MAIN_ARGUMENTS
from turns.core.turns import TurnStatus

__version__ = "0.1.0"

__all__ = [
    "EVENTS",
    "MAIN_ARGUMENTS",
    "TextDelta",
    "ThoughtDelta",
    "TurnEvent",
    "TurnStatus",
    "wire",
]
