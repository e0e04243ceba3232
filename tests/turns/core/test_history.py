"""Each damage that a history can take is put right in its own way (H3, acceptance 60 to 71)."""

import pytest

from tests.turns.core.histories import (
    BYE,
    HELLO,
    VALID,
    assistant,
    call,
    kinds,
    result,
    synthetic,
    text,
    user,
)
from turns.core.messages import AttachmentBlock
from turns.core.repairs import repair, violations

A, B, ABC = assistant(call("a")), user(result("a")), assistant(call("a"), call("b"), call("c"))
IMAGE = AttachmentBlock.from_json({"type": "image"})
ONE, TWO = call("a", input={"n": 1}), call("a", input={"n": 2})
HALF = call("b", is_complete=False)
LOOKS, FINDS = assistant(call("a"), turn="t1"), user(result("a"), turn="t1")

# A damaged history, what becomes of it, and the repairs that are recorded.
DAMAGES = {
    "second result": (
        [A, user(result("a", "first")), user(result("a", "second"))],
        [A, user(result("a", "first"))],
        ["duplicate_result"],
    ),
    "second result behind words": (
        [A, user(result("a", "first")), user(text("so?"), result("a", "second"))],
        [A, user(result("a", "first")), user(text("so?"))],
        ["duplicate_result"],
    ),
    "late real result": (
        [A, user(synthetic("a")), HELLO, BYE, B],
        [A, B, HELLO, BYE],
        ["synthetic_replaced", "moved_result"],
    ),
    "late synthetic result": (
        [A, B, HELLO, user(synthetic("a"))],
        [A, B, HELLO],
        ["duplicate_result"],
    ),
    "result behind a user message": ([A, HELLO, B], [A, B, HELLO], ["moved_result"]),
    "result behind a later answer": (
        [LOOKS, HELLO, BYE, user(result("a"), text("thanks"), turn="t2")],
        [LOOKS, FINDS, HELLO, BYE, user(text("thanks"), turn="t2")],
        ["moved_result"],
    ),
    "result before its call": ([FINDS, LOOKS], [LOOKS, FINDS], ["moved_result"]),
    "result without a call": (
        [HELLO, user(result("x"), text("kept")), user(result("y"))],
        [HELLO, user(text("kept"))],
        ["unknown_result", "unknown_result"],
    ),
    "call cut off in the stream": (
        [HELLO, assistant(text("I will"), HALF, interrupted=True), user(result("b"))],
        [HELLO, assistant(text("I will"), interrupted=True)],
        ["malformed_call", "unknown_result"],
    ),
    "call cut off beside a whole one": (
        [assistant(call("a"), HALF), B],
        [A, B],
        ["malformed_call"],
    ),
    "call without an id": (
        [HELLO, assistant(call("")), BYE],
        [HELLO, BYE],
        ["malformed_call", "empty_message"],
    ),
    "call without a name": (
        [HELLO, assistant(call("a", "")), BYE],
        [HELLO, BYE],
        ["malformed_call", "empty_message"],
    ),
    "nothing but half a call": (
        [HELLO, assistant(HALF), BYE],
        [HELLO, BYE],
        ["malformed_call", "empty_message"],
    ),
    "blank answer": ([HELLO, assistant(text(" ")), BYE], [HELLO, BYE], ["empty_message"]),
    "empty user message": ([HELLO, user(), BYE], [HELLO, BYE], ["empty_message"]),
    "results in several messages": (
        [ABC, user(result("c")), user(result("a")), user(text("and"), result("b"))],
        [ABC, user(result("a"), result("b"), result("c")), user(text("and"))],
        ["moved_result", "moved_result"],
    ),
    "results in another order": (
        [assistant(call("a"), call("b")), user(result("b"), result("a"))],
        [assistant(call("a"), call("b")), user(result("a"), result("b"))],
        ["moved_result"],
    ),
    "result behind the text of its message": (
        [A, user(text("and"), result("a"))],
        [A, user(result("a"), text("and"))],
        ["moved_result"],
    ),
    "calls before text": (
        [assistant(call("a"), text("1"), call("b"), text("2")), user(result("a"), result("b"))],
        [assistant(text("1"), text("2"), call("a"), call("b")), user(result("a"), result("b"))],
        ["moved_call", "moved_call"],
    ),
    "call before an image": (
        [assistant(call("a"), IMAGE), B],
        [assistant(IMAGE, call("a")), B],
        ["moved_call"],
    ),
    "the same id twice": (
        [assistant(ONE, TWO), user(result("a"), result("a", "second"))],
        [assistant(ONE), B],
        ["duplicate_call", "duplicate_result"],
    ),
    "said by the wrong side": (
        [assistant(text("x"), call("a"), result("a")), user(call("b"), text("hi"))],
        [assistant(text("x"), call("a")), B, user(text("hi"))],
        ["moved_result", "malformed_call"],
    ),
}


@pytest.mark.parametrize(("damaged", "expected", "repairs"), DAMAGES.values(), ids=DAMAGES)
def test_a_damage_is_put_right(damaged, expected, repairs):
    repaired = repair(damaged)
    assert repaired.messages == tuple(expected)
    assert kinds(repaired) == repairs


def test_a_result_before_its_call_is_not_moved_to_another_turn():
    other = repair([FINDS, assistant(call("a"), turn="t2")])
    assert kinds(other) == ["unknown_result", "missing_result"]


def test_a_call_without_result_gets_a_flagged_error_result_directly_behind_it():
    repaired = repair([HELLO, assistant(call("a"), turn="t1"), HELLO])
    added = repaired.messages[2]
    assert (added.role, added.turn_id, len(added.content)) == ("user", "t1", 1)
    assert (added.tool_results[0].is_synthetic, added.tool_results[0].is_error) == (True, True)
    assert repaired.messages[3] is HELLO
    (item,) = repaired.repairs
    assert (item.tool_id, item.kind, item.cause.name, item.turn_id) == (
        "a",
        "missing_result",
        "crash",
        "t1",
    )
    assert item.text == added.tool_results[0].content


def test_only_the_missing_ones_of_a_step_are_added():
    repaired = repair([assistant(call("a"), call("b"), call("c")), user(result("b"))])
    results = repaired.messages[1].tool_results
    assert [(block.tool_use_id, block.is_synthetic) for block in results] == [
        ("a", True),
        ("b", False),
        ("c", True),
    ]
    assert kinds(repaired) == ["missing_result", "missing_result"]


def test_an_id_used_again_keeps_a_result_for_each_turn():
    history = [
        assistant(call("a")),
        user(result("a", "one")),
        HELLO,
        assistant(call("a")),
        user(result("a", "two")),
    ]
    assert repair(history).repairs == ()
    damaged = repair([assistant(call("z")), *history])
    assert damaged.messages[2:] == tuple(history)


def test_an_open_call_takes_no_result_that_stands_where_a_later_one_has_its_own():
    repaired = repair([assistant(call("a")), HELLO, assistant(call("a")), user(result("a", "two"))])
    contents = [block.content for message in repaired.messages for block in message.tool_results]
    assert contents[0].startswith("[INTERRUPTED]")
    assert contents[1] == "two"


def test_the_turn_of_a_late_result_tells_which_call_it_belongs_to():
    history = [
        assistant(call("a"), turn="t1"),
        HELLO,
        assistant(call("a"), turn="t2"),
        user(result("a"), turn="t1"),
    ]
    first, second = [
        block for message in repair(history).messages for block in message.tool_results
    ]
    assert (first.content, second.is_synthetic) == ("result of a", True)


@pytest.mark.parametrize("known", [(), (synthetic("a"),)])
def test_a_late_result_that_fits_two_open_calls_is_not_guessed(known):
    replies = [user(*known)] if known else []
    history = [
        assistant(call("a"), turn="t1"),
        *replies,
        HELLO,
        assistant(call("a"), turn="t2"),
        *replies,
        HELLO,
        user(result("a"), turn="t3"),
    ]
    repaired = repair(history)
    assert all(
        block.is_synthetic for message in repaired.messages for block in message.tool_results
    )
    assert kinds(repaired).count("ambiguous_result") == 1


@pytest.mark.parametrize("length", range(len(VALID) + 1))
def test_every_prefix_of_a_history_can_be_repaired(length):
    repaired = repair(VALID[:length])
    assert violations(repaired.messages) == []
    assert repaired.messages[:length] == VALID[:length]


def test_a_valid_history_is_returned_as_it_is():
    repaired = repair(VALID)
    assert repaired.repairs == ()
    assert all(after is before for after, before in zip(repaired.messages, VALID, strict=True))
    assert repair([]).messages == ()


def test_messages_that_need_no_repair_stay_the_same_objects():
    repaired = repair([*VALID, assistant(call("z"))])
    assert all(after is before for after, before in zip(repaired.messages, VALID, strict=False))
