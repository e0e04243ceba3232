"""The built-in tools: shell commands, files, git, web pages, web search, a browser, and waiting (G1)."""

from governance.toolbox.settings import (
    BrowserSandbox,
    Resolver,
    SandboxChoice,
    SettingsSource,
    ToolboxSettings,
)
from governance.toolbox.tools import aclose, described, prepare, register

__all__ = [
    "BrowserSandbox",
    "Resolver",
    "SandboxChoice",
    "SettingsSource",
    "ToolboxSettings",
    "aclose",
    "described",
    "prepare",
    "register",
]
