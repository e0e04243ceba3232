"""The connections of this process to MCP servers: one set for each event loop, synchronised with the servers' rows."""

import asyncio
import logging
import time
from collections.abc import Container
from dataclasses import dataclass, field
from math import inf
from typing import Any

from django.db.models.signals import post_delete, post_save

from governance.conf import app_settings, known_secrets
from governance.core.cancellation import CancellationToken
from governance.core.masking import mask
from governance.core.registry import registry
from governance.db import on_commit, run_in_db_thread
from governance.mcp.tools import McpTools
from governance.mcp_servers.store import RowHealth, read_specs
from governance.models import McpServer
from governance.per_loop import PerLoop

logger = logging.getLogger("governance.mcp.runtime")

_LOOK_EVERY = 2.0  # seconds between two polls for edits by other processes
_FRESH_FOR = 4.0  # seconds for which the rows are fresh enough for a starting turn


@dataclass(slots=True, kw_only=True)
class _Servers:
    tools: McpTools
    health: RowHealth
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    looked_at: float = -inf
    read_at: float = -inf  # the time of the last successful read
    edits: set["asyncio.Task[None]"] = field(default_factory=set)


_servers: PerLoop[_Servers] = PerLoop()


async def prepare(*, token: CancellationToken | None = None) -> None:
    """Register the servers' tools before a turn starts.

    This waits a few seconds at most. The turn starts without the tools of a server that takes longer.
    """
    servers = _servers.get_or_make(_make)
    try:
        if servers.edits:  # edits that this process has made, and not applied yet
            await asyncio.wait(servers.edits)
        if time.monotonic() - servers.read_at >= _FRESH_FOR:
            await _follow(servers)
        await servers.tools.ready(token=token)
    except Exception:
        logger.exception("The tools of the MCP servers could not be loaded")


async def follow() -> None:
    """Poll for rows that were edited in another process. Do nothing in a process that runs no turns."""
    servers = _servers.get()
    if servers is not None and time.monotonic() - servers.looked_at >= _LOOK_EVERY:
        await _follow(servers)


async def close() -> None:
    """Disconnect the servers of the running loop. Return when their processes are gone."""
    servers = _servers.pop()
    if servers is None:
        return
    if servers.edits:
        await asyncio.wait(servers.edits)
    await servers.tools.aclose()
    await servers.health.written()


def starting() -> dict[str, str]:
    """Return the names of servers that are still being connected for the first time, with the prefixes of their tools."""
    here = _servers.get()
    return here.tools.starting if here is not None else {}


def instructions(servers: Container[str]) -> dict[str, str]:
    """Return the instructions that agents read, by server name, for those of `servers` that have any."""
    here = _servers.get()
    return here.tools.instructions(servers) if here is not None else {}


def _make() -> _Servers:
    health = RowHealth()
    tools = McpTools(
        registry=registry,
        health=health,
        allow_private=lambda: bool(app_settings.WEB_ALLOW_PRIVATE),
        mask=lambda text: mask(text, secrets=known_secrets()),
    )
    return _Servers(tools=tools, health=health)


async def _follow(servers: _Servers) -> None:
    async with servers.looking:  # so that rows read earlier never replace rows read later
        servers.looked_at = time.monotonic()
        servers.tools.apply(await run_in_db_thread(read_specs)())
        servers.read_at = servers.looked_at


def _edited(**_: Any) -> None:
    """Make every event loop of this process read the rows again once the edit is committed."""
    on_commit(lambda: _servers.call_soon(_follow_soon), robust=True)


def _follow_soon(servers: _Servers) -> None:
    task = asyncio.get_running_loop().create_task(
        _follow_logged(servers), name="edit of MCP servers"
    )
    servers.edits.add(task)
    task.add_done_callback(servers.edits.discard)


async def _follow_logged(servers: _Servers) -> None:
    try:
        await _follow(servers)
    except Exception:
        logger.exception("Edited MCP servers could not be read")


post_save.connect(_edited, sender=McpServer, dispatch_uid="governance.mcp")
post_delete.connect(_edited, sender=McpServer, dispatch_uid="governance.mcp")
