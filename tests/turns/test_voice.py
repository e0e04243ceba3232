"""Turns that were spoken: what their model reads of cancelled calls, and that they are known to be of a voice (C7, C8)."""

import json
from typing import Any

import pytest

from governance import ScopeKind
from tests.turns.support import Props, Stage
from turns.running import runtime
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)


def read(result: str) -> dict[str, Any]:
    said = json.loads(result)
    assert (said["ok"], said["cancelled"]) == (False, True)
    return said


async def test_a_cancelled_call_is_an_object_that_nobody_repeats(stage: Stage, props: Props):
    model = stage.play(
        [call("a", "held"), call("b", "held"), call("c", "quick")], [text("I go on.")]
    )
    turn_id = await stage.say(source="voice")
    await stage.running(turn_id, "a", "b")
    await stage.cancel_call(turn_id, "a")
    await stage.listener.until("tool_result", tool_id="a")
    props.open("b")
    assert (await stage.ended(turn_id)).status == "completed"
    first, second, third = model.requests[1].messages[-1].tool_results
    said = read(first.content)
    assert (said["disposition"], first.is_error) == ("settled", True)
    assert said["error"]["message"].startswith('[CANCELLED] Tool "held" was cancelled by the user.')
    assert (second.content, third.content) == ("b finished", "done")


@pytest.mark.parametrize(
    ("tool", "bound", "disposition"),
    [
        ("held", 0.85, "settled"),
        ("stubborn", 0.85, "indeterminate"),
        ("stubborn", 0.05, "indeterminate"),  # the turn is ended without its runner
    ],
)
async def test_so_it_is_when_the_whole_turn_is_ended(
    stage: Stage, props: Props, settings, tool, bound, disposition
):
    settings.TURNS_CANCEL_BOUND = bound
    stage.play([call("a", tool)])
    turn_id = await stage.say(source="voice")
    await stage.running(turn_id, "a")
    await stage.say("stop", source="voice")
    await stage.ended(turn_id)
    made = (await stage.calls(turn_id))["a"]
    assert read(made.result)["disposition"] == made.disposition == disposition
    assert read((await stage.history())[-1].tool_results[0].content)
    props.open("a")


async def test_what_ends_otherwise_is_told_as_ever(stage: Stage):
    stage.play([call("a", "held", _meta={"timeout_ms": 30}), call("b", "failing")], [text("Hm.")])
    turn_id = await stage.say(source="voice")
    await stage.ended(turn_id)
    calls = await stage.calls(turn_id)
    assert calls["a"].result.startswith("[TIMEOUT]")
    assert calls["b"].result.startswith("[ERROR]")


async def test_the_calls_of_a_typed_turn_are_told_in_words(stage: Stage):
    stage.play([call("a", "held")])
    turn_id = await stage.say()
    await stage.running(turn_id, "a")
    await stage.say("stop", source="voice")
    await stage.ended(turn_id)
    assert (await stage.calls(turn_id))["a"].result.startswith("[CANCELLED]")


@pytest.mark.parametrize(
    ("source", "kind"), [("typed", ScopeKind.TEXT_REPLY), ("voice", ScopeKind.VOICE)]
)
async def test_a_turn_is_known_to_answer_a_text_or_a_voice(
    stage: Stage, props: Props, source, kind
):
    stage.play([call("a", "held")], [text("Fine.")])
    turn_id = await stage.say(source=source)
    await stage.running(turn_id, "a")
    live = runtime.find_turn(turn_id)
    assert live is not None
    assert live.turn.kind is kind
    props.open("a")
    await stage.ended(turn_id)
