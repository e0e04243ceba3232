"""The carrier's MCP server: a separate program, which the shop starts and talks to over stdio."""

import asyncio

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("delivery")


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
async def track(order: int, seconds: float = 1) -> str:
    """Say where the parcel of an order is. The carrier is slow and takes `seconds` to answer."""
    await asyncio.sleep(seconds)
    return f"The parcel of order {order} is on the van."


if __name__ == "__main__":
    server.run()
