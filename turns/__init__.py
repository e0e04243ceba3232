"""Conversations and their turns: rows, history, chat models, and whoever runs them; knows no browser."""

from turns.core.events import EVENTS, MessageEvent, TextDelta, TurnEvent
from turns.core.messages import MAIN_ARGUMENTS
from turns.core.turns import TurnStatus

__all__ = ["EVENTS", "MAIN_ARGUMENTS", "MessageEvent", "TextDelta", "TurnEvent", "TurnStatus"]
