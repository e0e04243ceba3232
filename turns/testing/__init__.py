"""For tests of what runs turns: a chat model that follows a script, and a journal that remembers instead of storing.

model = ScriptedChatModel(
    [text("Let me look."), call("c1", "exec", command="ls")],
    [text("There is "), gate(anything_may_happen), text("one file.")],
)
"""

from turns.testing.journals import RecordingJournal, SavedReply
from turns.testing.scripts import (
    Failure,
    Gate,
    Item,
    ScriptedChatModel,
    call,
    failure,
    gate,
    partial_call,
    text,
)

__all__ = [
    "Failure",
    "Gate",
    "Item",
    "RecordingJournal",
    "SavedReply",
    "ScriptedChatModel",
    "call",
    "failure",
    "gate",
    "partial_call",
    "text",
]
