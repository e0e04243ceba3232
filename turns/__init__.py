"""Conversations and their turns: rows, history, chat models, and whoever runs them; knows no browser."""

from turns.core import tool_events as _declared  # noqa: F401 - its classes register themselves
from turns.core import wire
from turns.core.events import EVENTS, TextDelta, TurnEvent
from turns.core.messages import MAIN_ARGUMENTS
from turns.core.turns import TurnStatus

__all__ = ["EVENTS", "MAIN_ARGUMENTS", "TextDelta", "TurnEvent", "TurnStatus", "wire"]
