"""Reads the rows of MCP servers as specs, and stores the servers' health in them."""

import asyncio
import logging
import shlex
from collections.abc import Sequence
from contextvars import Context
from typing import Any

from governance import db_clock
from governance.core.tools import estimated_tokens
from governance.db import run_in_db_thread
from governance.durations import to_seconds
from governance.mcp.specs import FoundTool, ServerSpec, Transport
from governance.mcp.validation import unlisted
from governance.models import McpServer
from governance.sanitize import sanitize_text

logger = logging.getLogger("governance.mcp.server_store")

_LONGEST = 500


def read_specs() -> list[ServerSpec]:
    """Return the enabled servers, in one query. Invalid rows are logged and left out."""
    return [
        spec
        for row in McpServer.objects.filter(enabled=True)
        if (spec := readable_spec(row)) is not None
    ]


def readable_spec(row: McpServer) -> ServerSpec | None:
    """Return the row as a spec, or None if it is invalid."""
    try:
        return spec_of(row)
    except (ValueError, TypeError, AttributeError):  # written without the model's checks
        logger.warning("The row of an MCP server is invalid", extra={"server": row.name})
        return None


def spec_of(row: McpServer) -> ServerSpec:
    return ServerSpec(
        id=row.pk,
        name=row.name,
        transport=Transport(row.transport),
        command=tuple(shlex.split(row.command)),
        url=row.url,
        headers=tuple(sorted(row.headers.items())),
        environment=tuple(row.environment),
        unlisted=tuple(unlisted([*row.environment, *row.headers.values()])),
        allowed_tools=frozenset(row.allowed_tools),
        timeout=to_seconds(row.timeout_ms),
        max_running=row.max_running or _calls_at_once(row),
        prefix=row.prefix or f"{row.name}_",
        allow_private=row.allow_private,
        read_only_tools=_trusted_tools(row),
        uses_instructions=row.uses_instructions,
        asks_people=row.asks_people,
    )


def _calls_at_once(row: McpServer) -> int | None:
    """Return 1 for a command that may ask people, because it does not report for which of its calls it asks."""
    return 1 if row.asks_people and row.transport == Transport.STDIO else None


def _trusted_tools(row: McpServer) -> frozenset[str] | None:
    if not row.trusts_read_only:
        return frozenset()
    return None if row.read_only_tools is None else frozenset(row.read_only_tools)


class RowHealth:
    """Stores the health of servers in their rows. A background task writes the latest state of each server."""

    def __init__(self) -> None:
        self._pending: dict[int, dict[str, Any]] = {}
        self._writing: asyncio.Task[None] | None = None

    def connected(
        self, server_id: int, *, tools: Sequence[FoundTool], instructions: str, problem: str
    ) -> None:
        """Record that the server is healthy, with its tools and instructions."""
        described_tools = [
            {
                "name": sanitize_text(tool.name, limit=_LONGEST),
                "text": _first_line(tool),
                "read_only": tool.is_read_only,
                "tokens": 0
                if tool.problem
                else estimated_tokens(tool.name, tool.description, tool.input_schema),
            }
            for tool in tools
        ]
        error = sanitize_text(problem, limit=_LONGEST)
        self._queue_update(
            server_id,
            last_ok_at=db_clock.now(),
            last_error=error,
            tools_found=described_tools,
            instructions_found=instructions,
        )

    def failed(self, server_id: int, *, reason: str) -> None:
        """Record that the server cannot be used."""
        error = sanitize_text(reason, limit=_LONGEST)
        self._queue_update(server_id, last_error=error, last_error_at=db_clock.now())

    async def written(self) -> None:
        """Wait until all recorded states are in the database."""
        if self._writing is not None:
            await asyncio.wait({self._writing})

    def _queue_update(self, server_id: int, **values: Any) -> None:
        self._pending.setdefault(server_id, {}).update(values)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(
                self._write(), name="health of MCP servers", context=Context()
            )

    async def _write(self) -> None:
        while self._pending:
            server_id = next(iter(self._pending))
            values = self._pending.pop(server_id)
            try:
                await _update(server_id, values)
            except Exception:
                logger.exception("The health of an MCP server could not be written")


@run_in_db_thread
def _update(server_id: int, values: dict[str, Any]) -> None:
    # Not `save`, because it would overwrite concurrent edits, and would itself be taken for an edit.
    McpServer.objects.filter(pk=server_id).update(**values)
    if tools := values.get("tools_found"):
        marked = [tool["name"] for tool in tools if tool["read_only"]]
        undecided = McpServer.objects.filter(pk=server_id, read_only_tools__isnull=True)
        undecided.filter(trusts_read_only=True).update(read_only_tools=marked)


def _first_line(tool: FoundTool) -> str:
    line = tool.description.strip().partition("\n")[0]
    return sanitize_text(line, limit=_LONGEST)
