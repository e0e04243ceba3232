"""All built-in tools: registered, described for this machine, and closed."""

import asyncio

from governance.core.registry import ToolRegistry
from governance.core.tools import Tool
from governance.toolbox.browser import Browser, make_browser
from governance.toolbox.files import make_file_tools
from governance.toolbox.git import make_git_tools
from governance.toolbox.search import make_web_search
from governance.toolbox.settings import SettingsSource
from governance.toolbox.shell import Shell, describe, make_exec
from governance.toolbox.waiting import make_wait
from governance.toolbox.web import make_web_fetch


def register(registry: ToolRegistry, *, settings: SettingsSource) -> None:
    """Register every built-in tool. `settings` is asked at each call, so that a change is obeyed by the next one."""
    for made in (
        make_exec(settings),
        *make_file_tools(settings),
        *make_git_tools(settings),
        make_web_fetch(settings),
        make_web_search(settings),
        make_browser(settings),
        make_wait(),
    ):
        # The first schema of a process makes pydantic search the disk for plugins: that must not block the event loop.
        _ = made.input_schema
        registry.register(made)


async def prepare(registry: ToolRegistry) -> None:
    """Probe this machine once, before the first call, and put the result into the tools' descriptions."""
    for tool in list(registry):
        if isinstance(_owner(tool), Shell):
            registry.register(await asyncio.to_thread(described, tool))


def described(tool: Tool) -> Tool:
    """Return the tool with what this machine offers in its description; blocks, so call it in a thread."""
    owner = _owner(tool)
    if not (isinstance(owner, Shell) and owner.is_enabled):
        return tool
    told = describe(tool, owner.sandbox)
    told.build()
    return told


async def aclose(registry: ToolRegistry) -> None:
    """Close what the built-in tools hold open on the running loop: the browser, its pages and processes."""
    for tool in registry:
        if isinstance(owner := _owner(tool), Browser):
            await owner.aclose()


def _owner(tool: Tool) -> object:
    return getattr(tool.function, "__self__", None)
