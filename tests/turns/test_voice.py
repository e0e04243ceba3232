"""Spoken turns: what their model reads of cancelled calls, and that they are known as spoken (C7, C8)."""

import json
from typing import Any

import pytest

from governance import ScopeKind
from tests.turns.support import ChatDriver, FakeTools
from turns.running import runtime
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)


def read(result: str) -> dict[str, Any]:
    said = json.loads(result)
    assert (said["ok"], said["cancelled"]) == (False, True)
    return said


async def test_a_cancelled_call_is_an_object_that_nobody_repeats(
    chat: ChatDriver, fake_tools: FakeTools
):
    model = chat.use_script(
        [call("a", "held"), call("b", "held"), call("c", "quick")], [text("I go on.")]
    )
    turn_id = await chat.say(source="voice")
    await chat.running(turn_id, "a", "b")
    await chat.cancel_call(turn_id, "a")
    await chat.sink.until("tool_result", tool_id="a")
    fake_tools.open("b")
    assert (await chat.ended(turn_id)).status == "completed"
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
    chat: ChatDriver, fake_tools: FakeTools, settings, tool, bound, disposition
):
    settings.TURNS_CANCEL_BOUND = bound
    chat.use_script([call("a", tool)])
    turn_id = await chat.say(source="voice")
    await chat.running(turn_id, "a")
    await chat.say("stop", source="voice")
    await chat.ended(turn_id)
    made = (await chat.calls(turn_id))["a"]
    assert read(made.result)["disposition"] == made.disposition == disposition
    assert read((await chat.history())[-1].tool_results[0].content)
    fake_tools.open("a")


async def test_what_ends_otherwise_is_told_as_ever(chat: ChatDriver):
    chat.use_script(
        [call("a", "held", _meta={"timeout_ms": 30}), call("b", "failing")], [text("Hm.")]
    )
    turn_id = await chat.say(source="voice")
    await chat.ended(turn_id)
    calls = await chat.calls(turn_id)
    assert calls["a"].result.startswith("[TIMEOUT]")
    assert calls["b"].result.startswith("[ERROR]")


async def test_the_calls_of_a_typed_turn_are_told_in_words(chat: ChatDriver):
    turn_id = await chat.begin([call("a", "held")])
    await chat.say("stop", source="voice")
    await chat.ended(turn_id)
    assert (await chat.calls(turn_id))["a"].result.startswith("[CANCELLED]")


@pytest.mark.parametrize(
    ("source", "kind"), [("typed", ScopeKind.TEXT_REPLY), ("voice", ScopeKind.VOICE)]
)
async def test_a_turn_is_known_to_answer_a_text_or_a_voice(
    chat: ChatDriver, fake_tools: FakeTools, source, kind
):
    chat.use_script([call("a", "held")], [text("Fine.")])
    turn_id = await chat.say(source=source)
    await chat.running(turn_id, "a")
    live = runtime.find_turn(turn_id)
    assert live is not None
    assert live.turn.kind is kind
    fake_tools.open("a")
    await chat.ended(turn_id)
