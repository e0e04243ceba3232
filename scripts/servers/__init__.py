"""PostgreSQL and Redis from what is installed: to try several processes out, to measure, and to be broken."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from scripts.servers.postgres import Postgres, find_postgres
from scripts.servers.redis import Redis, find_redis
from scripts.servers.server import NotInstalled, Server, ends_with_us, free_port

__all__ = [
    "NotInstalled",
    "Postgres",
    "Redis",
    "Server",
    "are_installed",
    "ends_with_us",
    "find_postgres",
    "find_redis",
    "free_port",
    "passing",
]

S = TypeVar("S", bound=Server)


@contextmanager
def passing(kind: Callable[[Path], S]) -> Iterator[S]:
    """Run a server that leaves nothing behind; raise `NotInstalled` if it is not there."""
    with tempfile.TemporaryDirectory(prefix="turnkeeper-", ignore_cleanup_errors=True) as directory:
        server = kind(Path(directory))
        try:
            server.start()
            yield server
        finally:
            server.crash()


def are_installed() -> bool:
    """Whether both servers can be started here."""
    try:
        find_postgres()
        find_redis()
    except NotInstalled:
        return False
    return True
