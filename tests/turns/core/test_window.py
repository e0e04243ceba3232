"""What the model stops reading when a conversation outgrows its context window."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.turns.core.histories import assistant, call, result, text, user
from tests.turns.core.test_history_properties import valid_histories
from turns.core import window
from turns.core.messages import AttachmentBlock
from turns.core.repairs import violations
from turns.core.window import KEEP_ALL, Kept, apply, fitted, shrunk, tokens_of_prompt

HEAD = 600
LONG = "x" * 3_000


def turn(number, *contents):
    """A turn that makes a call for each of the results."""
    name = f"t{number}"
    messages = [user(text("go"), turn=name)]
    for step, content in enumerate(contents):
        id = f"c{step}"
        messages += [
            assistant(call(id, name=f"tool{number}"), turn=name),
            user(result(id, content), turn=name),
        ]
    return [*messages, assistant(text("done"), turn=name)]


def conversation(turns, *contents):
    """Some turns with these results each, and the beginning of the next one."""
    past = [message for number in range(turns) for message in turn(number, *contents)]
    return [*past, user(text("and now?"), turn=f"t{turns}")]


@st.composite
def conversations(draw):
    lengths = st.lists(st.integers(0, 4_000), max_size=3)
    turns = draw(st.lists(lengths, min_size=1, max_size=8))
    messages = [
        message
        for number, sizes in enumerate(turns)
        for message in turn(number, *("y" * size for size in sizes))
    ]
    return messages[:-1] if messages[-1].role == "assistant" else messages


def fits(messages, kept, room):
    return tokens_of_prompt(apply(messages, kept), head=HEAD, rate=kept.rate) <= room


@given(conversations(), st.integers(300, 9_000))
def test_what_is_left_is_valid_has_the_newest_message_and_fits_if_anything_more_could_go(
    messages, room
):
    kept = fitted(messages, KEEP_ALL, head=HEAD, room=room)
    prompt = apply(messages, kept)
    assert violations(prompt) == []
    assert prompt[-1] == messages[-1]
    assert prompt[0].role == "user"
    assert fits(messages, kept, room) or shrunk(messages, kept, head=HEAD, room=room) == kept


@given(valid_histories().filter(bool), st.integers(1, 400))
def test_results_stay_with_their_calls_also_where_they_name_another_turn(messages, room):
    prompt = apply(messages, fitted(messages, KEEP_ALL, head=0, room=room))
    assert violations(prompt) == []
    assert prompt[-1] == messages[-1]


@given(conversations(), st.integers(300, 9_000))
def test_what_fits_once_is_kept_until_it_no_longer_fits(messages, room):
    kept = fitted(messages, KEEP_ALL, head=HEAD, room=room)
    assert fitted(messages, kept, head=HEAD, room=room) == kept


@given(conversations())
def test_a_smaller_prompt_is_found_until_only_the_newest_turn_is_there(messages):
    kept = KEEP_ALL
    while (less := shrunk(messages, kept, head=HEAD, room=100)) != kept:
        kept = less
    assert {message.turn_id for message in apply(messages, kept)} == {messages[-1].turn_id}


def test_old_results_become_a_line_with_the_name_of_their_tool_before_any_turn_is_left_out():
    messages = conversation(6, LONG)
    kept = fitted(messages, KEEP_ALL, head=HEAD, room=5_900)
    assert (kept.turn, kept.result_turn) == ("", "t4")
    contents = [
        block.content for message in apply(messages, kept) for block in message.tool_results
    ]
    assert "tool0" in contents[0]
    assert "3,000" in contents[0]
    assert contents[-2:] == [LONG, LONG]


def test_the_images_of_a_cleared_result_go_and_those_of_a_person_stay():
    shown = AttachmentBlock(
        type="image", attachment_id="1", name="a", media_type="image/png", tool_use_id="c0"
    )
    sent = replace(shown, tool_use_id="")
    messages = conversation(2, LONG)
    messages[0] = user(text("go"), sent, turn="t0")
    messages[2] = user(*messages[2].content, shown, turn="t0")
    prompt = apply(messages, Kept(result_turn="t1"))
    assert [block for message in prompt for block in message.attachments] == [sent]


def test_a_short_result_is_not_cleared():
    messages = conversation(2, "ok")
    assert apply(messages, Kept(result_turn="t2")) == messages


def test_earlier_steps_of_the_running_turn_are_the_last_to_be_cleared():
    messages = turn(0, LONG, LONG, LONG)[:-1]
    kept = fitted(messages, KEEP_ALL, head=HEAD, room=2_000)
    contents = [
        block.content for message in apply(messages, kept) for block in message.tool_results
    ]
    assert [content == LONG for content in contents] == [False, False, True]


def test_a_turn_that_is_no_longer_in_the_history_has_no_effect():
    messages = conversation(2, LONG)
    gone = Kept(turn="x", result_turn="x", seen_turn="x", seen=3)
    assert apply(messages, gone) == messages


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"input_tokens": 5_000, "output_tokens": 20, "requests": 1}, True),
        ({"input_tokens": 5_000, "output_tokens": 20, "requests": 2}, False),  # two prompts
        ({"output_tokens": 20}, False),
    ],
)
def test_the_last_answer_counts_all_that_came_before_it(usage, counts):
    messages = conversation(1, LONG)
    messages[-2] = replace(messages[-2], usage=usage)
    tokens = tokens_of_prompt(messages, head=HEAD)
    assert (5_020 < tokens < 5_100) is counts


def test_an_answer_from_before_the_clearing_no_longer_counts():
    messages = conversation(6, LONG)
    messages[-2] = replace(messages[-2], usage={"input_tokens": 9_000, "output_tokens": 1})
    kept = fitted(messages, KEEP_ALL, head=HEAD, room=8_000)
    assert tokens_of_prompt(apply(messages, kept), head=HEAD, rate=kept.rate) < 6_000


def test_what_is_kept_can_be_stored():
    kept = Kept(turn="t1", result_turn="t2", steps=2, seen_turn="t3", seen=4, rate=2.5)
    assert Kept.from_json(kept.to_json()) == kept


@pytest.mark.parametrize(
    ("size", "most", "reserve"), [(200_000, None, 2_000), (8_000, None, 1_000), (200_000, 500, 500)]
)
def test_room_for_the_answer_is_reserved(size, most, reserve):
    assert window.reserve_of(size, most) == reserve
