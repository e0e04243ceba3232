"""What one message of a server costs, and how many may wait: the event loop is everybody's (G2)."""

import pytest
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCRequest, JSONRPCResponse
from mcp.types.methods import validate_server_result
from mcp.types.version import KNOWN_PROTOCOL_VERSIONS

from governance.mcp import message_filter
from governance.mcp.message_filter import MessageFilter
from governance.mcp.specs import McpTiming

TOOL = {"name": "tool", "inputSchema": {"type": "object"}}


@pytest.fixture
def checked(monkeypatch):
    """How long each piece of a list was that the SDK was asked to check."""
    lengths = []

    def validate(method, version, data):
        lengths.append(len(str(data)))
        validate_server_result(method, version, data)

    monkeypatch.setattr(message_filter, "validate_server_result", validate)
    return lengths


def receive_list(version="2025-06-18", /, **result):
    """Let a filter receive a list of tools. Return what it lets through, and the names of what it does not."""
    receiver = MessageFilter(timing=McpTiming(), request_states={}, on_flood=pytest.fail)
    receiver.protocol_version = version
    receiver.sent(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/list")))
    answer = JSONRPCResponse(jsonrpc="2.0", id=1, result=result)
    assert receiver.received(SessionMessage(answer))
    return answer.result["tools"], list(receiver.invalid_tools)


@pytest.mark.parametrize("tool", [TOOL, {"name": "bad"}])
def test_what_stands_beside_the_tools_of_a_list_is_not_checked_for_each_of_them(checked, tool):
    beside = {f"key {n}": n for n in range(1_000)}
    receive_list(tools=[tool] * 20, _meta=beside, **beside)
    assert len(checked) == 20
    assert sum(checked) < len(str(beside))


def test_of_a_list_that_is_too_long_only_the_beginning_is_checked(checked):
    kept, invalid = receive_list(tools=[TOOL, {"name": "bad"}] + [{}] * 3_000)
    assert (kept, invalid) == ([TOOL], ["bad", "a tool without a name"])
    assert len(checked) == McpTiming().most_tools


@pytest.mark.parametrize("version", KNOWN_PROTOCOL_VERSIONS)
def test_a_tool_is_checked_by_the_rules_of_each_version_of_the_protocol(version):
    assert receive_list(version, tools=[TOOL, {"name": "bad"}]) == ([TOOL], ["bad"])
