"""Short names for the parts of a history, for tests."""

from turns.core.messages import Message, TextBlock, ToolResultBlock, ToolUseBlock


def text(words):
    return TextBlock(text=words)


def call(id, name="exec", **changes):
    return ToolUseBlock(id=id, name=name, **changes)


def result(id, content=None, **changes):
    return ToolResultBlock(
        tool_use_id=id, content=f"result of {id}" if content is None else content, **changes
    )


def synthetic(id, content="[INTERRUPTED] earlier"):
    return result(id, content, is_error=True, is_synthetic=True)


def user(*blocks, turn=None):
    return Message(role="user", content=blocks, turn_id=turn)


def assistant(*blocks, turn=None, interrupted=False):
    return Message(role="assistant", content=blocks, turn_id=turn, interrupted=interrupted)


def kinds(repaired):
    return [item.kind for item in repaired.repairs]


HELLO, BYE = user(text("hello")), assistant(text("bye"))
VALID = (
    user(text("go"), turn="t1"),
    assistant(text("I call."), call("a"), call("b"), turn="t1"),
    user(result("a"), result("b", is_error=True), text("and more"), turn="t1"),
    assistant(text("half"), turn="t1", interrupted=True),
    user(text("again"), turn="t2"),
    assistant(call("a"), turn="t2"),
    user(result("a", "other"), turn="t2"),
)
