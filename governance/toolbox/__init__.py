"""The built-in tools: commands, files, web pages and waiting (G1)."""

from governance.core.tools import ToolRegistry
from governance.toolbox.files import make_file_tools
from governance.toolbox.settings import (
    BrowserSandbox,
    Resolver,
    SandboxChoice,
    SettingsSource,
    ToolboxSettings,
)
from governance.toolbox.shell import make_exec
from governance.toolbox.waiting import make_wait
from governance.toolbox.web import make_web_fetch

__all__ = [
    "BrowserSandbox",
    "Resolver",
    "SandboxChoice",
    "SettingsSource",
    "ToolboxSettings",
    "register",
]


def register(registry: ToolRegistry, *, settings: SettingsSource) -> None:
    """Register every built-in tool. `settings` is asked at each call, so that a change is obeyed by the next one."""
    for made in (
        make_exec(settings),
        *make_file_tools(settings),
        make_web_fetch(settings),
        make_wait(),
    ):
        # The first schema of a process makes pydantic look for plugins on the disk: not on the event loop, please.
        _ = made.input_schema
        registry.register(made)
