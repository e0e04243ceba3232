"""Sites of real server processes, with the default settings except for rate limits and limits of concurrent work."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.servers import NotInstalled, Postgres, Redis, passing
from tests.faults.site import Site, environment, make_blank
from tests.fork_server import ForkServer
from tests.processes import run_python

ONE_PROCESS = "`manage.py serve`, one process, SQLite"
ACROSS_PROCESSES = "`manage.py serve` and `manage.py runner`, PostgreSQL, Redis"


@contextmanager
def one_process(*, at_once: int) -> Iterator[Site]:
    """Run `manage.py serve` with SQLite. Up to `at_once` turns, and calls of a conversation, may run concurrently."""
    with _site(at_once=at_once) as site:
        site.serve()
        yield site


@contextmanager
def across_processes() -> Iterator[Site]:
    """Run a web process and a runner, with their own PostgreSQL and Redis."""
    missing = [name for name in ("channels_redis", "psycopg") if not find_spec(name)]
    if missing:
        raise NotInstalled(f"{', '.join(missing)} not installed")
    with (
        passing(Postgres) as postgres,
        passing(Redis) as redis,
        _site(at_once=50, postgres=postgres, redis=redis) as site,
    ):
        site.run_turns()
        site.serve(role="web")
        yield site


def run(site: Site, *arguments: str) -> str:
    """Run Python to its end with the settings of a site; return what it printed."""
    variables = environment(site.var, database_url=site.database_url)
    process = run_python(*arguments, environment=variables)
    if process.returncode:
        raise RuntimeError(process.stderr)
    return process.stdout


def cpu_clock(site: Site) -> Callable[[], float]:
    """Return a clock of the CPU time of the web process, including its threads."""
    clock = ~site.processes["web"].pid << 3 | 2  # as clock_getcpuclockid(3) makes it
    return lambda: time.clock_gettime(clock)


@contextmanager
def _site(
    *, at_once: int, postgres: Postgres | None = None, redis: Redis | None = None
) -> Iterator[Site]:
    if sys.platform != "linux":
        raise NotInstalled("processes are measured on Linux only")
    with TemporaryDirectory(prefix="benchmark-") as directory:
        var, blank = Path(directory, "site"), Path(directory, "blank")
        var.mkdir()
        blank.mkdir()
        fork_server = ForkServer()
        try:
            site = Site(
                var,
                blank=make_blank(blank, postgres=postgres),
                fork_server=fork_server,
                postgres=postgres,
                redis=redis,
                has_failpoints=False,  # a process with failpoints reads a file at each of them
                TURNS_CHAT_MODEL="benchmarks.clock_model:make",
                TURNS_MAX_LIVE=at_once,
                GOVERNANCE_MAX_RUNNING=2 * at_once,
                GOVERNANCE_MAX_RUNNING_PER_SCOPE=at_once,
            )
            try:
                yield site
            finally:
                site.leave()
        finally:
            fork_server.close()
