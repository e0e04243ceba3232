"""The `wait` tool: waits, to try out progress, limits and cancelling."""

import asyncio
from typing import Annotated

from pydantic import Field

from governance.core.registry import make_tool
from governance.core.tools import Tool, ToolContext

_BEAT = 1.0
_LONGEST = 86_400.0


def make_wait() -> Tool:
    return make_tool(wait, title="Wait")


async def wait(
    context: ToolContext,
    seconds: Annotated[float, Field(ge=0, le=_LONGEST, description="How long to wait.")],
) -> str:
    """Wait for a number of seconds, saying each second how many have passed."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    while (left := started + seconds - loop.time()) > 0:
        await asyncio.sleep(min(_BEAT, left))
        passed = min(loop.time() - started, seconds)
        context.progress(f"{passed:.0f} / {seconds:g} s", progress=round(passed, 2), total=seconds)
    return f"Waited {seconds:g} s."
