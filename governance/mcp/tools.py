"""Registers the tools of all MCP servers, and removes them when their server is removed (G2)."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any, Protocol

from governance.core.cancellation import CancellationToken
from governance.core.exceptions import UnknownTool
from governance.core.excerpts import shortened
from governance.core.policy import ApprovalRule
from governance.core.registry import ToolRegistry, make_tool
from governance.core.tools import Isolation, Tool, ToolContext
from governance.mcp.connection import ServerConnection
from governance.mcp.specs import FoundTool, McpTiming, ServerSpec

logger = logging.getLogger(__name__)

NOT_INSTALLED = "the package `mcp` is not installed: install django-turnkeeper[mcp]"
_LONGEST_DESCRIPTION = 4_000
_LONGEST_NAME = 64
_MOST_NAMED = 5
_TAKEN = "its name is taken"


def is_installed() -> bool:
    """Whether the SDK is installed; everything else works without it."""
    return find_spec("mcp") is not None


class Health(Protocol):
    """Records the health of servers; neither waits nor raises."""

    def connected(self, server_id: int, *, tools: Sequence[FoundTool], problem: str) -> None:
        """The server has listed its tools; `problem` says which are left out, and why."""

    def failed(self, server_id: int, *, reason: str) -> None:
        """The server cannot be used; `reason` is a clause that is safe to show."""


class McpTools:
    """Synchronises the registry with the servers. Lives on one event loop; `apply` sets the servers."""

    def __init__(
        self,
        *,
        registry: ToolRegistry,
        health: Health,
        allow_private: Callable[[], bool] = lambda: False,
        timing: McpTiming | None = None,
    ) -> None:
        self._registry = registry
        self._health = health
        self._allow_private = allow_private
        self._timing = timing or McpTiming()
        self._connections: dict[int, ServerConnection] = {}
        self._registered: dict[int, dict[str, Tool]] = {}
        self._name_conflicts: set[int] = set()  # servers with a tool whose name was taken
        self._first_marked: dict[int, frozenset[str]] = {}  # what each said of its tools first
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def connections(self) -> tuple[ServerConnection, ...]:
        return tuple(self._connections.values())

    def apply(self, specs: Iterable[ServerSpec]) -> None:
        """Use exactly these servers. What was changed or is not among them is disconnected, its tools are taken out."""
        if self._is_closed:
            return
        wanted = {spec.id: spec for spec in specs}
        for server_id, connection in list(self._connections.items()):
            spec = wanted.get(server_id)
            if spec is None or spec != connection.spec:
                self._remove_server(server_id)
            elif spec.read_only_tools != connection.spec.read_only_tools:
                connection.spec = spec
                self._offer(connection, connection.tools)
        for server_id, spec in wanted.items():
            if server_id not in self._connections:
                self._add_server(spec)

    async def ready(self, *, token: CancellationToken | None = None) -> None:
        """Begin to connect what is not connected, and wait for it a moment: a slow server comes in later.

        A request to cancel ends the wait, not the attempts.
        """
        attempts = {
            attempt
            for connection in self.connections
            if (attempt := connection.connect_soon()) is not None
        }
        if not attempts:
            return
        waits: set[asyncio.Task[Any]] = {
            asyncio.create_task(_all(attempts), name="waiting for MCP servers")
        }
        if token is not None:
            waits.add(asyncio.create_task(token.wait(), name="waiting for a cancel"))
        try:
            await asyncio.wait(
                waits, timeout=self._timing.ready_timeout, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for wait in waits:
                wait.cancel()

    async def aclose(self) -> None:
        """Disconnect every server. Return when their processes are gone."""
        self._is_closed = True
        for server_id in list(self._connections):
            self._remove_server(server_id)
        if self._closing:
            await asyncio.wait(self._closing)

    def tools_found(self, connection: ServerConnection, tools: Sequence[FoundTool]) -> None:
        """Put the server's tools into the registry in place of the ones that it named before."""
        if self._connections.get(connection.spec.id) is connection:
            problem = self._offer(connection, tools)
            self._health.connected(connection.spec.id, tools=tools, problem=problem)

    def _offer(self, connection: ServerConnection, tools: Sequence[FoundTool]) -> str:
        """Register the tools. Return a clause on those that are left out, if any."""
        server_id = connection.spec.id
        marked = frozenset(found.name for found in tools if found.is_read_only)
        believed = connection.spec.read_only_tools
        if believed is None:
            believed = self._first_marked.setdefault(server_id, marked)
        made: dict[str, Tool] = {}
        left_out: dict[str, str] = {}
        for found in filter(lambda found: connection.spec.allows(found.name), tools):
            is_read_only = found.is_read_only and found.name in believed
            tool = _make(connection, replace(found, is_read_only=is_read_only))
            if found.problem or tool.name in made:
                left_out[found.name] = found.problem or _TAKEN
            else:
                made[tool.name] = tool
        taken = self._register(server_id, made)
        (self._name_conflicts.add if taken else self._name_conflicts.discard)(server_id)
        left_out |= dict.fromkeys(taken, _TAKEN)
        return _sentence(left_out)

    def failed(self, connection: ServerConnection, reason: str) -> None:
        """Note it. The tools stay: a call says clearly what is wrong, and the server may be back by then."""
        self._health.failed(connection.spec.id, reason=reason)

    def _add_server(self, spec: ServerSpec) -> None:
        if not is_installed():
            self._health.failed(spec.id, reason=NOT_INSTALLED)
            return
        self._connections[spec.id] = ServerConnection(
            spec, timing=self._timing, allow_private=self._allow_private, observer=self
        )

    def _remove_server(self, server_id: int) -> None:
        connection = self._connections.pop(server_id)
        self._first_marked.pop(server_id, None)
        self._register(server_id, {})
        self._name_conflicts.discard(server_id)
        for other in [self._connections[other_id] for other_id in self._name_conflicts]:
            self.tools_found(other, other.tools)  # its names may be free now
        task = asyncio.create_task(
            connection.aclose(), name=f"closing MCP server {connection.spec.name}"
        )
        self._closing.add(task)
        task.add_done_callback(self._closed)

    def _closed(self, task: "asyncio.Task[None]") -> None:
        self._closing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("Closing an MCP server failed", exc_info=error)

    def _register(self, server_id: int, made: dict[str, Tool]) -> list[str]:
        """Replace the server's tools. Return the names that other tools already have."""
        for name, tool in self._registered.pop(server_id, {}).items():
            if self._find(name) is tool:
                self._registry.unregister(name)
        taken = [name for name in made if name in self._registry]
        mine = {name: tool for name, tool in made.items() if name not in taken}
        for tool in mine.values():
            self._registry.register(tool)
        self._registered[server_id] = mine
        return taken

    def _find(self, name: str) -> Tool | None:
        try:
            return self._registry.get(name)
        except UnknownTool:
            return None


async def _all(attempts: "set[asyncio.Task[None]]") -> None:
    await asyncio.wait(attempts)


def _sentence(left_out: Mapping[str, str]) -> str:
    named = [f"{shortened(name, limit=_LONGEST_NAME)} ({why})" for name, why in left_out.items()]
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return f"left out: {', '.join(named[:_MOST_NAMED])}{more}" if named else ""


def _input_problems(schema: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    from governance.mcp.schemas import input_problems  # noqa: PLC0415 - comes with the SDK

    return input_problems(schema, given)


def _make(connection: ServerConnection, found: FoundTool) -> Tool:
    # Its own parameter has a name that no tool of a server has: the others are the server's.
    async def call_server(*, _turnkeeper_context: ToolContext, **arguments: Any) -> str:
        return await connection.call(found, arguments, _turnkeeper_context)

    spec = connection.spec
    return make_tool(
        call_server,
        name=spec.local_name(found.name),
        title=found.title,
        description=shortened(found.description, limit=_LONGEST_DESCRIPTION)
        or f"A tool of {spec.name}.",
        isolation=Isolation.ASYNC,
        raw_schema=found.input_schema,
        problems=partial(_input_problems, found.input_schema),
        timeout=spec.timeout,
        max_running=spec.max_running,
        server=spec.name,
        pool=f"MCP server {spec.id}" if spec.max_running is not None else "",
        side_effects=not found.is_read_only,
        approval=None if found.is_read_only else ApprovalRule.ONCE_PER_CONVERSATION,
    )
