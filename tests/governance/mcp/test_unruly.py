"""A server that dies, floods, talks nonsense and changes its mind: bounded, told clearly, and over at once (G2)."""

import asyncio
import json
from dataclasses import replace

import pytest

from governance import Cancellation, CancellationToken, CancelReason
from governance.core.calls import CallStatus, Disposition
from governance.core.exceptions import CallNotStarted
from governance.mcp.backoff import Backoff
from governance.mcp.specs import FoundTool, McpTiming
from tests.governance.mcp.support import QUICK, Scene, unruly
from tests.support import eventually


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ("crash", "it ended with exit code 3"),
        ("garbage", "it writes other things than messages of the protocol"),
        ("flood", "it sent more messages than can be read"),
        ("huge", "it sent a message that is too long"),
        ("hang_up", "it closed its output"),
    ],
)
async def test_a_server_that_breaks_fails_every_pending_call_at_once(monkeypatch, tool, reason):
    timing = replace(QUICK, most_messages=500, messages_per_second=10, longest_message=300_000)
    scene = Scene(monkeypatch, timing=timing)
    try:
        await scene.begin(unruly())
        _, bystander = await scene.begun("unruly_deaf")
        broken = await scene.run(f"unruly_{tool}")
        for outcome in (broken, await bystander):
            assert outcome.status is CallStatus.FAILED
            assert outcome.disposition is Disposition.INDETERMINATE
            assert f"The MCP server 'unruly' is not running: {reason}" in outcome.result
            assert "It may have been applied" in outcome.result
        await eventually(lambda: scene.health.failures == [reason])
        await eventually(lambda: scene.processes == [])
    finally:
        await scene.aclose()


async def test_a_server_that_died_is_started_again_by_the_next_call(scene):
    connection = await scene.begin(unruly())
    await scene.run("unruly_crash")
    await eventually(lambda: connection.connect_soon() or connection.is_connected)
    assert (await scene.run("unruly_echo", text="back")).result == "back"
    assert connection.starts == 2


async def test_a_crash_loop_is_slowed_down_and_calls_in_between_fail_without_a_start(monkeypatch):
    scene = Scene(monkeypatch, timing=replace(QUICK, first_backoff=500, longest_backoff=1000))
    try:
        connection = await scene.begin(unruly())
        await scene.run("unruly_crash")
        for _ in range(20):
            outcome = await scene.run("unruly_echo", text="there?")
            assert outcome.disposition is Disposition.NOT_STARTED
            assert "it ended with exit code 3; try again in 500 s" in outcome.result
        await scene.tools.ready()
        assert connection.starts == 1
    finally:
        await scene.aclose()


async def test_a_server_that_does_not_start_offers_nothing_and_is_reported(scene):
    await scene.begin(unruly("dies"))
    assert scene.names() == []
    assert scene.health.failures == ["it ended with exit code 4"]


async def test_a_server_that_says_nothing_delays_a_turn_only_for_a_moment(monkeypatch):
    timing = replace(QUICK, ready_timeout=0.05, connect_timeout=0.4)
    scene = Scene(monkeypatch, timing=timing)
    try:
        connection = await scene.begin(unruly("mute"))
        assert not connection.is_connected
        assert (
            connection.connect_soon() is None
        )  # it is under way; the next turn does not wait for it
        await eventually(lambda: scene.health.failures)
        assert scene.health.failures == ["it did not answer in time"]
        await eventually(lambda: scene.processes == [])
    finally:
        await scene.aclose()


async def test_a_cancel_ends_the_wait_for_servers_but_not_the_attempts(scene):
    scene.tools.apply([unruly("mute")])
    (connection,) = scene.tools.connections
    token = CancellationToken()
    waiting = asyncio.create_task(scene.tools.ready(token=token), name="waiting")
    await eventually(lambda: connection.starts)
    token.cancel(Cancellation(reason=CancelReason.USER))
    done, _ = await asyncio.wait({waiting}, timeout=1)
    assert done
    assert connection.connect_soon() is None


async def test_a_call_that_waits_for_a_connection_can_be_cancelled(scene):
    scene.tools.apply([unruly("mute")])
    (connection,) = scene.tools.connections
    asking = asyncio.create_task(connection.call(FoundTool(name="echo"), {}, None), name="asking")
    await eventually(lambda: connection.starts)
    asking.cancel()
    with pytest.raises(CallNotStarted):
        await asyncio.wait_for(asking, timeout=1)


async def test_a_greeting_before_the_first_message_is_forgiven(scene):
    await scene.begin(unruly("banner"))
    assert (await scene.run("unruly_echo", text="hello")).result == "hello"


async def test_a_server_that_does_not_survive_new_questions_is_asked_in_the_old_way(scene):
    connection = await scene.begin(unruly("old"))
    assert scene.health.failures == ["it ended with exit code 5"]
    await eventually(lambda: connection.connect_soon() or connection.is_connected)
    assert (await scene.run("unruly_echo", text="hello")).result == "hello"


async def test_half_characters_in_an_answer_are_replaced(scene):
    """JavaScript cuts texts in the middle of a character, and writes the half as an escape that strict readers refuse."""
    await scene.begin(unruly())
    outcome = await scene.run("unruly_halves")
    assert outcome.status is CallStatus.SUCCEEDED
    assert outcome.result.startswith("half a smile: ")
    assert "\ud83d" not in outcome.result


async def test_an_answer_that_makes_no_sense_leaves_open_what_the_tool_did(scene):
    connection = await scene.begin(unruly())
    outcome = await scene.run("unruly_riddle")
    assert outcome.status is CallStatus.FAILED
    assert outcome.disposition is Disposition.INDETERMINATE
    assert "it does not follow the protocol" in outcome.result
    assert connection.is_connected


async def test_what_is_no_tool_is_left_out_alone_and_named(scene):
    connection = await scene.begin(unruly("shapeless"))
    assert (await scene.run("unruly_echo", text="hello")).result == "hello"
    assert (connection.starts, scene.health.failures) == (1, [])
    shapeless = "its definition does not follow the protocol"
    assert scene.health.connections[-1][1] == (
        f"left out: crooked (its schema is not valid), shapeless ({shapeless}), "
        f"a tool without a name ({shapeless})"
    )


async def test_a_list_without_end_is_read_as_long_as_it_brings_something_new(scene):
    await scene.begin(unruly("endless"))
    assert (await scene.run("unruly_echo", text="hello")).result == "hello"
    assert [len(tools) for tools, _ in scene.health.connections] == [len(scene.names())]


async def test_a_tool_that_takes_too_much_to_say_is_left_out(scene):
    await scene.begin(unruly("wordy"))
    assert "unruly_wordy" not in scene.names()
    assert "unruly_echo" in scene.names()
    assert scene.health.connections[-1][1] == "left out: wordy (its schema is too long)"


async def test_a_changed_list_of_tools_changes_the_registry(scene):
    await scene.begin(unruly())
    assert "unruly_crash" in scene.names()
    await scene.run("unruly_rename")
    await eventually(lambda: scene.names() == ["unruly_echo", "unruly_renamed"])
    assert (await scene.run("unruly_renamed", text="new")).result == "new"


async def test_a_name_that_is_taken_stays_with_its_owner_as_long_as_it_is_there(scene):
    first = unruly(id=1, prefix="same_")
    second = replace(unruly(id=2, prefix="same_"), name="second")
    await scene.begin(first, second)
    problems = [problem for _, problem in scene.health.connections]
    assert sorted(problem[:9] for problem in problems) == ["", "left out:"]
    for survivor in (second, first):  # whoever has the names; then the other one gets them
        scene.tools.apply([survivor])
        await scene.tools.ready()
        assert "same_echo" in scene.names()


async def test_a_stubborn_server_is_ended_all_the_same(scene):
    await scene.begin(unruly("stubborn"))
    pids = json.loads((await scene.run("unruly_children")).result)
    assert len(pids) == 3
    await scene.tools.aclose()
    assert scene.processes == []


def test_the_longest_pause_bounds_the_backoff():
    now = [0.0]
    backoff = Backoff(McpTiming(), clock=lambda: now[0])
    waits = []
    for _ in range(9):
        backoff.failed()
        waits.append(backoff.wait)
        now[0] += backoff.wait
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    backoff.held(1_000)
    backoff.failed()
    assert backoff.wait == 1
