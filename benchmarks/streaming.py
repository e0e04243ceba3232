"""Rows of streams: how late a chunk is, and how many turns a process gets through, with ten, fifty, a hundred at once."""

import asyncio
import os
import time
from pathlib import Path

from benchmarks.clock_model import PAUSE, stream
from benchmarks.measurement import Effort, spread
from benchmarks.rows import Row, amount, latency
from benchmarks.tabs import Tab, Tabs, client_of
from tests.faults.processes import Process
from tests.faults.site import Site

TURNS = 2  # of each tab, one after the other


def measure(site: Site, effort: Effort) -> list[Row]:
    """Return the rows of each number of streams."""
    rows: list[Row] = []
    for count in effort.streams:
        rows += asyncio.run(_streams(site, count, effort.chunks))
    return rows


async def _streams(site: Site, count: int, chunks: int) -> list[Row]:
    async with client_of(site) as http, Tabs(site, http, count) as tabs:
        clock = _Clock(site.processes["web"])
        talks = [_talk(tab, chunks) for tab in tabs.all]
        delays = [delay for talk in await asyncio.gather(*talks) for delay in talk]
        seconds, of_server, of_machine = clock.read()
    pushed = 100 * len(delays) / (count * TURNS * chunks)
    ideal = count / (chunks * PAUSE)
    name, what = f"streams_{count}", f"{count} streams at once, 25 chunks/s each"
    return [
        latency(f"{name}_delay", f"chunk → socket, {what}", spread(delays)),
        amount(
            f"{name}_rate",
            f"turns of one process, {what}; bare: if nothing took time but the chat model",
            spread([count * TURNS / seconds]),
            unit="turns/s",
            bare=spread([ideal]),
        ),
        amount(f"{name}_pushed", "… of the chunks, pushed as text", spread([pushed]), unit="%"),
        amount(f"{name}_core", "… of one core, the server", spread([of_server]), unit="%"),
        amount(f"{name}_busy", "… of all cores, everything here", spread([of_machine]), unit="%"),
    ]


async def _talk(tab: Tab, chunks: int) -> list[float]:
    delays: list[float] = []
    for _ in range(TURNS):
        turn_id = await tab.say(stream(chunks))
        delays += await tab.until("turn_end", turn_id=turn_id)
    return delays


class _Clock:
    """How much time passes, and how much of it the server and the whole machine compute."""

    def __init__(self, process: Process) -> None:
        self._stat = Path(f"/proc/{process.pid}/stat")
        self._began = self._now()

    def read(self) -> tuple[float, float, float]:
        """Return the seconds since the beginning, the server's % of one core, the machine's % of all cores."""
        passed = [after - before for before, after in zip(self._began, self._now(), strict=True)]
        seconds, server, idle, whole = passed
        return seconds, 100 * server / seconds, 100 * (1 - idle / whole)

    def _now(self) -> tuple[float, float, float, float]:
        tick = os.sysconf("SC_CLK_TCK")
        own = self._stat.read_text("utf-8", "replace").rpartition(")")[2].split()
        server = (int(own[11]) + int(own[12])) / tick
        machine = [
            int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        ]
        return time.monotonic(), server, float(machine[3] + machine[4]), float(sum(machine))
