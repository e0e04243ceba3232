"""What a model asks for, however it spells it, becomes a call that can be stored, addressed and sent back."""

import json
import re

import pytest

from turns.core.chat_model import Notice, Reply, TextDelta, ThinkingDelta, ToolCallDelta


def calls_of(*deltas):
    reply = Reply()
    for delta in deltas:
        reply.take(delta)
    return reply.calls(scope="s")


def asked(*, id="c1", arguments="{}", index=0):
    return ToolCallDelta(index=index, id=id, name="quick", arguments=arguments)


@pytest.mark.parametrize(
    "id",
    ["x" * 300, "a/../b", "..", "a\0b", "a\nb", "a b", "a\ud800b", "é", "functions.weather:0"],
)
def test_an_id_can_stand_in_an_address(id):
    (call,) = calls_of(asked(id=id))

    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", call.id)


@pytest.mark.parametrize("id", ["toolu_01NRLabsLyVHZPKxbKvkfSMn", "call_a-b", "x" * 64])
def test_an_ordinary_id_stays_as_it_is(id):
    assert [call.id for call in calls_of(asked(id=id))] == [id]


def test_ids_that_only_their_odd_signs_told_apart_are_told_apart_still():
    ids = [call.id for call in calls_of(asked(id="a/b"), asked(id="a.b", index=1))]

    assert ids == ["a_b", "a_b_2"]


DEEP = '{"a": ' + "[" * 63 + "]" * 63 + "}"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ('{"a": NaN}', "are not valid JSON"),
        ('{"a": -Infinity}', "are not valid JSON"),
        ('{"a": 1e999}', "number that is too large"),
        ('{"a": ' + "9" * 5000 + "}", "are not valid JSON"),
        (DEEP.replace("[]", "[[]]"), "nested too deeply"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        ('{"a": 1, "b": [{"c": 1, "c": 2}]}', "give 'c' more than once"),
        ("[1]", "are not a JSON object"),
        ('"x"', "are not a JSON object"),
    ],
)
def test_arguments_that_nobody_could_store_or_send_back_are_a_problem_of_the_call(
    arguments, problem
):
    (call,) = calls_of(asked(arguments=arguments))

    assert problem in call.problem
    assert call.input == {}


@pytest.mark.parametrize("arguments", [DEEP, '{"a": 1.5e3}', '{"a": -0.0, "b": [{}]}'])
def test_ordinary_arguments_are_read(arguments):
    (call,) = calls_of(asked(arguments=arguments))

    assert (call.problem, call.input) == ("", json.loads(arguments))


THOUGHT, WORD = ThinkingDelta("Hm."), TextDelta("Yes.")
WAIT = Notice(code="retrying", message="The model is busy.")


@pytest.mark.parametrize(
    ("moments", "seconds"),
    [
        ([(1, THOUGHT), (8, WORD)], 8),
        ([(8, THOUGHT), (8, WORD), (20, WORD)], 8),  # all of them at the end
        ([(1, THOUGHT), (3, asked())], 3),
        ([(1, THOUGHT), (3, WORD), (10, THOUGHT), (12, WORD)], 12),
        ([(5, WAIT), (6, THOUGHT), (9, WORD)], 4),
        ([(1, THOUGHT), (7, THOUGHT)], 7),
    ],
)
def test_thinking_lasts_from_the_request_or_the_last_word_to_the_next_one(moments, seconds):
    now = 0.0
    reply = Reply(clock=lambda: now)
    for moment, delta in moments:
        now = float(moment)
        reply.take(delta)

    assert reply.thoughts["duration_ms"] == seconds * 1000


@pytest.mark.parametrize("deltas", [[], [WORD], [ThinkingDelta("\n\n"), WORD]])
def test_what_has_no_words_was_not_thought(deltas):
    reply = Reply()
    for delta in deltas:
        reply.take(delta)

    assert reply.thoughts is None
