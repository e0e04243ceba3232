"""Limits in whole turns of the built-in agent, on its real tools: silence, and what the model asks for."""

import pytest

from governance import make_tool, registry
from governance import services as governance_services
from tests.support import eventually, until_touched
from tests.turns.support import ChatDriver, FakeTools, find_live_call, in_database
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)


async def limit(tool_name, by, **values):
    await in_database(
        lambda: governance_services.save_tool_policy(tool_name=tool_name, values=values, by=by)
    )


async def test_a_command_that_prints_goes_on_past_the_limit_for_silence_and_a_silent_one_ends(
    chat: ChatDriver, operator, tmp_path
):
    """Acceptance 13, with the limit as an administrator sets it."""
    await limit("exec", operator, idle_timeout_ms=60_000)
    stop = tmp_path / "stop"
    chat.use_script(
        [call("chatty", "exec", command=f"until [ -e {stop} ]; do echo on; sleep 0.05; done")],
        [call("silent", "exec", command="echo begun; sleep 600")],
        [text("Done.")],
    )
    turn_id = await chat.say()
    await until_touched(await printing(chat, turn_id, "chatty"))
    stop.touch()
    await printing(chat, turn_id, "silent")
    await limit("exec", operator, idle_timeout_ms=100)
    await chat.ended(turn_id)
    calls = await chat.calls(turn_id)
    assert (calls["chatty"].status, set(calls["chatty"].result.split())) == ("succeeded", {"on"})
    assert (calls["silent"].status, calls["silent"].error_type) == ("timed_out", "timeout")
    assert "It made no progress for that long." in calls["silent"].result
    assert calls["silent"].result.rstrip().endswith("begun")


async def printing(chat, turn_id, tool_id):
    """The running call once it has printed something."""
    await chat.running(turn_id, tool_id)
    live = find_live_call(turn_id, tool_id)
    await eventually(lambda: live.partial_output)
    return live


async def test_a_capped_wish_is_told_on_success_too(chat: ChatDriver, operator):
    await limit("quick", operator, ceiling_ms=60_000)
    wish = {"timeout_ms": 7_200_000}
    model = chat.use_script([call("a", "quick", _meta=wish), call("b", "quick")], [text("Well.")])
    turn = await chat.run()
    asked = {
        event["tool_id"]: event["asked_timeout_ms"]
        for event in chat.sink.stored(turn.conversation_id)
        if event["type"] == "tool_start"
    }
    assert asked == {"a": 7_200_000, "b": None}
    capped, plain = model.requests[1].messages[-1].tool_results
    note = "[NOTE] It requested 7200s; the maximum is 60s."
    assert (capped.content, plain.content) == (f"done\n{note}", "done")
    assert chat.sink.find("tool_result", tool_id="a")["result"] == capped.content


async def test_what_an_exception_says_is_read_by_model_and_person_where_a_setting_allows_it(
    chat: ChatDriver, fake_tools: FakeTools, settings
):
    async def results():
        calls = [call("a", "failing"), call("b", "fail_in_process", city="Rome")]
        model = chat.use_script(calls, [text("Hm.")])
        turn = await chat.run()
        rows = await chat.calls(turn.id)
        told = {
            each.tool_use_id: each.content for each in model.requests[1].messages[-1].tool_results
        }
        seen = {
            event["tool_id"]: event["result"]
            for event in chat.sink.stored(turn.conversation_id)
            if event["type"] == "tool_result" and event["turn_id"] == str(turn.id)
        }
        assert told == seen == {name: row.result for name, row in rows.items()}
        assert "tulip-mill" not in str(told) + str([row.detail for row in rows.values()])
        return told

    kinds = {"a": "RuntimeError", "b": "LookupError"}
    for call_id, result in (await results()).items():
        assert f"failed with {kinds[call_id]} (code execution_error)." in result
        assert "It said" not in result
    settings.GOVERNANCE_ERROR_TEXT = ["failing"]
    told = await results()
    assert "It said: the secret of the tool, token=***" in told["a"]
    assert "It said" not in told["b"]
    settings.GOVERNANCE_ERROR_TEXT = ["*"]
    assert "It said: no such city: Rome, password=***" in (await results())["b"]


async def test_the_servers_own_secrets_are_masked_wherever_they_stand(
    chat: ChatDriver, settings, monkeypatch
):
    settings.GOVERNANCE_ERROR_TEXT = ["tell_all"]
    settings.SHOP_PASSWORD = "daffodil hill"
    settings.MAILERS = {"default": {"OPTIONS": {"password": "letter box"}}}
    monkeypatch.setenv("SHOP_TOKEN", "garden gate")

    async def tell_all() -> str:
        raise ValueError(f"{settings.SECRET_KEY} and daffodil hill, garden gate, letter box")

    registry.register(make_tool(tell_all))
    try:
        turn = await chat.play([call("a", "tell_all")], [text("Hm.")])
    finally:
        registry.unregister("tell_all")
    assert "It said: *** and ***, ***, ***" in (await chat.calls(turn.id))["a"].result


async def test_calls_beyond_those_that_an_answer_may_ask_for_are_refused_aloud(
    chat: ChatDriver, settings
):
    settings.TURNS_MAX_CALLS_PER_ANSWER = 2
    asked = [call(name, "quick") for name in ("a", "b", "c")]
    model = chat.use_script(asked, [text("Hm.")])
    turn = await chat.run()
    calls = await chat.calls(turn.id)
    assert [calls[name].status for name in ("a", "b", "c")] == ["succeeded", "succeeded", "failed"]
    assert chat.sink.find("tool_result", tool_id="c")["error_type"] == "too_many_calls"
    told = model.requests[1].messages[-1].tool_results[-1]
    assert "One answer may ask for 2 tool calls at most" in told.content
    assert "next answer" in told.content


async def test_the_status_tells_a_model_how_its_turn_and_its_conversation_went(
    chat: ChatDriver, operator
):
    await limit("held", operator, timeout_ms=100)
    await chat.play([call("earlier", "held")], [text("Hm.")])
    model = chat.use_script(
        [call("good", "quick"), call("bad", "held")],
        [call("look", "session_status")],
        [text("I see.")],
    )
    turn = await chat.run()
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
