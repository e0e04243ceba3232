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
from turns.core.history import repair, violations
from turns.core.messages import AttachmentBlock


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


@pytest.mark.parametrize(
    "second", [user(result("a", "second")), user(text("so?"), result("a", "second"))]
)
def test_of_two_results_the_first_is_kept(second):
    repaired = repair([assistant(call("a")), user(result("a", "first")), second])
    assert [block.content for message in repaired.messages for block in message.tool_results] == [
        "first"
    ]
    assert kinds(repaired) == ["duplicate_result"]


def test_a_late_real_result_replaces_a_synthetic_one():
    late = user(result("a", "real"))
    repaired = repair([assistant(call("a")), user(synthetic("a")), HELLO, BYE, late])
    assert repaired.messages == (assistant(call("a")), user(result("a", "real")), HELLO, BYE)
    assert kinds(repaired) == ["synthetic_replaced", "moved_result"]


def test_a_late_synthetic_result_replaces_nothing():
    real = [assistant(call("a")), user(result("a", "real"))]
    repaired = repair([*real, HELLO, user(synthetic("a"))])
    assert repaired.messages == (*real, HELLO)
    assert kinds(repaired) == ["duplicate_result"]


def test_a_result_behind_a_user_message_is_moved_to_its_call():
    repaired = repair([assistant(call("a")), HELLO, user(result("a"))])
    assert repaired.messages == (assistant(call("a")), user(result("a")), HELLO)
    assert kinds(repaired) == ["moved_result"]


def test_a_result_behind_a_later_answer_is_moved_to_its_call():
    repaired = repair(
        [assistant(call("a"), turn="t1"), HELLO, BYE, user(result("a"), text("thanks"), turn="t2")]
    )
    assert repaired.messages == (
        assistant(call("a"), turn="t1"),
        user(result("a"), turn="t1"),
        HELLO,
        BYE,
        user(text("thanks"), turn="t2"),
    )


def test_a_result_before_its_call_is_moved_within_its_turn_only():
    repaired = repair([user(result("a"), turn="t1"), assistant(call("a"), turn="t1")])
    assert repaired.messages == (assistant(call("a"), turn="t1"), user(result("a"), turn="t1"))
    other = repair([user(result("a"), turn="t1"), assistant(call("a"), turn="t2")])
    assert kinds(other) == ["unknown_result", "missing_result"]


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


def test_a_result_without_a_call_is_removed():
    repaired = repair([HELLO, user(result("x"), text("kept")), user(result("y"))])
    assert repaired.messages == (HELLO, user(text("kept")))
    assert kinds(repaired) == ["unknown_result", "unknown_result"]


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


def test_a_call_cut_off_in_the_stream_is_dropped_and_never_answered():
    cut = assistant(text("I will"), call("a", is_complete=False), interrupted=True)
    repaired = repair([HELLO, cut, user(result("a"))])
    assert repaired.messages == (HELLO, assistant(text("I will"), interrupted=True))
    assert kinds(repaired) == ["malformed_call", "unknown_result"]


@pytest.mark.parametrize(
    "block", [call(""), call("a", ""), call("a", is_complete=False), text(" ")]
)
def test_an_assistant_message_with_nothing_left_is_removed(block):
    repaired = repair([HELLO, assistant(block), BYE])
    assert repaired.messages == (HELLO, BYE)
    assert "empty_message" in kinds(repaired)


def test_the_whole_calls_beside_a_malformed_one_are_kept():
    repaired = repair([assistant(call("a"), call("b", is_complete=False)), user(result("a"))])
    assert repaired.messages == (assistant(call("a")), user(result("a")))


def test_empty_user_message_is_removed():
    assert repair([HELLO, user(), BYE]).messages == (HELLO, BYE)


def test_parallel_results_in_several_messages_become_one_in_call_order_before_the_text():
    history = [
        assistant(call("a"), call("b"), call("c")),
        user(result("c")),
        user(result("a")),
        user(text("and"), result("b")),
    ]
    repaired = repair(history)
    assert repaired.messages == (
        assistant(call("a"), call("b"), call("c")),
        user(result("a"), result("b"), result("c")),
        user(text("and")),
    )
    assert set(kinds(repaired)) == {"moved_result"}


def test_results_are_put_into_call_order_within_their_message():
    repaired = repair([assistant(call("a"), call("b")), user(result("b"), result("a"))])
    assert repaired.messages[1] == user(result("a"), result("b"))
    assert kinds(repaired) == ["moved_result"]


def test_results_are_put_before_the_text_of_their_message():
    repaired = repair([assistant(call("a")), user(text("and"), result("a"))])
    assert repaired.messages[1] == user(result("a"), text("and"))
    assert kinds(repaired) == ["moved_result"]


def test_calls_are_put_behind_the_text_of_their_message():
    repaired = repair(
        [assistant(call("a"), text("one"), call("b"), text("two")), user(result("a"), result("b"))]
    )
    assert repaired.messages[0] == assistant(text("one"), text("two"), call("a"), call("b"))
    assert kinds(repaired) == ["moved_call", "moved_call"]


def test_calls_are_put_behind_the_images_of_their_message_which_stay():
    image = AttachmentBlock.from_json({"type": "image"})
    repaired = repair([assistant(call("a"), image), user(result("a"))])
    assert repaired.messages[0] == assistant(image, call("a"))
    assert kinds(repaired) == ["moved_call"]


def test_the_same_id_twice_in_one_message_is_called_once():
    first, second = call("a", input={"n": 1}), call("a", input={"n": 2})
    repaired = repair([assistant(first, second), user(result("a"), result("a", "second"))])
    assert repaired.messages == (assistant(first), user(result("a")))
    assert kinds(repaired) == ["duplicate_call", "duplicate_result"]


def test_blocks_said_by_the_wrong_side_are_put_right():
    repaired = repair([assistant(text("x"), call("a"), result("a")), user(call("b"), text("hi"))])
    assert repaired.messages == (
        assistant(text("x"), call("a")),
        user(result("a")),
        user(text("hi")),
    )
    assert kinds(repaired) == ["moved_result", "malformed_call"]


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
