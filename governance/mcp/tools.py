"""Registers the tools of all MCP servers, and removes them when their server is removed (G2)."""

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any, Protocol

from governance.core.cancellation import CancellationToken
from governance.core.exceptions import UnknownTool
from governance.core.excerpts import shortened
from governance.core.masking import mask
from governance.core.policy import ApprovalRule
from governance.core.registry import ToolRegistry, make_tool
from governance.core.tools import Isolation, Tool, ToolContext
from governance.hidden_characters import visible
from governance.mcp.connection import ServerConnection
from governance.mcp.specs import FoundTool, McpTiming, ServerSpec
from governance.sanitize import sanitize_text

logger = logging.getLogger(__name__)

NOT_INSTALLED = "the package `mcp` is not installed: install django-turnkeeper[mcp]"
_LONGEST_DESCRIPTION = 4_000
_LONGEST_NAME = 64
_MOST_NAMED = 5
_TAKEN = "its name is taken"


def is_installed() -> bool:
    """Return whether the MCP SDK is installed. Everything except MCP servers works without it."""
    return find_spec("mcp") is not None


class Health(Protocol):
    """Records the health of servers. Its methods neither wait nor raise."""

    def connected(
        self, server_id: int, *, tools: Sequence[FoundTool], instructions: str, problem: str
    ) -> None:
        """Record that the server has listed its tools. `problem` explains which tools are left out, and why."""

    def failed(self, server_id: int, *, reason: str) -> None:
        """Record that the server cannot be used. `reason` is a clause that is safe to show."""


class McpTools:
    """Keeps the registry synchronised with the servers that `apply` sets. It belongs to one event loop."""

    def __init__(
        self,
        *,
        registry: ToolRegistry,
        health: Health,
        allow_private: Callable[[], bool] = lambda: False,
        timing: McpTiming | None = None,
        mask: Callable[[str], str] = mask,
    ) -> None:
        self._registry = registry
        self._mask = mask
        self._health = health
        self._allow_private = allow_private
        self._timing = timing or McpTiming()
        self._connections: dict[int, ServerConnection] = {}
        self._registered: dict[int, dict[str, Tool]] = {}
        self._name_conflicts: set[int] = set()  # servers with a tool whose name was taken
        # By server: the tools that its first list marks as read-only.
        self._first_marked: dict[int, frozenset[str]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def connections(self) -> tuple[ServerConnection, ...]:
        return tuple(self._connections.values())

    def apply(self, specs: Iterable[ServerSpec]) -> None:
        """Use exactly these servers. Servers that have changed or are missing are disconnected, and their tools are
        removed.
        """
        if self._is_closed:
            return
        specs_by_id = {spec.id: spec for spec in specs}
        for server_id, connection in list(self._connections.items()):
            spec = specs_by_id.get(server_id)
            if spec is None or spec != connection.spec:
                self._remove_server(server_id)
                continue
            is_trust_new = spec.read_only_tools != connection.spec.read_only_tools
            connection.spec = spec
            if is_trust_new:
                self._offer(connection, connection.tools)
        for server_id, spec in specs_by_id.items():
            if server_id not in self._connections:
                self._add_server(spec)

    async def ready(self, *, token: CancellationToken | None = None) -> None:
        """Start to connect the servers that are not connected, and wait a few seconds for them.

        The tools of slower servers are added later. A cancel of `token` ends the wait, but not the attempts.
        """
        for connection in self.connections:
            connection.connect_soon()
        if not any(connection.is_connecting for connection in self.connections):
            return
        attempts = asyncio.gather(*(connection.attempted() for connection in self.connections))
        waits: set[asyncio.Future[Any]] = {attempts}
        if token is not None:
            waits.add(asyncio.create_task(token.wait(), name="waiting for a cancel"))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    @property
    def starting(self) -> dict[str, str]:
        """The servers that are being connected and have not listed tools yet: each name with its tools' prefix."""
        return {
            connection.spec.name: connection.spec.prefix
            for connection in self.connections
            if connection.is_starting
        }

    async def aclose(self) -> None:
        """Disconnect every server. Return when their processes are gone."""
        self._is_closed = True
        for server_id in list(self._connections):
            self._remove_server(server_id)
        if self._closing:
            await asyncio.wait(self._closing)

    def tools_found(self, connection: ServerConnection, tools: Sequence[FoundTool]) -> None:
        """Register the server's tools in place of its previous tools."""
        if self._connections.get(connection.spec.id) is connection:
            problem = self._offer(connection, tools)
            self._health.connected(
                connection.spec.id,
                tools=tools,
                instructions=self._readable(connection.instructions),
                problem=problem,
            )

    def instructions(self, servers: Container[str]) -> dict[str, str]:
        """Return the instructions that agents read, by server name, for those of `servers` that have any."""
        return {
            connection.spec.name: text
            for connection in self.connections
            if connection.spec.uses_instructions
            and connection.spec.name in servers
            and (text := self._readable(connection.instructions))
        }

    def _readable(self, text: str) -> str:
        """Return a server's text as administrators see it: secrets are masked, and hidden characters are visible."""
        return visible(sanitize_text(self._mask(text)))

    def _offer(self, connection: ServerConnection, tools: Sequence[FoundTool]) -> str:
        """Register the tools. Return a clause that names those that are left out, or an empty string."""
        server_id = connection.spec.id
        marked = frozenset(server_tool.name for server_tool in tools if server_tool.is_read_only)
        believed = connection.spec.read_only_tools
        if believed is None:
            believed = self._first_marked.setdefault(server_id, marked)
        new_tools: dict[str, Tool] = {}
        left_out: dict[str, str] = {}
        for server_tool in filter(
            lambda server_tool: connection.spec.allows(server_tool.name), tools
        ):
            is_read_only = server_tool.is_read_only and server_tool.name in believed
            tool = _make(connection, replace(server_tool, is_read_only=is_read_only))
            if server_tool.problem or tool.name in new_tools:
                left_out[server_tool.name] = server_tool.problem or _TAKEN
            else:
                new_tools[tool.name] = tool
        taken_names = self._register(server_id, new_tools)
        (self._name_conflicts.add if taken_names else self._name_conflicts.discard)(server_id)
        left_out |= dict.fromkeys(taken_names, _TAKEN)
        return _sentence(left_out)

    def failed(self, connection: ServerConnection, reason: str) -> None:
        """Record the failure. The tools stay registered, because the server may recover. Until then, a call reports the
        problem.
        """
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
            self.tools_found(other, other.tools)  # the tool names may be free now
        task = asyncio.create_task(
            connection.aclose(), name=f"closing MCP server {connection.spec.name}"
        )
        self._closing.add(task)
        task.add_done_callback(self._closed)

    def _closed(self, task: "asyncio.Task[None]") -> None:
        self._closing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("Closing an MCP server failed", exc_info=error)

    def _register(self, server_id: int, new_tools: dict[str, Tool]) -> list[str]:
        """Replace the server's tools. Return the names that other tools already have."""
        for name, tool in self._registered.pop(server_id, {}).items():
            if self._find(name) is tool:
                self._registry.unregister(name)
        duplicates = [name for name in new_tools if name in self._registry]
        mine = {name: tool for name, tool in new_tools.items() if name not in duplicates}
        for tool in mine.values():
            self._registry.register(tool)
        self._registered[server_id] = mine
        return duplicates

    def _find(self, name: str) -> Tool | None:
        try:
            return self._registry.get(name)
        except UnknownTool:
            return None


def _sentence(left_out: Mapping[str, str]) -> str:
    reasons = [f"{shortened(name, limit=_LONGEST_NAME)} ({why})" for name, why in left_out.items()]
    more = f" and {len(reasons) - _MOST_NAMED} more" if len(reasons) > _MOST_NAMED else ""
    return f"left out: {', '.join(reasons[:_MOST_NAMED])}{more}" if reasons else ""


def _input_problems(schema: Mapping[str, Any], call_input: Mapping[str, Any]) -> str:
    from governance.mcp.schemas import input_problems  # noqa: PLC0415 - comes with the SDK

    return input_problems(schema, call_input)


def _make(connection: ServerConnection, server_tool: FoundTool) -> Tool:
    # All other parameters are the server's, so the context needs a name that no server's tool uses.
    async def call_server(*, _turnkeeper_context: ToolContext, **arguments: Any) -> str:
        return await connection.call(server_tool, arguments, _turnkeeper_context)

    spec = connection.spec
    return make_tool(
        call_server,
        name=spec.local_name(server_tool.name),
        title=server_tool.title,
        description=shortened(server_tool.description, limit=_LONGEST_DESCRIPTION)
        or f"A tool of {spec.name}.",
        isolation=Isolation.ASYNC,
        raw_schema=server_tool.input_schema,
        problems=partial(_input_problems, server_tool.input_schema),
        timeout=spec.timeout,
        max_running=spec.max_running,
        server=spec.name,
        pool=f"MCP server {spec.id}" if spec.max_running is not None else "",
        side_effects=not server_tool.is_read_only,
        approval=None if server_tool.is_read_only else ApprovalRule.ONCE_PER_CONVERSATION,
    )
