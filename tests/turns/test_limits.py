"""Limits in whole turns of the built-in agent, on its real tools: silence, wishes of the model, and what it can ask."""

import pytest

from governance import services as governance
from tests.turns.support import Stage, in_database
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)


async def limit(tool_name, by, **values):
    await in_database(
        lambda: governance.save_tool_policy(tool_name=tool_name, values=values, by=by)
    )


async def test_a_command_that_prints_goes_on_past_the_limit_for_silence_and_a_silent_one_ends(
    stage: Stage, operator
):
    """Acceptance 13, with the limit as an administrator sets it."""
    await limit("exec", operator, idle_timeout_ms=700)
    stage.play(
        [call("chatty", "exec", command="for i in 1 2 3 4 5 6; do echo $i; sleep 0.2; done")],
        [call("silent", "exec", command="echo begun; sleep 60")],
        [text("Done.")],
    )
    turn = await stage.run()
    calls = await stage.calls(turn.id)
    assert (calls["chatty"].status, calls["chatty"].result) == ("succeeded", "1\n2\n3\n4\n5\n6")
    assert calls["chatty"].duration_ms > 700
    assert (calls["silent"].status, calls["silent"].error_type) == ("timed_out", "timeout")
    assert "It made no progress for that long." in calls["silent"].result
    assert calls["silent"].result.rstrip().endswith("begun")


async def test_a_wish_for_more_time_than_is_allowed_is_capped_and_the_model_told(
    stage: Stage, operator
):
    await limit("held", operator, ceiling_ms=300)
    wish = {"timeout_ms": 7_200_000}
    model = stage.play([call("a", "held", _meta=wish)], [text("Then not.")])
    turn = await stage.run()
    started = stage.listener.find("tool_start", tool_id="a")
    assert (started["timeout_ms"], started["timeout_source"]) == (300, "hint")
    assert (await stage.calls(turn.id))["a"].status == "timed_out"
    (told,) = model.requests[1].messages[-1].tool_results
    assert told.content.startswith('[TIMEOUT] Tool "held" did not respond within 0.3s.')
    assert "It had asked for 7200s, which is more than is allowed." in told.content


async def test_a_capped_wish_is_told_on_success_too(stage: Stage, operator):
    await limit("quick", operator, ceiling_ms=60_000)
    wish = {"timeout_ms": 7_200_000}
    model = stage.play([call("a", "quick", _meta=wish), call("b", "quick")], [text("Well.")])
    turn = await stage.run()
    asked = {
        event["tool_id"]: event["asked_timeout_ms"]
        for event in stage.listener.stored(turn.conversation_id)
        if event["type"] == "tool_start"
    }
    assert asked == {"a": 7_200_000, "b": None}
    capped, plain = model.requests[1].messages[-1].tool_results
    note = "[NOTE] It had asked for 7200s; the most that is allowed is 60s."
    assert (capped.content, plain.content) == (f"done\n{note}", "done")
    assert stage.listener.find("tool_result", tool_id="a")["result"] == capped.content


async def test_a_limit_without_a_unit_is_refused_aloud(stage: Stage):
    model = stage.play([call("a", "quick", _meta={"timeout": 300_000})], [text("Hm.")])
    await stage.run()
    assert stage.listener.find("tool_result", tool_id="a")["error_type"] == "invalid_input"
    (told,) = model.requests[1].messages[-1].tool_results
    assert "_meta.timeout has no unit; write _meta.timeout_ms, in milliseconds" in told.content


async def test_the_status_tells_a_model_how_its_turn_and_its_conversation_went(
    stage: Stage, operator
):
    await limit("held", operator, timeout_ms=100)
    stage.play([call("earlier", "held")], [text("Hm.")])
    await stage.run()
    model = stage.play(
        [call("good", "quick"), call("bad", "held")],
        [call("look", "session_status")],
        [text("I see.")],
    )
    turn = await stage.run()
    assert turn.status == "completed"
    (status,) = model.requests[2].messages[-1].tool_results
    lines = status.content.splitlines()
    assert lines[0] == "Other tool calls of this turn: 2."
    assert any(line.startswith("- quick (good): succeeded") for line in lines)
    assert any(line.startswith("- held (bad): timed out") for line in lines)
    assert not any("(earlier)" in line for line in lines)
    assert "Timed out in this conversation: held (2×)." in lines
    assert "Health: degraded: 2 timeouts, of 4 calls in this conversation." in lines
    assert lines[-1].startswith(
        ("Time left in this turn: 29 min", "Time left in this turn: 30 min")
    )
