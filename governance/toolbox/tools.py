"""Functions that register the built-in tools, describe them for this machine, and close them.

The smallest tool, `wait`, is also defined here.
"""

import asyncio
from typing import Annotated

from pydantic import Field

from governance.core.registry import ToolRegistry, make_tool
from governance.core.tools import Tool, ToolContext
from governance.threads import run_in_thread
from governance.toolbox.browser import Browser, make_browser
from governance.toolbox.files import make_file_tools
from governance.toolbox.git import GitTools, make_git_tools
from governance.toolbox.search import make_web_search
from governance.toolbox.settings import SettingsSource
from governance.toolbox.shell import Shell, describe, make_exec
from governance.toolbox.web import make_web_fetch

_BEAT = 1.0  # seconds between two progress reports of `wait`
_LONGEST = 86_400.0


def register(registry: ToolRegistry, *, settings: SettingsSource) -> None:
    """Register every built-in tool. Each tool call reads `settings` again, so a change applies to the next call."""
    for new_tool in (
        make_exec(settings),
        *make_file_tools(settings),
        *make_git_tools(settings),
        make_web_fetch(settings),
        make_web_search(settings),
        make_browser(settings),
        make_tool(wait, title="Wait"),
    ):
        # Build the schema now, because pydantic searches the disk for plugins when it builds the first schema in a
        # process, and that must not block the event loop.
        _ = new_tool.input_schema
        registry.register(new_tool)


async def prepare(registry: ToolRegistry) -> None:
    """Test what this machine supports, and add it to the tools' descriptions. Run this before the first tool call."""
    for tool in list(registry):
        owner = _owner(tool)
        if isinstance(owner, Shell):
            registry.register(await run_in_thread(described, tool))
        elif isinstance(owner, GitTools):
            await run_in_thread(lambda owner: owner.can_run, owner)


def described(tool: Tool) -> Tool:
    """Return the tool with this machine's capabilities in its description. This blocks, so call it in a thread."""
    owner = _owner(tool)
    if not (isinstance(owner, Shell) and owner.is_enabled):
        return tool
    description = describe(tool, owner.sandbox)
    description.build()
    return description


async def aclose(registry: ToolRegistry) -> None:
    """Close what the built-in tools have opened in the running event loop: the browser, its pages and processes."""
    for tool in registry:
        if isinstance(owner := _owner(tool), Browser):
            await owner.aclose()


def _owner(tool: Tool) -> object:
    return getattr(tool.function, "__self__", None)


async def wait(
    context: ToolContext,
    seconds: Annotated[
        float, Field(ge=0, le=_LONGEST, description="The number of seconds to wait.")
    ],
) -> str:
    """Wait for a number of seconds, and report every second how many have passed."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    while (seconds_left := start + seconds - loop.time()) > 0:
        await asyncio.sleep(min(_BEAT, seconds_left))
        duration = min(loop.time() - start, seconds)
        context.progress(
            f"{duration:.0f} / {seconds:g} s", progress=round(duration, 2), total=seconds
        )
    return f"Waited {seconds:g} s."
