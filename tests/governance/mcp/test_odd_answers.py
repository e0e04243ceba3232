"""Answers over HTTP that are none (G2, C13). They are told at once, with what is known of the call, and the next one is tried."""

import pytest

from governance import Cancellation, CancelReason
from governance.core.calls import CallStatus, Disposition
from tests.governance.mcp.odd_server import OddServer
from tests.governance.mcp.support import address
from tests.support import eventually, with_room


@pytest.mark.parametrize(
    ("habit", "words"),
    [
        ("fails", "The MCP server 'odd' did not take the call: it answered 502."),
        ("page", "Unexpected content type"),
        ("nonsense", "The answer of the MCP server 'odd' could not be read."),
        ("forwards", "not followed"),
        ("falls silent", "broke off before it had answered"),
        ("breaks", "the connection broke"),
    ],
)
async def test_an_answer_that_is_none_is_told_at_once_and_honestly(harness, habit, words):
    async with OddServer(habit) as server:
        connection = await harness.begin(address("odd", server.url))
        outcome = await harness.run("odd_tool")
        assert outcome.status is CallStatus.FAILED
        assert outcome.disposition is Disposition.INDETERMINATE
        assert words in outcome.result
        assert "It may have been applied" in outcome.result
        assert "pydantic" not in outcome.result
        assert outcome.duration < with_room(5)
        server.habit = ""
        await eventually(lambda: connection.connect_soon() or connection.is_connected)
        assert (await harness.run("odd_tool")).result == "fine"
        await harness.tools.aclose()


@pytest.mark.parametrize("habit", ["breaks", "stops halfway"])
async def test_a_connection_that_breaks_takes_no_other_call_with_it(harness, habit):
    async with OddServer("waits") as server:
        connection = await harness.begin(address("odd", server.url))
        _, other = harness.call("odd_tool")
        await eventually(lambda: "tools/call" in server.asked)
        server.habit = habit
        broken = await harness.run("odd_tool")
        assert broken.disposition is Disposition.INDETERMINATE
        assert "The MCP server 'odd': the connection broke. It may have been" in broken.result
        server.answer_waiting()
        assert (await other).result == "fine"
        assert (connection.starts, harness.health.failures) == (1, [])
        await harness.tools.aclose()


async def test_a_server_that_cannot_be_reached_any_more_takes_no_other_call_with_it(harness):
    server = OddServer("waits")
    async with server:
        connection = await harness.begin(address("odd", server.url))
        _, other = harness.call("odd_tool")
        await eventually(lambda: "tools/call" in server.asked)
        server.stop_listening()
        live, refused = harness.call("odd_tool")
        said = "Waiting for the MCP server 'odd': it cannot be reached."
        await eventually(lambda: live.last_progress and live.last_progress.message == said)
        live.cancel(Cancellation(reason=CancelReason.USER))
        assert (await refused).disposition is Disposition.NOT_STARTED
        server.answer_waiting()
        assert (await other).result == "fine"
        assert not connection.is_connected
        await harness.tools.aclose()


async def test_a_call_that_the_server_refuses_did_not_run(harness):
    async with OddServer("refuses") as server:
        await harness.begin(address("odd", server.url))
        outcome = await harness.run("odd_tool")
        assert outcome.disposition is Disposition.SETTLED
        assert "refused the call (error -32602): There is no such tool here." in outcome.result
        await harness.tools.aclose()


@pytest.mark.parametrize(
    ("habit", "words"),
    [("unauthorised", "it answered 401 (check its headers)."), ("busy", "it answered 429.")],
)
async def test_a_call_that_was_turned_away_did_not_run_and_says_why(harness, habit, words):
    async with OddServer(habit) as server:
        await harness.begin(address("odd", server.url))
        outcome = await harness.run("odd_tool")
        assert outcome.disposition is Disposition.SETTLED
        assert f"The MCP server 'odd' did not take the call: {words}" in outcome.result
        if habit == "unauthorised":
            assert harness.health.failures == ["it answered 401 (check its headers)"]
        await harness.tools.aclose()


async def test_a_number_that_json_does_not_have_is_refused_after_the_tool_has_run(harness):
    async with OddServer("has no number") as server:
        await harness.begin(address("odd", server.url))
        outcome = await harness.run("odd_tool")
        assert (outcome.status, outcome.disposition) == (CallStatus.FAILED, Disposition.SETTLED)
        assert "has run, but its result is not plain JSON data" in outcome.result
        await harness.tools.aclose()


async def test_compressed_answers_are_not_unfolded(harness):
    async with OddServer("bomb") as server:
        await harness.begin(address("odd", server.url))
        assert harness.health.failures == ["it sends compressed answers, which are not read"]
        await harness.tools.aclose()
