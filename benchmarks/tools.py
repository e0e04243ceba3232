"""Tools that do nothing, for ever or not at all. `spin` runs in a worker process, so it stands on its own here."""

import asyncio
from pathlib import Path

from benchmarks.bare import noop
from governance import Isolation, ToolRegistry, make_tool

_held = asyncio.Event()


async def hold() -> str:
    """Wait for ever; `is_held` knows when it has begun."""
    _held.set()
    await asyncio.Event().wait()
    return "never"


async def is_held() -> None:
    """Wait until `hold` has begun, and forget it."""
    await _held.wait()
    _held.clear()


def spin(sign: str) -> str:
    """Touch a file and use a processor for ever."""
    Path(sign).touch()
    while True:
        pass


def register(registry: ToolRegistry) -> None:
    """Add the tools to a registry."""
    for made in (make_tool(noop), make_tool(hold), make_tool(spin, isolation=Isolation.PROCESS)):
        registry.register(made)
