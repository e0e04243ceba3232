"""What a model asks for, however it spells it, becomes a call that can be stored, addressed and sent back."""

import json
import re

import pytest

from turns.core.chat_model import MOST_CALLS, Reply, ToolCallDelta


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


def test_what_an_answer_asks_for_beyond_all_measure_is_told_to_the_model_and_not_run():
    asked_for = [asked(id=f"c{index}", index=index) for index in range(MOST_CALLS + 2)]
    calls = calls_of(*asked_for)

    assert [bool(call.problem) for call in calls] == [False] * MOST_CALLS + [True] * 2
    assert str(MOST_CALLS) in calls[-1].problem
