"""Arguments that are no text, or that cannot be sent, fail their own call and no other."""

import asyncio
import json

import pytest
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCRequest

from governance import Progress
from governance.core.calls import CallStatus, ErrorType
from governance.core.exceptions import ToolFailed
from governance.core.forms import ask_nobody
from governance.mcp.stdio import StdioServer
from tests.governance.mcp.support import QUICK, address, unruly
from tests.support import PATIENCE

HALF = "half \ud800 a character"


async def refused(harness, name, **arguments):
    outcome = await harness.run(name, **arguments)
    assert (outcome.status, outcome.error_type) == (CallStatus.FAILED, ErrorType.INVALID_INPUT)
    return outcome.result


async def test_half_a_character_is_refused_and_others_go_on_over_stdio(harness):
    connection = await harness.begin(unruly())
    _, other = await harness.begun("unruly_deaf")
    for arguments in ({"text": HALF}, {"a": {"b": [HALF]}}, {"k\ud800": 1}):
        assert "not valid text" in await refused(harness, "unruly_echo", **arguments)
        assert (await harness.run("unruly_echo", text="whole")).result == "whole"
    assert not other.done()
    assert connection.starts == 1


async def test_half_a_character_is_refused_and_others_go_on_over_http(harness, everything_url):
    connection = await harness.begin(address("all", everything_url))
    name = "all_trigger-long-running-operation"
    _, other = await harness.begun(name, duration=2, steps=20)
    assert "not valid text" in await refused(harness, "all_echo", message=HALF)
    assert (await harness.run("all_echo", message="whole")).result == "Echo: whole"
    assert (await other).status is CallStatus.SUCCEEDED
    assert connection.starts == 1


async def test_the_server_gets_what_is_stored_and_shown(harness):
    await harness.begin(unruly())
    live, outcome = harness.call("unruly_given", path="/etc/passwd\0.png", n={"\0": "x"})
    assert json.loads((await outcome).result) == live.call.input
    assert live.call.input == {"path": "/etc/passwd\ufffd.png", "n": {"\ufffd": "x"}}


async def test_names_that_become_one_are_refused(harness):
    await harness.begin(unruly())
    arguments = {"n": {"to\0": "mallory", "to\ufffd": "bob"}}
    assert "are the same" in await refused(harness, "unruly_given", **arguments)


@pytest.mark.parametrize("value", [HALF, object()])
async def test_arguments_that_cannot_be_written_fail_before_they_reach_the_session(harness, value):
    """Where a program calls the connection itself, no executor has looked at them."""
    connection = await harness.begin(unruly())
    found = next(tool for tool in connection.tools if tool.name == "echo")
    with pytest.raises(ToolFailed, match="cannot be written"):
        await connection.call(found, {"text": value}, _Context())
    assert (await harness.run("unruly_echo", text="whole")).result == "whole"
    assert connection.starts == 1


class _Context:
    ask_form = staticmethod(ask_nobody)

    def report(self, progress: Progress) -> None: ...


async def test_a_writer_that_fails_ends_the_session_and_says_so(harness, caplog):
    server = StdioServer(unruly(), timing=QUICK, request_states={})
    async with server as (_, writable):
        request = JSONRPCRequest(
            jsonrpc="2.0", id=1, method="tools/call", params={"name": "echo", "text": HALF}
        )
        await writable.send(SessionMessage(request))
        assert "failed" in await asyncio.wait_for(server.ended, PATIENCE)
    assert "Failed: writing MCP server unruly" in caplog.messages
