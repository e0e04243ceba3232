"""A Redis of our own."""

import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

from scripts.servers.server import NotInstalled, Server, write_secret


class Redis(Server):
    """A Redis that keeps nothing."""

    def __init__(self, directory: Path) -> None:
        self._program = find_redis()
        super().__init__(directory)

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def _command(self) -> Sequence[str]:
        lines = (
            f"port {self.port}",
            "bind 127.0.0.1",
            'save ""',
            "appendonly no",
            f"requirepass {self.password}",
        )
        file = self.directory / "redis.conf"  # a password on the command line can be read
        write_secret(file, "\n".join(lines))
        return (self._program, str(file))

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(f"AUTH {self.password}\r\n".encode())
                return connection.recv(16).startswith(b"+OK")
        except OSError:
            return False


def find_redis() -> str:
    """Return Redis's server program. Raise `NotInstalled`."""
    found = shutil.which("redis-server")
    if found is None:
        raise NotInstalled("Redis: install redis-server")
    return found
