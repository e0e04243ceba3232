"""Servers that leave nothing behind."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from scripts.servers.postgres import find_postgres
from scripts.servers.redis import find_redis
from scripts.servers.server import NotInstalled, Server

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
