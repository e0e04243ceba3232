"""A process of ours with an MCP server, made to be killed: prints the server's processes and waits."""

import asyncio
import sys

from governance import CancellationToken, ToolContext, ToolRegistry
from governance.mcp.specs import FoundTool, McpTiming, ServerSpec, Transport
from governance.mcp.tools import McpTools
from tests.governance.mcp.support import HERE, RecordingHealth


async def main():
    spec = ServerSpec(
        id=1,
        name="unruly",
        transport=Transport.STDIO,
        command=(sys.executable, str(HERE / "unruly_server.py"), "stubborn"),
    )
    tools = McpTools(
        registry=ToolRegistry(), health=RecordingHealth(), timing=McpTiming(ready_timeout=20)
    )
    tools.apply([spec])
    await tools.ready()
    context = ToolContext(
        call_id="1",
        tool_name="children",
        scope="",
        token=CancellationToken(),
        report=lambda progress: None,
    )
    pids = await tools.connections[0].call(FoundTool(name="children"), {}, context)
    sys.stdout.write(pids + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


asyncio.run(main())
