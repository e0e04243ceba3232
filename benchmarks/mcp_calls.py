"""Row of the MCP servers: a governed call of a tool next to the bare client, over stdio to one server."""

import asyncio
import sys
from collections.abc import Sequence

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from benchmarks.measurement import Effort, interleave
from benchmarks.rows import Row, per_call
from governance import (
    ApprovalRule,
    CallStatus,
    PolicyLevels,
    Tool,
    ToolCall,
    ToolExecutor,
    ToolLimits,
    ToolRegistry,
)
from governance.mcp.specs import FoundTool, ServerSpec, Transport
from governance.mcp.tools import McpTools

CALLS = 50
TOOL = "get_current_time"
INPUT = {"timezone": "UTC"}
_COMMAND = (sys.executable, "-m", "mcp_server_time")
_ROUNDS = 4


class Ready:
    """Knows when the server has named its tools."""

    def __init__(self) -> None:
        self.named = asyncio.Event()

    def connected(self, server_id: int, *, tools: Sequence[FoundTool], problem: str) -> None:
        """The server is there."""
        self.named.set()

    def failed(self, server_id: int, *, reason: str) -> None:
        """It will not come: the wait runs out and says so."""


class NoApprovals:
    """Limits as the tools declare them, and nobody is asked whether a call may run."""

    def levels(self, tool: Tool) -> PolicyLevels:
        """Return the tool's own limits."""
        return PolicyLevels(override=ToolLimits(approval=ApprovalRule.NEVER), declared=tool.limits)


async def measure(effort: Effort) -> list[Row]:
    """Return the row; each has a server process of its own."""
    registry, ready = ToolRegistry(), Ready()
    executor = ToolExecutor(registry=registry, policies=NoApprovals())
    tools = McpTools(registry=registry, health=ready)
    tools.apply([ServerSpec(id=1, name="time", transport=Transport.STDIO, command=_COMMAND)])
    await tools.ready()
    async with asyncio.timeout(60):
        await ready.named.wait()
    command, *arguments = _COMMAND
    server = StdioServerParameters(command=command, args=arguments)
    async with Client(stdio_client(server)) as client:
        measured = await interleave(
            {"bare": lambda: _by_client(client), "ours": lambda: _by_executor(executor)},
            rounds=max(effort.rounds // _ROUNDS, 1),
            warm_ups=effort.warm_ups,
        )
    await tools.aclose()
    await executor.aclose()
    what = "a call of an MCP server's tool over stdio; bare: the `mcp` client"
    return [per_call("mcp_call", what, measured["ours"], bare=measured["bare"], calls=CALLS)]


async def _by_client(client: Client) -> None:
    for _ in range(CALLS):
        answer = await client.call_tool(TOOL, INPUT)
        if answer.is_error:
            raise RuntimeError("The server answered with an error.")


async def _by_executor(executor: ToolExecutor) -> None:
    for number in range(CALLS):
        call = ToolCall(id=f"m{number}", tool_name=TOOL, input=INPUT, scope="b")
        outcome = await executor.run(call)
        if outcome.status is not CallStatus.SUCCEEDED:
            raise RuntimeError(f"A call ended as {outcome.status.value!r}.")
