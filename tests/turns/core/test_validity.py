"""The validator names every rule that a history breaks, and finds nothing in a valid one (H1)."""

import pytest

from tests.turns.core.histories import BYE, HELLO, VALID, assistant, call, result, text, user
from turns.core.repairs import violations


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        ([assistant(call("a"))], "the end: no results for a"),
        ([assistant(call("a")), BYE], "follows calls without results"),
        ([assistant(call("a")), HELLO], "results for () where (a) were asked for"),
        ([assistant(call("a"), call("b")), user(result("b"), result("a"))], "results for (b, a)"),
        ([assistant(call("a")), user(result("a"), result("a"))], "results for (a, a)"),
        ([HELLO, user(result("a"))], "results for (a) where () were"),
        ([assistant(call("a")), user(text("x"), result("a"))], "follows a text"),
        ([assistant(call("a"), text("x")), user(result("a"))], "followed by something else"),
        (
            [assistant(call("a"), call("a")), user(result("a"), result("a"))],
            "the same call id twice",
        ),
        ([assistant(call("a", is_complete=False)), user(result("a"))], "is incomplete"),
        ([user(text("x"), call("a"))], "a user cannot call tools"),
        ([assistant(text("x"), result("a"))], "an assistant cannot give tool results"),
        ([user()], "message 0: is empty"),
        ([assistant(text("\n"))], "message 0: is empty"),
    ],
)
def test_each_broken_rule_is_named(history, problem):
    assert any(problem in found for found in violations(history))


def test_a_valid_history_breaks_no_rule():
    assert violations(VALID) == []
