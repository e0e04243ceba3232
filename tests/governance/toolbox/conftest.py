"""Contexts, settings and a registry as the built-in tools get them from a host."""

import asyncio
import os
from dataclasses import replace

import pytest

from governance.core.calls import Progress
from governance.core.cancellation import CancellationToken
from governance.core.registry import ToolRegistry
from governance.core.tools import ToolContext
from governance.toolbox import SandboxChoice, ToolboxSettings, register
from tests.support import PATIENCE, eventually


class ToolboxHarness:
    """The built-in tools, the settings they run under, and what they reported."""

    def __init__(self, workspace):
        self.workspace = workspace
        self.settings = ToolboxSettings(
            exec_enabled=True, exec_sandbox=SandboxChoice.NONE, web_allow_private=True
        )
        self.registry = ToolRegistry()
        register(self.registry, settings=lambda: self.settings)
        self.reports: list[Progress] = []
        self.reported = asyncio.Event()
        self.token = CancellationToken()

    def change(self, **values):
        self.settings = replace(self.settings, **values)

    @property
    def output(self):
        return "".join(report.output for report in self.reports)

    def context(self, name, **values):
        values.setdefault("workspace", self.workspace)
        return ToolContext(
            call_id="call_1",
            tool_name=name,
            scope=values.pop("scope", "scope-1"),
            token=self.token,
            report=self._report,
            **values,
        )

    def call(self, name, **arguments):
        """Return what the tool returns: a coroutine, or for the file tools a text."""
        tool = self.registry.get(name)
        checked = tool.validate(arguments)
        return tool.function(**checked, context=self.context(name))

    async def until(self, condition, *, within=PATIENCE):
        """Wait until a report makes `condition()` true; fail when none does in time."""
        async with asyncio.timeout(within):
            while not condition():
                self.reported.clear()
                await self.reported.wait()

    def _report(self, progress):
        self.reports.append(progress)
        self.reported.set()


@pytest.fixture
def workspace(tmp_path):
    directory = tmp_path / "workspace"
    directory.mkdir()
    return directory


@pytest.fixture
def harness(workspace):
    return ToolboxHarness(workspace)


@pytest.fixture
async def _no_pipe_is_left():
    """Every pipe that a test has opened is closed again, once nobody holds its other end."""
    before = pipes()
    yield
    await eventually(lambda: pipes() <= before)


def pipes():
    """The pipes that this process has open."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:  # the one of the listing itself
            continue
        if target.startswith("pipe:"):
            found.add(target)
    return found
