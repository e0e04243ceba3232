"""A server that dies, floods, talks nonsense and changes its mind: bounded, told clearly, and over at once (G2)."""

import asyncio
import errno
import json
import os
import re
import threading
from dataclasses import replace

import pytest

from governance import Cancellation, CancellationToken, CancelReason, ToolContext
from governance.core.calls import CallStatus, Disposition
from governance.core.exceptions import CallNotStarted
from governance.mcp.backoff import Backoff
from governance.mcp.specs import FoundTool, McpTiming
from tests.governance.mcp.support import QUICK, McpHarness, unruly
from tests.support import PATIENCE, eventually, with_room


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
    harness = McpHarness(monkeypatch, timing=timing)
    try:
        await harness.begin(unruly())
        _, bystander = await harness.begun("unruly_deaf")
        broken = await harness.run(f"unruly_{tool}")
        for outcome in (broken, await bystander):
            assert outcome.status is CallStatus.FAILED
            assert outcome.disposition is Disposition.INDETERMINATE
            assert f"The MCP server 'unruly' is not running: {reason}" in outcome.result
            assert "It may have been applied" in outcome.result
        await eventually(lambda: harness.health.failures == [reason])
        await eventually(lambda: harness.processes == [])
    finally:
        await harness.aclose()


async def test_a_server_that_asks_and_takes_no_answer_is_disconnected(harness):
    """The SDK keeps a task for each request until its answer has left."""
    await harness.begin(unruly())
    reason = "it does not read the answers to its requests"
    assert reason in (await harness.run("unruly_nag")).result
    assert harness.health.failures == [reason]


async def test_a_server_that_takes_its_answers_may_ask_on(monkeypatch):
    harness = McpHarness(monkeypatch, timing=replace(QUICK, most_unanswered=1))
    try:
        await harness.begin(unruly())
        assert (await harness.run("unruly_ask")).result == "asked"
    finally:
        await harness.aclose()


async def test_a_server_that_died_is_started_again_by_the_next_call(harness):
    connection = await harness.begin(unruly())
    await harness.run("unruly_crash")
    await eventually(lambda: connection.connect_soon() or connection.is_connected)
    assert (await harness.run("unruly_echo", text="back")).result == "back"
    assert connection.starts == 2


async def test_a_crash_loop_is_slowed_down_and_calls_in_between_fail_without_a_start(monkeypatch):
    harness = McpHarness(
        monkeypatch, timing=replace(QUICK, first_backoff=500, longest_backoff=1000)
    )
    try:
        connection = await harness.begin(unruly())
        await harness.run("unruly_crash")
        for _ in range(20):
            outcome = await harness.run("unruly_echo", text="there?")
            assert outcome.disposition is Disposition.NOT_STARTED
            said = r"it ended with exit code 3; try again in (4[5-9]\d|500) s"
            assert re.search(said, outcome.result)
        await harness.tools.ready()
        assert connection.starts == 1
    finally:
        await harness.aclose()


async def test_a_server_that_does_not_start_offers_nothing_and_is_reported(harness):
    await harness.begin(unruly("dies"))
    assert harness.names() == []
    assert harness.health.failures == ["it ended with exit code 4"]


async def test_a_command_that_cannot_be_started_leaves_no_descriptor_open(harness, monkeypatch):
    def fail(*arguments, **options):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("governance.mcp.stdio.subprocess.Popen", fail)
    before = set(os.listdir("/proc/self/fd"))
    await harness.begin(unruly())
    assert harness.health.failures == ["its command could not be started"]
    assert set(os.listdir("/proc/self/fd")) == before


async def test_a_server_that_says_nothing_delays_a_turn_only_for_a_moment(monkeypatch):
    timing = replace(QUICK, ready_timeout=0.05, connect_timeout=0.4)
    harness = McpHarness(monkeypatch, timing=timing)
    try:
        connection = await harness.begin(unruly("mute"))
        assert not connection.is_connected
        assert (
            connection.connect_soon() is None
        )  # it is under way; the next turn does not wait for it
        await eventually(lambda: harness.health.failures)
        assert harness.health.failures == ["it did not answer in time"]
        await eventually(lambda: harness.processes == [])
    finally:
        await harness.aclose()


async def test_every_turn_that_begins_while_a_server_starts_waits_for_it(harness):
    harness.tools.apply([unruly()])
    await asyncio.gather(harness.tools.ready(), _named_after(harness), _named_after(harness))


async def _named_after(harness):
    await asyncio.sleep(0)  # after the turn that starts the server
    await harness.tools.ready()
    assert "unruly_echo" in harness.names()


async def test_a_cancel_ends_the_wait_for_servers_but_not_the_attempts(harness):
    harness.tools.apply([unruly("mute")])
    (connection,) = harness.tools.connections
    token = CancellationToken()
    waiting = asyncio.create_task(harness.tools.ready(token=token), name="waiting")
    await eventually(lambda: connection.starts)
    token.cancel(Cancellation(reason=CancelReason.USER))
    done, _ = await asyncio.wait({waiting}, timeout=with_room(1))
    assert done
    assert connection.connect_soon() is None


async def test_a_call_that_waits_for_a_connection_can_be_cancelled(harness):
    harness.tools.apply([unruly("mute")])
    (connection,) = harness.tools.connections
    context = ToolContext(
        call_id="1", tool_name="echo", scope="", token=CancellationToken(), report=lambda _: None
    )
    asking = asyncio.create_task(
        connection.call(FoundTool(name="echo"), {}, context), name="asking"
    )
    await eventually(lambda: connection.starts)
    asking.cancel()
    with pytest.raises(CallNotStarted):
        await asyncio.wait_for(asking, timeout=with_room(1))


async def test_a_greeting_before_the_first_message_is_forgiven(harness):
    await harness.begin(unruly("banner"))
    assert (await harness.run("unruly_echo", text="hello")).result == "hello"


async def test_a_server_that_does_not_survive_new_questions_is_asked_in_the_old_way(harness):
    connection = await harness.begin(unruly("old"))
    assert harness.health.failures == ["it ended with exit code 5"]
    await eventually(lambda: connection.connect_soon() or connection.is_connected)
    assert (await harness.run("unruly_echo", text="hello")).result == "hello"


async def test_tools_have_the_titles_that_their_server_gives_them(harness):
    await harness.begin(unruly())
    echo, steps = (harness.registry.get(f"unruly_{name}") for name in ("echo", "steps"))
    assert (echo.title, echo.server) == ("Echo it", "unruly")
    assert steps.title == "To steps"


async def test_half_characters_in_an_answer_are_replaced(harness):
    """JavaScript cuts texts in the middle of a character, and writes the half as an escape that strict readers refuse."""
    await harness.begin(unruly())
    outcome = await harness.run("unruly_halves")
    assert outcome.status is CallStatus.SUCCEEDED
    assert outcome.result.startswith("half a smile: ")
    assert "\ud83d" not in outcome.result


async def test_an_answer_that_makes_no_sense_leaves_open_what_the_tool_did(harness):
    connection = await harness.begin(unruly())
    outcome = await harness.run("unruly_riddle")
    assert outcome.status is CallStatus.FAILED
    assert outcome.disposition is Disposition.INDETERMINATE
    assert "it does not follow the protocol" in outcome.result
    assert connection.is_connected


async def test_an_answer_is_not_checked_against_the_schema_of_its_server(harness):
    """The SDK would do so on the event loop, and run any pattern."""
    await harness.begin(unruly())
    outcome = await harness.run("unruly_promise")
    assert outcome.status is CallStatus.SUCCEEDED
    assert outcome.result.startswith("promised")


async def test_what_is_no_tool_is_left_out_alone_and_named(harness):
    connection = await harness.begin(unruly("shapeless"))
    assert (await harness.run("unruly_echo", text="hello")).result == "hello"
    assert (connection.starts, harness.health.failures) == (1, [])
    shapeless = "its definition does not follow the protocol"
    assert harness.health.connections[-1][1] == (
        f"left out: crooked (its schema is not valid), shapeless ({shapeless}), "
        f"a tool without a name ({shapeless})"
    )


async def test_a_list_without_end_is_read_as_long_as_it_brings_something_new(harness):
    await harness.begin(unruly("endless"))
    assert (await harness.run("unruly_echo", text="hello")).result == "hello"
    assert [len(tools) for tools, _ in harness.health.connections] == [len(harness.names())]


async def test_a_tool_that_takes_too_much_to_say_is_left_out(harness):
    await harness.begin(unruly("wordy"))
    assert "unruly_wordy" not in harness.names()
    assert "unruly_echo" in harness.names()
    assert harness.health.connections[-1][1] == "left out: wordy (its schema is too long)"


async def test_the_schemas_of_a_server_that_is_gone_are_not_checked_on(harness, monkeypatch):
    checked, goes_on = [], threading.Event()

    def check(schema):
        checked.append(schema)
        goes_on.wait(PATIENCE)
        return ""

    monkeypatch.setattr("governance.mcp.session.schema_problem", check)
    harness.tools.apply([unruly()])
    assert harness.tools.connections[0].connect_soon()
    await eventually(lambda: checked)
    await harness.tools.aclose()
    goes_on.set()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert len(checked) == 1


async def test_a_changed_list_of_tools_changes_the_registry(harness):
    await harness.begin(unruly())
    assert "unruly_crash" in harness.names()
    await harness.run("unruly_rename")
    await eventually(lambda: harness.names() == ["unruly_echo", "unruly_renamed"])
    assert (await harness.run("unruly_renamed", text="new")).result == "new"


async def test_a_name_that_is_taken_stays_with_its_owner_as_long_as_it_is_there(harness):
    first = unruly(id=1, prefix="same_")
    second = replace(unruly(id=2, prefix="same_"), name="second")
    await harness.begin(first, second)
    problems = [problem for _, problem in harness.health.connections]
    assert sorted(problem[:9] for problem in problems) == ["", "left out:"]
    for survivor in (second, first):  # whoever has the names; then the other one gets them
        harness.tools.apply([survivor])
        await harness.tools.ready()
        assert "same_echo" in harness.names()


async def test_a_stubborn_server_is_ended_all_the_same(harness):
    await harness.begin(unruly("stubborn"))
    pids = json.loads((await harness.run("unruly_children")).result)
    assert len(pids) == 3
    await harness.tools.aclose()
    await eventually(lambda: harness.processes == [])


def test_the_longest_pause_bounds_the_backoff():
    now = [0.0]
    backoff = Backoff(McpTiming(), clock=lambda: now[0])
    waits = []
    for _ in range(9):
        backoff.record_failure()
        waits.append(backoff.wait)
        now[0] += backoff.wait
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    backoff.record_uptime(1_000)
    backoff.record_failure()
    assert backoff.wait == 1
