"""Row of the whole way: a message goes in at a socket, every event of its turn comes out. It stands next to a library."""

import asyncio
import time
from collections.abc import Callable

from benchmarks import library, peers
from benchmarks.clock_model import THREE
from benchmarks.measurement import Effort, Timed, on_one_core, spread_of, timed
from benchmarks.rows import Bar, Row, latency
from benchmarks.sites import cpu_clock, door_of, until_at_rest
from benchmarks.tabs import Tab, Tabs, client_of
from tests.faults.site import Site

BAR = Bar(most_cpu_ratio=1)


def measure(site: Site, effort: Effort) -> list[Row]:
    """Return the row; its CPU time is the server's, up to its rest."""
    return [asyncio.run(_measure(site, effort))]


async def _measure(site: Site, effort: Effort) -> Row:
    door, clock = door_of(site), cpu_clock(site)
    of_library = library.turn_of(peers.SHAPE)
    ours: list[Timed] = []
    bare: list[Timed] = []
    async with client_of(door) as http, Tabs(door, http, 1) as tabs:
        with on_one_core(site.processes["web"].pid):
            for _ in range(effort.warm_ups + effort.turns):
                ours.append(await _turn(tabs.all[0], clock))
                bare.append(await timed(of_library))
    return latency(
        "socket_turn",
        f"message frame → all events of the turn, {peers.SHAPE.what}, one process, SQLite; "
        f"bare: {peers.WORDS[peers.PYDANTIC_AI]}",
        spread_of(ours[effort.warm_ups :]),
        bare=spread_of(bare[effort.warm_ups :]),
        bar=BAR,
    )


async def _turn(tab: Tab, clock: Callable[[], float]) -> Timed:
    began, computed = time.perf_counter(), clock()
    await tab.tell(THREE)
    await tab.until("turn_end")
    wall = time.perf_counter() - began
    await asyncio.to_thread(until_at_rest, clock)
    return Timed(wall=wall, cpu=clock() - computed)
