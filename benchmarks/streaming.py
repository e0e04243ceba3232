"""Rows of streams: how late a chunk is, and how many turns a process ends, with ten, fifty, a hundred at once."""

import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.clock_model import stream
from benchmarks.drivers import Drivers, Plan
from benchmarks.measurement import Effort, process_clock, spread
from benchmarks.rows import NO_BAR, Bar, Row, amount, latency
from benchmarks.sites import door_of
from tests.faults.site import Site
from tests.processes import Process

TURNS = 2  # of each tab, one after the other
BAR_CROWD = Bar(most_p99=100)
_PER_SECOND, _OF_CROWD = 25, 20  # chunks of each stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """So many streams at once, each with so many chunks in each of its turns."""

    count: int
    chunks: int
    per_second: int

    @property
    def seconds(self) -> float:
        """How long a turn takes if nothing takes time but the chat model."""
        return self.chunks / self.per_second

    @property
    def words(self) -> str:
        """What it is, in a row."""
        return f"{self.count} streams at once, {self.per_second} chunks/s each"

    def plan(self, site: Site, *, turns: int, is_apart: bool) -> Plan:
        """Let all tabs begin together, or spread over the time that a turn takes."""
        step = self.seconds / self.count if is_apart else 0.0
        return Plan(
            door=door_of(site),
            text=stream(self.chunks, per_second=self.per_second),
            turns=turns,
            offsets=tuple(number * step for number in range(self.count)),
        )


def measure(site: Site, effort: Effort) -> list[Row]:
    """Return the rows of each number of streams."""
    rows: list[Row] = []
    for count in effort.streams:
        crowd = Crowd(count=count, chunks=effort.chunks, per_second=_PER_SECOND)
        rows += _together(site, crowd)
        rows += _apart(site, crowd)
    chunks = round(effort.chunks * _OF_CROWD / _PER_SECOND)
    crowd = Crowd(count=effort.crowd, chunks=chunks, per_second=_OF_CROWD)
    return [*rows, *_apart(site, crowd, bar=BAR_CROWD)]


def _together(site: Site, crowd: Crowd) -> list[Row]:
    """All tabs begin their turns at once: that is the worst that can happen to a server."""
    with Drivers(crowd.plan(site, turns=TURNS, is_apart=False)) as drivers:
        clock = _Clock(site.processes["web"])
        drivers.begin()
        delays = [delay for talk in drivers.talks() for _, delay in talk.pieces]
        seconds, of_server, of_machine = clock.read()
    pushed = 100 * len(delays) / (crowd.count * TURNS * crowd.chunks)
    name, what = f"streams_{crowd.count}", f"{crowd.words}, begun together"
    return [
        latency(f"{name}_delay", f"chunk → socket, {what}", spread(delays)),
        amount(
            f"{name}_rate",
            f"turns of one process, {what}; bare: if nothing took time but the chat model",
            spread([crowd.count * TURNS / seconds]),
            unit="turns/s",
            bare=spread([crowd.count / crowd.seconds]),
        ),
        amount(f"{name}_pushed", "… of the chunks, pushed as text", spread([pushed]), unit="%"),
        amount(f"{name}_core", "… of one core, the server", spread([of_server]), unit="%"),
        amount(f"{name}_busy", "… of all cores, everything here", spread([of_machine]), unit="%"),
    ]


def _apart(site: Site, crowd: Crowd, *, bar: Bar = NO_BAR) -> list[Row]:
    """No two tabs begin together; what counts was said while all of them had begun and none was through."""
    with Drivers(crowd.plan(site, turns=TURNS + 1, is_apart=True)) as drivers:
        begun = drivers.begin()
        _sleep_until(begun + crowd.seconds)
        clock = _Clock(site.processes["web"])
        _sleep_until(begun + (TURNS + 1) * crowd.seconds)
        _seconds, of_server, of_machine = clock.read()
        talks = drivers.talks()
    first, last = max(talk.began for talk in talks), min(talk.ended for talk in talks)
    delays = [delay for talk in talks for said_at, delay in talk.pieces if first <= said_at <= last]
    name, what = f"streams_{crowd.count}_apart", f"{crowd.words}, each begun at a moment of its own"
    return [
        latency(f"{name}_delay", f"chunk → socket, {what}", spread(delays), bar=bar),
        amount(f"{name}_core", "… of one core, the server", spread([of_server]), unit="%"),
        amount(f"{name}_busy", "… of all cores, everything here", spread([of_machine]), unit="%"),
    ]


def _sleep_until(moment: float) -> None:
    time.sleep(max(moment - time.monotonic(), 0.0))


class _Clock:
    """How much time passes, and how much of it the server and the whole machine compute."""

    def __init__(self, process: Process) -> None:
        self._server = process_clock(process.pid)
        self._began = self._now()

    def read(self) -> tuple[float, float, float]:
        """Return the seconds since the beginning, the server's % of one core, the machine's % of all cores."""
        passed = [after - before for before, after in zip(self._began, self._now(), strict=True)]
        seconds, server, idle, whole = passed
        return seconds, 100 * server / seconds, 100 * (1 - idle / whole)

    def _now(self) -> tuple[float, float, float, float]:
        machine = [
            int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        ]
        idle = float(machine[3] + machine[4])
        return time.monotonic(), self._server(), idle, float(sum(machine))
