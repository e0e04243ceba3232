"""For tests of what runs turns: a chat model that follows a script.

model = ScriptedChatModel(
    [text("Let me look."), call("c1", "exec", command="ls")],
    [text("There is "), gate(anything_may_happen), text("one file.")],
)
"""

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
    "ScriptedChatModel",
    "call",
    "failure",
    "gate",
    "partial_call",
    "text",
]
