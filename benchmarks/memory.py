"""Rows of memory: what a silent socket and a waiting turn keep in a server process."""

import asyncio
import resource
from pathlib import Path

import httpx

from benchmarks.clock_model import HOLD
from benchmarks.measurement import Effort, spread
from benchmarks.rows import Row, amount
from benchmarks.sites import door_of
from benchmarks.tabs import PATIENCE, Tabs, client_of, converse, say
from tests.faults.site import Site
from tests.processes import Process

WARM_UP = 5
_REST = 1.0  # seconds in which what was begun comes to rest


def measure(site: Site, effort: Effort) -> list[Row]:
    """Return the rows."""
    return asyncio.run(_measure(site, effort.held))


async def _measure(site: Site, count: int) -> list[Row]:
    process, door = site.processes["web"], door_of(site)
    async with client_of(door) as http:
        async with Tabs(door, http, WARM_UP) as tabs:
            await _hold(http, [tab.conversation for tab in tabs.all])
        before = await _resident(process)
        async with Tabs(door, http, count):
            of_sockets = await _resident(process) - before
        before = await _resident(process)
        conversations = [await converse(http) for _ in range(count)]
        held = [await say(http, conversation, HOLD) for conversation in conversations]
        await _until_running(http, held)
        of_turns = await _resident(process) - before
        await _cancel(http, held)
    what = f"of {count}, resident memory of the server"
    return [
        amount(
            "socket_memory", f"an idle socket, {what}", spread([of_sockets / count]), unit="KiB"
        ),
        amount("turn_memory", f"a live turn, {what}", spread([of_turns / count]), unit="KiB"),
    ]


async def _hold(http: httpx.AsyncClient, conversations: list[str]) -> None:
    held = [await say(http, conversation, HOLD) for conversation in conversations]
    await _until_running(http, held)
    await _cancel(http, held)


async def _until_running(http: httpx.AsyncClient, turn_ids: list[str]) -> None:
    async with asyncio.timeout(PATIENCE):
        for turn_id in turn_ids:
            while not any(call["status"] == "running" for call in await _calls(http, turn_id)):  # noqa: ASYNC110 - another process knows
                await asyncio.sleep(0.02)


async def _calls(http: httpx.AsyncClient, turn_id: str) -> list[dict[str, str]]:
    calls: list[dict[str, str]] = (await http.get(f"/api/turns/{turn_id}")).json()["calls"]
    return calls


async def _cancel(http: httpx.AsyncClient, turn_ids: list[str]) -> None:
    for turn_id in turn_ids:
        (await http.post(f"/api/turns/{turn_id}/abort", json={})).raise_for_status()


async def _resident(process: Process) -> float:
    """Return the KiB of a process once it has come to rest."""
    await asyncio.sleep(_REST)
    return _kibibytes(process)


def _kibibytes(process: Process) -> float:
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024
