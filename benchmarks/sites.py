"""Sites of real server processes: those that the fault tests break, left whole here."""

import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from benchmarks.measurement import Timed, process_clock
from benchmarks.tabs import Door
from scripts.servers import NotInstalled, Postgres, Redis, passing
from tests.faults.site import Site, make_blank
from tests.fork_server import ForkServer

PATIENCE = 60.0
_LOOK_EVERY = 0.02
_AT_REST = 0.001  # seconds of CPU time between two looks
_SETTINGS: dict[str, Any] = {"TURNS_CHAT_MODEL": "benchmarks.clock_model.make"}


@contextmanager
def embedded_site(directory: Path, *, max_live: int = 50) -> Iterator[Site]:
    """Run a site of one process with SQLite; its name is `web`. Of `max_live` turns each may run a call."""
    if sys.platform != "linux":
        raise NotInstalled("processes are measured on Linux only")
    with _site(directory, TURNS_MAX_LIVE=max_live, GOVERNANCE_MAX_RUNNING=max_live) as site:
        site.serve()
        yield site


@contextmanager
def scaled_site(directory: Path) -> Iterator[tuple[Site, Redis]]:
    """Run a site of a web process and a runner, `web` and `runner`, with PostgreSQL and Redis of its own."""
    missing = [name for name in ("channels_redis", "procrastinate") if not find_spec(name)]
    if missing:
        raise NotInstalled(f"{', '.join(missing)} not installed")
    with (
        passing(Postgres) as postgres,
        passing(Redis) as redis,
        _site(directory, postgres=postgres, redis=redis) as site,
    ):
        start_scaled(site)
        yield site, redis


def door_of(site: Site) -> Door:
    """Return how a user comes in."""
    return Door(url=site.url(), token=site.tokens["ada"])


def cpu_clock(site: Site) -> Callable[[], float]:
    """Return a clock of the CPU time of all processes that a site has now."""
    alive = [process for process in site.processes.values() if process.is_alive]
    clocks = [process_clock(process.pid) for process in alive]
    return lambda: sum(clock() for clock in clocks)


def timed_of(site: Site, wait: Callable[[], float]) -> Timed:
    """Do something that tells how long it took. The CPU time is that of the site's processes, up to their rest."""
    clock = cpu_clock(site)
    computed = clock()
    wall = wait()
    until_at_rest(clock)
    return Timed(wall=wall, cpu=clock() - computed)


def until_at_rest(clock: Callable[[], float]) -> None:
    """Wait until next to nothing is computed any more: what follows a turn belongs to it, too."""
    give_up_at = time.monotonic() + PATIENCE
    before = -math.inf
    while (now := clock()) - before > _AT_REST:
        if time.monotonic() > give_up_at:
            raise RuntimeError("The site does not come to rest.")
        before = now
        time.sleep(_LOOK_EVERY)


def start_scaled(site: Site) -> None:
    """Start (again) the web process and the runner."""
    site.run_turns()
    site.serve_uvicorn(role="web")


@contextmanager
def _site(directory: Path, *, postgres: Postgres | None = None, **how: Any) -> Iterator[Site]:
    var = Path(mkdtemp(prefix="site-", dir=directory))
    blank = Path(mkdtemp(prefix="blank-", dir=directory))
    fork_server = ForkServer()
    try:
        made = make_blank(blank, postgres=postgres)
        site = Site(
            var,
            blank=made,
            fork_server=fork_server,
            postgres=postgres,
            has_failpoints=False,  # each pass of one reads a file
            **_SETTINGS,
            **how,
        )
        try:
            yield site
        finally:
            site.leave()
    finally:
        fork_server.close()
        shutil.rmtree(var, ignore_errors=True)
        shutil.rmtree(blank, ignore_errors=True)
