"""Calls as no model should spell them: stored, answered, and the conversation goes on."""

import math

import pytest

from governance import ToolContext, make_tool, registry
from tests.turns.support import ChatDriver
from turns.testing import call, partial_call, text

pytestmark = pytest.mark.django_db(transaction=True)

DEEP = '{"text": ' + "[" * 900 + "]" * 900 + "}"


async def test_odd_calls_are_answered_and_the_conversation_goes_on(chat: ChatDriver):
    model = chat.use_script(
        [
            call("x" * 300, "quick"),
            call("a/../\0b\ud800", "quick", text="a\0b"),
            call("c" * 10, "n\0" * 300),
            partial_call("nan", "quick", arguments='{"text": NaN}'),
            partial_call("deep", "quick", arguments=DEEP),
        ],
        [text("So much.")],
        [text("Now this.")],
    )

    turn = await chat.run()

    assert turn.status == "completed"
    calls = await chat.calls(turn.id)
    assert [row.status for row in calls.values()] == ["succeeded"] * 2 + ["failed"] * 3
    assert set(calls) == {"x" * 64, "a_____b_", "c" * 10, "nan", "deep"}
    told = [result.content for result in model.requests[1].messages[-1].tool_results]
    assert "not valid JSON" in told[3]
    assert "nested too deeply" in told[4]
    assert (await chat.run("and now?")).status == "completed"


async def test_odd_progress_is_left_out_and_holds_up_that_of_no_other_call(chat: ChatDriver):
    """JSON has no NaN, and the progress of all calls of a process is written together."""

    async def odd(context: ToolContext) -> str:
        context.progress("half", progress=math.nan, total=math.inf)
        await chat.sink.until("tool_progress", message="half")
        context.progress("more", progress="seven", total=object())  # type: ignore[arg-type]
        await chat.sink.until("tool_progress", message="more")
        return "done"

    registry.register(make_tool(odd))
    try:
        turn = await chat.play([call("a", "odd")], [text("Fine.")])
    finally:
        registry.unregister("odd")

    assert (await chat.calls(turn.id))["a"].result == "done"
    told = [event for event in chat.sink.events if event["type"] == "tool_progress"]
    assert [event["message"] for event in told] == ["half", "more"]
    assert not any({"progress", "total"} & event.keys() for event in told)
