"""An MCP server over streamable HTTP, made with the SDK's own server. Argument: the port; the token is in the environment."""

import asyncio
import os
import sys
from typing import Annotated

import uvicorn
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from pydantic import BaseModel
from starlette.responses import PlainTextResponse

server = MCPServer("counting")
begun: list[str] = []
stopped: list[str] = []


@server.tool()
async def count(context: Context, to: int) -> str:
    """Count, and say so at each number."""
    for number in range(1, to + 1):
        await context.report_progress(number, to, f"number {number}")
    return f"counted to {to}"


@server.tool()
async def endless(context: Context) -> str:
    """Never end by itself."""
    begun.append("endless")
    await context.report_progress(1, None, "begun")
    try:
        await asyncio.Event().wait()
    finally:
        stopped.append("endless")
    return ""


class Answer(BaseModel):
    """What a person is asked."""

    color: str


def which_color(who: str) -> Elicit[Answer]:
    """Ask the person."""
    return Elicit(f"Which color, {who}?", Answer)


@server.tool()
async def inquire(who: str, answer: Annotated[Answer, Resolve(which_color)]) -> str:
    """Say which color the person wants."""
    return f"{who}: {answer.color}"


@server.tool()
async def stops() -> int:
    """Say how many calls were stopped."""
    return len(stopped)


@server.tool()
async def grow(context: Context) -> str:
    """Have one tool more."""

    async def grown() -> str:
        """Say that it grew."""
        return "grown"

    server.add_tool(grown)
    await context.notify_tools_changed()
    return "one more"


class Gate:
    """Lets in who knows the token."""

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        token = os.environ.get("COUNTING_TOKEN", "")
        given = dict(scope.get("headers", [])).get(b"authorization", b"").decode()
        if scope["type"] == "http" and given != token:
            await PlainTextResponse("no", status_code=401)(scope, receive, send)
            return
        await self._app(scope, receive, send)


if __name__ == "__main__":
    uvicorn.run(
        Gate(server.streamable_http_app()),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="warning",
    )
