"""One run: which parts there are, in which order they are measured, and what each of them needs."""

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

from benchmarks import core, deadlines, disk, library, postgres_turns
from benchmarks.measurement import Effort, Spread
from benchmarks.progress import say
from benchmarks.rows import Row
from benchmarks.site import scratch_site
from scripts.servers import NotInstalled

IN_PROCESS = ("disk", "core", "library", "deadlines", "turns", "providers", "mcp")
EMBEDDED = ("clicks", "socket", "streams", "memory", "lengths", "pages", "pasts")
SCALED = ("turns-postgres", "processes", "pasts-postgres")
PARTS = (*IN_PROCESS, *EMBEDDED, *SCALED)


class Run:
    """Fills the rows of the parts that were chosen."""

    def __init__(self, effort: Effort, *, parts: Collection[str] = PARTS) -> None:
        self.rows: list[Row] = []
        self._effort = effort
        self._parts = frozenset(parts)
        self._click: Spread | None = None

    def measure(self) -> None:
        """Measure one part after the other."""
        effort = self._effort
        self._fill(
            "core", "The core, next to a bare loop", lambda: asyncio.run(core.measure(effort))
        )
        self._fill("library", "The loop of a library", lambda: asyncio.run(library.measure(effort)))
        self._fill(
            "deadlines",
            "Deadlines that run out at once",
            lambda: asyncio.run(deadlines.measure(effort)),
        )
        with scratch_site() as directory:
            self._fill("disk", "The disk", lambda: disk.measure(effort, directory=directory))
            self._measure_site(directory)
            self._measure_processes(directory)

    def _measure_site(self, directory: Path) -> None:
        # Its models can be imported only now that Django is set up.
        from benchmarks import chat_streams, mcp_calls, whole_turns  # noqa: PLC0415

        effort = self._effort
        self._fill(
            "turns",
            "Whole turns and cancels, with SQLite",
            lambda: asyncio.run(whole_turns.measure(effort, directory=directory)),
        )
        self._fill(
            "providers",
            "Streams of a provider, next to its SDK",
            lambda: asyncio.run(chat_streams.measure(effort)),
        )
        self._fill(
            "mcp",
            "Calls of an MCP server, next to the bare client",
            lambda: asyncio.run(mcp_calls.measure(effort)),
        )

    def _measure_processes(self, directory: Path) -> None:
        try:
            if self._parts & set(EMBEDDED):
                self._measure_embedded(directory)
            self._fill(
                "turns-postgres",
                "Whole turns, with PostgreSQL",
                lambda: postgres_turns.measure(self._effort),
            )
            if self._parts & {"processes", "pasts-postgres"}:
                self._measure_scaled(directory)
        except NotInstalled as missing:
            say(f"Nothing of what is left: {missing}")

    def _measure_embedded(self, directory: Path) -> None:
        from benchmarks import (  # noqa: PLC0415
            growth,
            memory,
            pages,
            scaled,
            sites,
            socket_turns,
            streaming,
        )

        effort = self._effort
        with sites.embedded_site(
            directory, max_live=max(*effort.streams, effort.crowd, effort.held)
        ) as site:

            def clicks() -> list[Row]:
                self._click = scaled.clicks(site, effort.clicks)
                return scaled.measure_embedded(site, effort, self._click)

            ground = growth.Ground(site=site, start=site.serve, name="sqlite", what="SQLite")
            self._fill("clicks", "One server process: clicks and cancels", clicks)
            self._fill(
                "socket",
                "One server process: turns through a socket, next to a library's",
                lambda: socket_turns.measure(site, effort),
            )
            # First, while the process has not grown by anything else.
            self._fill("memory", "One server process: memory", lambda: memory.measure(site, effort))
            self._fill(
                "streams", "One server process: streams", lambda: streaming.measure(site, effort)
            )
            self._fill(
                "lengths",
                "One server process: long conversations",
                lambda: growth.of_lengths(ground, effort),
            )
            self._fill(
                "pages",
                "One server process: a long conversation in a browser",
                lambda: pages.measure(ground, effort),
            )
            self._fill(
                "pasts", "One server process: a long past", lambda: growth.of_pasts(ground, effort)
            )

    def _measure_scaled(self, directory: Path) -> None:
        from benchmarks import growth, scaled, sites  # noqa: PLC0415

        effort = self._effort
        with sites.scaled_site(directory) as (site, redis):

            def start() -> None:
                redis.start()
                sites.start_scaled(site)

            ground = growth.Ground(site=site, start=start, name="postgres", what="PostgreSQL")
            self._fill(
                "processes",
                "A web process and a runner, with PostgreSQL and Redis",
                lambda: scaled.measure(site, redis, effort, embedded=self._click),
            )
            self._fill(
                "pasts-postgres",
                "A web process and a runner: a long past",
                lambda: growth.of_pasts(ground, effort),
            )

    def _fill(self, part: str, words: str, measure: Callable[[], list[Row]]) -> None:
        if part not in self._parts:
            return
        say(words)
        try:
            self.rows += measure()
        except NotInstalled as missing:
            say(f"Without {part}: {missing}")
