"""What the tests of MCP servers share: a registry and an executor with real servers behind them."""

import asyncio
import shutil
import sys
import uuid
from pathlib import Path

from governance import (
    Decision,
    Host,
    Timing,
    ToolCall,
    ToolExecutor,
    ToolRegistry,
    Verdict,
)
from governance.mcp.specs import McpTiming, ServerSpec, Transport
from governance.mcp.tools import McpTools
from tests.governance.core.process_table import tagged
from tests.governance.core.support import RecordingObserver
from tests.support import PATIENCE, NoApprovals, eventually

HERE = Path(__file__).parent
NODE_MODULES = HERE.parents[2] / "node_modules"
EVERYTHING = NODE_MODULES / "@modelcontextprotocol/server-everything/dist/index.js"
HAS_EVERYTHING = shutil.which("node") is not None and EVERYTHING.exists()
MARK = "TURNKEEPER_TEST_MARK"
QUICK = McpTiming(
    ready_timeout=PATIENCE,
    return_timeout=PATIENCE,
    first_backoff=0.05,
    longest_backoff=0.05,
    close_grace=0.2,
    end_grace=0.2,
)


class RecordingHealth:
    """Health that is only written down."""

    def __init__(self):
        self.connections = []
        self.failures = []

    def connected(self, server_id, *, tools, instructions, problem):
        self.connections.append(([tool.name for tool in tools], problem))

    def failed(self, server_id, *, reason):
        self.failures.append(reason)


class Person:
    """Answers no form by itself: `asked` has the calls that ask, by id."""

    def __init__(self):
        self.asked = {}

    async def ask(self, call):
        call.question.id = call.id
        self.asked[call.id] = call

    async def conclude(self, _call, decision):
        return decision

    def answer(self, call, **answers):
        """Accept the form of a call."""
        call.answer(Decision(verdict=Verdict.APPROVED, question=call.id, answers=answers))


class McpHarness:
    """A registry and an executor; `begin` connects servers. The processes of its servers are found by its mark."""

    def __init__(self, monkeypatch, *, timing=QUICK, **options):
        self.mark = uuid.uuid4().hex
        monkeypatch.setenv(MARK, self.mark)
        self.registry = ToolRegistry()
        self.health = RecordingHealth()
        self.tools = McpTools(
            registry=self.registry, health=self.health, timing=timing, allow_private=lambda: True
        )
        self.observer = RecordingObserver()
        self.executor = ToolExecutor(
            registry=self.registry,
            policies=NoApprovals(),
            timing=Timing(cancel_grace=0.6, progress_interval=600, notice_interval=0.05),
            **options,
        )
        self._ids = 0

    async def begin(self, *specs):
        self.tools.apply(specs)
        await self.tools.ready()
        return self.tools.connections[0] if self.tools.connections else None

    async def aclose(self):
        await self.executor.aclose()
        await self.tools.aclose()

    def call(self, name, *, token=None, approver=None, **arguments):
        """Start a call; return it while it lives, and the task that has its outcome."""
        self._ids += 1
        call = ToolCall(id=f"call-{self._ids}", tool_name=name, scope="scope", input=arguments)
        live = self.executor.prepare(call, token=token)
        host = Host(observer=self.observer, approver=approver)
        return live, asyncio.create_task(self.executor.execute(live, host=host), name=call.id)

    async def run(self, name, **arguments):
        return await self.call(name, **arguments)[1]

    async def begun(self, name, **arguments):
        """Start a call and wait until its server has reported progress."""
        live, outcome = self.call(name, **arguments)
        await eventually(lambda: live.last_progress)
        return live, outcome

    @property
    def processes(self):
        """Every process that belongs to a server of this harness."""
        return tagged(f"{MARK}={self.mark}")

    def names(self):
        return [tool.name for tool in self.registry]


def command(name, *words, id=1, **values):
    """A server that is a command."""
    return ServerSpec(
        id=id,
        name=name,
        transport=Transport.STDIO,
        command=tuple(map(str, words)),
        environment=(MARK,),
        prefix=values.pop("prefix", f"{name}_"),
        **values,
    )


def unruly(*habits, **values):
    """The server without manners."""
    return command("unruly", sys.executable, HERE / "unruly_server.py", *habits, **values)


def address(name, url, *, id=1, **values):
    """A server at an address."""
    return ServerSpec(
        id=id, name=name, transport=Transport.HTTP, url=url, prefix=f"{name}_", **values
    )
