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
from tests.support import eventually, until_touched, with_room

BY_USER = Cancellation(reason=CancelReason.USER, source=CancelSource.BUTTON, by="ada")


def clock(**values):
    return command("time", sys.executable, "-m", "mcp_server_time", **values)


async def test_the_tools_of_a_server_are_tools_like_others(harness):
    await harness.begin(clock())
    assert harness.names() == ["time_convert_time", "time_get_current_time"]
    tool = harness.registry.get("time_get_current_time")
    assert tool.input_schema["required"] == ["timezone"]
    outcome = await harness.run("time_get_current_time", timezone="Europe/Berlin")
    assert outcome.status is CallStatus.SUCCEEDED
    assert json.loads(outcome.result)["timezone"] == "Europe/Berlin"
    assert harness.health.failures == []


async def test_an_error_of_a_tool_is_told_to_the_model(harness):
    await harness.begin(clock())
    outcome = await harness.run("time_get_current_time", timezone="Nowhere/Land")
    assert outcome.status is CallStatus.FAILED
    assert "Nowhere/Land" in outcome.result


async def test_only_allowed_tools_are_offered_under_the_prefix(harness):
    await harness.begin(clock(allowed_tools=frozenset({"convert_time"}), prefix="tz-"))
    assert harness.names() == ["tz-convert_time"]


async def test_progress_of_a_long_operation_is_progress_of_its_call(harness, everything):
    await harness.begin(command("all", "node", everything, "stdio"))
    live, outcome = harness.call("all_trigger-long-running-operation", duration=2, steps=3)
    await eventually(lambda: "progressed" in harness.observer.names(live.id))
    settled = await outcome
    assert settled.status is CallStatus.SUCCEEDED
    assert "completed" in settled.result
    assert live.last_progress.progress in {2.0, 3.0}
    assert live.last_progress.total == 3.0


async def test_progress_refreshes_the_idle_limit(harness, everything):
    await harness.begin(command("all", "node", everything, "stdio"))
    name = "all_trigger-long-running-operation"
    set_idle_limit(harness, name, 60)
    steady, outcome = harness.call(name, duration=600, steps=6_000)
    await eventually(lambda: steady.last_progress)
    await until_touched(steady)
    steady.cancel(BY_USER)
    assert (await outcome).error_type is ErrorType.CANCELLED
    set_idle_limit(harness, name, 0.3)
    silent = await harness.run(name, duration=600, steps=1)
    assert silent.status is CallStatus.ABANDONED  # nothing proves that it has stopped
    assert silent.error_type is ErrorType.TIMEOUT
    assert "made no progress" in silent.result


def set_idle_limit(harness, name, seconds):
    tool = replace(harness.registry.get(name), idle_timeout=seconds)
    harness.registry.unregister(name)
    harness.registry.register(tool)


async def test_pictures_and_structured_content_are_described(harness, everything):
    await harness.begin(command("all", "node", everything, "stdio"))
    picture = await harness.run("all_get-tiny-image")
    assert "[image, 4 033 bytes, not shown]" in picture.result.replace("\N{NO-BREAK SPACE}", " ")
    weather = await harness.run("all_get-structured-content", location="New York")
    assert weather.result.count("temperature") == 1  # the text, and not again what it repeats


async def test_a_cancelled_call_tells_the_server_and_returns_at_once(harness):
    connection = await harness.begin(unruly())
    live, outcome = await harness.begun("unruly_deaf")
    live.cancel(BY_USER)
    cancelled = await outcome
    assert cancelled.duration < with_room(5)
    assert cancelled.error_type is ErrorType.CANCELLED
    assert cancelled.disposition is Disposition.INDETERMINATE
    assert "may still be running" in cancelled.result

    async def told():
        return json.loads((await harness.run("unruly_cancelled")).result)

    assert len(await eventually(told)) == 1
    await eventually(lambda: connection.late_answers == 1)
    await eventually(lambda: harness.observer.late)
    ((call_id, late),) = harness.observer.late
    assert (call_id, late.kind) == (live.call.id, "returned")
    assert "too late" in late.text


async def test_a_cancelled_call_that_only_reads_is_not_said_to_have_ended_either(harness):
    await harness.begin(unruly("harmless", read_only_tools=frozenset({"deaf"})))
    assert not harness.registry.get("unruly_deaf").side_effects
    live, outcome = await harness.begun("unruly_deaf")
    live.cancel(BY_USER)
    cancelled = await outcome
    assert cancelled.disposition is Disposition.INDETERMINATE
    assert "It has ended" not in cancelled.result
    assert "may still be running" in cancelled.result


async def test_the_end_of_a_server_proves_nothing_of_a_call_that_was_given_up(harness):
    connection = await harness.begin(unruly("silent"))
    live, outcome = await harness.begun("unruly_deaf")
    live.cancel(BY_USER)
    await outcome
    await harness.run("unruly_crash")
    await eventually(lambda: not connection.is_connected)
    await eventually(lambda: settling() == [])
    assert harness.observer.late == []


def settling():
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("late settlement")]


async def test_the_limit_of_the_row_ends_a_call_and_the_session_lives_on(harness):
    connection = await harness.begin(unruly(timeout=0.3))
    timed_out = await harness.run("unruly_deaf")
    assert timed_out.error_type is ErrorType.TIMEOUT
    assert timed_out.timeout == 0.3
    assert (await harness.run("unruly_echo", text="still here")).result == "still here"
    assert connection.starts == 1


async def test_a_turn_that_is_cancelled_leaves_all_its_calls(harness):
    await harness.begin(unruly())
    token = CancellationToken()
    calls = [await harness.begun("unruly_deaf", token=token) for _ in range(3)]
    token.cancel(BY_USER)
    for _, outcome in calls:
        assert (await outcome).error_type is ErrorType.CANCELLED


async def test_calls_of_one_server_share_its_limit(harness):
    await harness.begin(unruly(max_running=1))
    first, outcome = await harness.begun("unruly_deaf")
    waiting, second = harness.call("unruly_echo", text="after you")
    await eventually(lambda: harness.executor.limiter.queued == 1)
    assert waiting.elapsed == 0.0
    first.cancel(BY_USER)
    await outcome
    assert (await second).result == "after you"


async def test_a_server_sees_only_the_variables_that_are_named(harness, monkeypatch):
    monkeypatch.setenv("SECRET_OF_OURS", "do not tell")
    await harness.begin(unruly())
    (server, *_) = json.loads((await harness.run("unruly_children")).result)
    with open(f"/proc/{server}/environ", "rb") as file:
        environment = file.read()
    assert b"do not tell" not in environment
    assert b"PATH=" in environment


async def test_a_missing_variable_and_a_missing_program_are_named(harness):
    missing = command("missing", "no-such-program-anywhere", id=2)
    needy = replace(command("needy", sys.executable, id=3), environment=("NOT_SET_ANYWHERE",))
    await harness.begin(missing, needy)
    assert sorted(harness.health.failures) == [
        "its command was not found on this server",
        "the environment variable NOT_SET_ANYWHERE is not set on this server",
    ]


async def test_closing_ends_the_group_and_what_has_left_it(harness):
    await harness.begin(unruly("stubborn"))
    pids = json.loads((await harness.run("unruly_children")).result)
    assert all(map(runs, pids))
    await harness.tools.aclose()
    # What has left the group is killed, but not ours to wait for.
    await eventually(lambda: not any(map(runs, pids)))
    await eventually(lambda: harness.processes == [])


async def test_a_server_that_is_taken_away_loses_its_tools_and_fails_its_calls_at_once(harness):
    await harness.begin(unruly())
    _, outcome = await harness.begun("unruly_deaf")
    harness.tools.apply([])
    assert harness.names() == []
    ended = await outcome
    assert ended.disposition is Disposition.INDETERMINATE
    assert "switched off or changed by an administrator" in ended.result
    await eventually(lambda: harness.processes == [])


async def test_an_input_that_does_not_fit_is_refused_before_anybody_is_asked(harness, everything):
    await harness.begin(command("all", "node", everything, "stdio"))
    asking = ToolExecutor(registry=harness.registry)  # by its own rules, and there is nobody to ask
    call = ToolCall(id="1", tool_name="all_get-sum", input={"a": "not a number", "b": 1})
    outcome = await asking.run(call)
    await asking.aclose()
    assert outcome.error_type is ErrorType.INVALID_INPUT
    assert outcome.disposition is Disposition.NOT_STARTED
    assert 'a: must be of type "number"' in outcome.result
    assert "4" in (await harness.run("all_get-sum", a=1, b=3)).result
