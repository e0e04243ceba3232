"""Servers that are commands: two written by others, under the real executor (G2)."""

import asyncio
import json
import sys
from dataclasses import replace

from governance import (
    Cancellation,
    CancellationToken,
    CancelReason,
    CancelSource,
    ToolCall,
    ToolExecutor,
)
from governance.core.calls import CallStatus, Disposition, ErrorType
from tests.governance.core.process_table import runs
from tests.governance.mcp.support import command, unruly
from tests.support import eventually, with_room

BY_USER = Cancellation(reason=CancelReason.USER, source=CancelSource.BUTTON, by="ada")


def clock(**values):
    return command("time", sys.executable, "-m", "mcp_server_time", **values)


async def test_the_tools_of_a_server_are_tools_like_others(scene):
    await scene.begin(clock())
    assert scene.names() == ["time_convert_time", "time_get_current_time"]
    tool = scene.registry.get("time_get_current_time")
    assert tool.input_schema["required"] == ["timezone"]
    outcome = await scene.run("time_get_current_time", timezone="Europe/Berlin")
    assert outcome.status is CallStatus.SUCCEEDED
    assert json.loads(outcome.result)["timezone"] == "Europe/Berlin"
    assert scene.health.failures == []


async def test_an_error_of_a_tool_is_told_to_the_model(scene):
    await scene.begin(clock())
    outcome = await scene.run("time_get_current_time", timezone="Nowhere/Land")
    assert outcome.status is CallStatus.FAILED
    assert "Nowhere/Land" in outcome.result


async def test_only_allowed_tools_are_offered_under_the_prefix(scene):
    await scene.begin(clock(allowed_tools=frozenset({"convert_time"}), prefix="tz-"))
    assert scene.names() == ["tz-convert_time"]


async def test_progress_of_a_long_operation_is_progress_of_its_call(scene, everything):
    await scene.begin(command("all", "node", everything, "stdio"))
    live, outcome = scene.call("all_trigger-long-running-operation", duration=0.6, steps=3)
    settled = await outcome
    assert settled.status is CallStatus.SUCCEEDED
    assert "completed" in settled.result
    assert live.last_progress.progress in {2.0, 3.0}
    assert live.last_progress.total == 3.0
    assert "progressed" in scene.observer.names(live.id)


async def test_progress_refreshes_the_idle_limit(scene, everything):
    await scene.begin(command("all", "node", everything, "stdio"))
    name = "all_trigger-long-running-operation"
    tool = replace(scene.registry.get(name), idle_timeout=0.6)
    scene.registry.unregister(name)
    scene.registry.register(tool)
    steady = await scene.run(name, duration=1.2, steps=6)
    assert steady.status is CallStatus.SUCCEEDED
    silent = await scene.run(name, duration=60, steps=1)
    assert silent.status is CallStatus.ABANDONED  # nothing proves that it has stopped
    assert silent.error_type is ErrorType.TIMEOUT
    assert "made no progress" in silent.result


async def test_pictures_and_structured_content_are_described(scene, everything):
    await scene.begin(command("all", "node", everything, "stdio"))
    picture = await scene.run("all_get-tiny-image")
    assert "[image/png, " in picture.result
    weather = await scene.run("all_get-structured-content", location="New York")
    assert "temperature" in weather.result


async def test_a_cancelled_call_tells_the_server_and_returns_at_once(scene):
    connection = await scene.begin(unruly())
    live, outcome = await scene.begun("unruly_deaf")
    live.cancel(BY_USER)
    cancelled = await outcome
    assert cancelled.duration < with_room(5)
    assert cancelled.error_type is ErrorType.CANCELLED
    assert cancelled.disposition is Disposition.INDETERMINATE
    assert "may still be running" in cancelled.result

    async def told():
        return json.loads((await scene.run("unruly_cancelled")).result)

    assert len(await eventually(told)) == 1
    await eventually(lambda: connection.late_answers == 1)
    await eventually(lambda: scene.observer.late)
    ((call_id, late),) = scene.observer.late
    assert (call_id, late.kind) == (live.call.id, "returned")
    assert "too late" in late.text


async def test_the_end_of_a_server_proves_nothing_of_a_call_that_was_given_up(scene):
    connection = await scene.begin(unruly("silent"))
    live, outcome = await scene.begun("unruly_deaf")
    live.cancel(BY_USER)
    await outcome
    await scene.run("unruly_crash")
    await eventually(lambda: not connection.is_connected)
    await eventually(lambda: settling() == [])
    assert scene.observer.late == []


def settling():
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("late settlement")]


async def test_the_limit_of_the_row_ends_a_call_and_the_session_lives_on(scene):
    connection = await scene.begin(unruly(timeout=0.3))
    timed_out = await scene.run("unruly_deaf")
    assert timed_out.error_type is ErrorType.TIMEOUT
    assert timed_out.timeout == 0.3
    assert (await scene.run("unruly_echo", text="still here")).result == "still here"
    assert connection.starts == 1


async def test_a_turn_that_is_cancelled_leaves_all_its_calls(scene):
    await scene.begin(unruly())
    token = CancellationToken()
    calls = [await scene.begun("unruly_deaf", token=token) for _ in range(3)]
    token.cancel(BY_USER)
    for _, outcome in calls:
        assert (await outcome).error_type is ErrorType.CANCELLED


async def test_calls_of_one_server_share_its_limit(scene):
    await scene.begin(unruly(max_running=1))
    first, outcome = await scene.begun("unruly_deaf")
    waiting, second = scene.call("unruly_echo", text="after you")
    await eventually(lambda: scene.executor.limiter.queued == 1)
    assert waiting.elapsed == 0.0
    first.cancel(BY_USER)
    await outcome
    assert (await second).result == "after you"


async def test_a_server_sees_only_the_variables_that_are_named(scene, monkeypatch):
    monkeypatch.setenv("SECRET_OF_OURS", "do not tell")
    await scene.begin(unruly())
    (server, *_) = json.loads((await scene.run("unruly_children")).result)
    with open(f"/proc/{server}/environ", "rb") as file:
        environment = file.read()
    assert b"do not tell" not in environment
    assert b"PATH=" in environment


async def test_a_missing_variable_and_a_missing_program_are_named(scene):
    missing = command("missing", "no-such-program-anywhere", id=2)
    needy = replace(command("needy", sys.executable, id=3), environment=("NOT_SET_ANYWHERE",))
    await scene.begin(missing, needy)
    assert sorted(scene.health.failures) == [
        "its command was not found on this server",
        "the environment variable NOT_SET_ANYWHERE is not set on this server",
    ]


async def test_closing_ends_the_group_and_what_has_left_it(scene):
    await scene.begin(unruly("stubborn"))
    pids = json.loads((await scene.run("unruly_children")).result)
    assert all(map(runs, pids))
    await scene.tools.aclose()
    # What has left the group is killed, but not ours to wait for.
    await eventually(lambda: not any(map(runs, pids)))
    assert scene.processes == []


async def test_a_server_that_is_taken_away_loses_its_tools_and_fails_its_calls_at_once(scene):
    await scene.begin(unruly())
    _, outcome = await scene.begun("unruly_deaf")
    scene.tools.apply([])
    assert scene.names() == []
    ended = await outcome
    assert ended.disposition is Disposition.INDETERMINATE
    assert "switched off or changed by an administrator" in ended.result
    await eventually(lambda: scene.processes == [])


async def test_an_input_that_does_not_fit_is_refused_before_anybody_is_asked(scene, everything):
    await scene.begin(command("all", "node", everything, "stdio"))
    asking = ToolExecutor(registry=scene.registry)  # by its own rules, and there is nobody to ask
    call = ToolCall(id="1", tool_name="all_get-sum", input={"a": "not a number", "b": 1})
    outcome = await asking.run(call)
    await asking.aclose()
    assert outcome.error_type is ErrorType.INVALID_INPUT
    assert outcome.disposition is Disposition.NOT_STARTED
    assert 'a: must be of type "number"' in outcome.result
    assert "4" in (await scene.run("all_get-sum", a=1, b=3)).result
