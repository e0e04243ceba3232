"""The browser tool as its tests use it: one browser for many tests, each of them a conversation of its own."""

import os
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from governance import toolbox
from governance.core import procfs
from governance.core.cancellation import CancellationToken
from governance.core.exceptions import ToolFailed
from governance.core.registry import ToolRegistry
from governance.core.tools import ToolContext
from governance.toolbox import ToolboxSettings, chromium
from tests.governance.toolbox.http_server import answer


class BrowserHarness:
    """The tools in one loop, and the browser that they start."""

    def __init__(self, workspace):
        self.workspace = workspace
        self.settings = ToolboxSettings()
        self.registry = ToolRegistry()
        toolbox.register(self.registry, settings=lambda: self.settings)
        self.scope = ""
        self.reports = []

    def reset(self):
        self.settings = ToolboxSettings(web_allow_private=True)
        self.scope = uuid.uuid4().hex

    def change(self, **values):
        self.settings = replace(self.settings, **values)

    @property
    def tool(self):
        return self.registry.get("browser")

    @property
    def browsing(self):
        return self.tool.function.__self__._processes.get()

    @property
    def page(self):
        return self.browsing.find(self.scope).page

    def call(self, action, *, scope=None, **arguments):
        context = ToolContext(
            call_id="call_1",
            tool_name="browser",
            scope=scope or self.scope,
            token=CancellationToken(),
            report=self.reports.append,
            workspace=self.workspace,
        )
        return self.tool.function(context, **self.tool.validate({"action": action, **arguments}))

    async def fails(self, match, action, **arguments):
        with pytest.raises(ToolFailed, match=match) as caught:
            await self.call(action, **arguments)
        return str(caught.value)


def page(html, **headers):
    return answer(html, content_type="text/html; charset=utf-8", connection="close", **headers)


def browser_tags(*, ancestor=None):
    """The entries in the environment by which the processes of our browsers are known, and of no one else's."""
    name = chromium._TAG.encode() + b"="
    found = set()
    for pid in procfs.pids():
        with suppress(OSError):
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            tags = {entry.decode() for entry in environment if entry.startswith(name)}
            if tags and descends(pid, ancestor or os.getpid()):
                found |= tags
    return found


def driver_of(pids):
    """The process that started a browser, of which these are the processes; it is a child of ours."""
    (driver,) = {parent_of(pid) for pid in pids if parent_of(parent_of(pid)) == os.getpid()}
    return driver


def descends(pid, ancestor):
    while pid > 1:
        if pid == ancestor:
            return True
        pid = parent_of(pid)
    return False


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
