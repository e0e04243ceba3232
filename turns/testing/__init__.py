"""Chat models that follow a script, for tests.

model = ScriptedChatModel(
    [text("Let me look."), call("c1", "exec", command="ls")],
    [text("There is "), gate(anything_may_happen), text("one file.")],
)
"""

from turns.testing.scripts import (
    Failure,
    FunctionChatModel,
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
    "FunctionChatModel",
    "Gate",
    "Item",
    "ScriptedChatModel",
    "call",
    "failure",
    "gate",
    "partial_call",
    "text",
]
