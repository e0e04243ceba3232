"""Sites of real server processes: those that the fault tests break, left whole here."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from scripts.servers import NotInstalled, Postgres, Redis, passing
from tests.faults.fork_server import ForkServer
from tests.faults.site import Site, make_blank

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
        site = Site(var, blank=made, fork_server=fork_server, postgres=postgres, **_SETTINGS, **how)
        try:
            yield site
        finally:
            site.leave()
    finally:
        fork_server.close()
        shutil.rmtree(var, ignore_errors=True)
        shutil.rmtree(blank, ignore_errors=True)
