"""PostgreSQL and Redis of our own, on free ports, to be stopped and broken at will."""

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import psycopg

from tests.support import eventually_sync

_PR_SET_PDEATHSIG = 1
_SYSTEM_USERS = ("postgres", "nobody")


def find_postgres() -> Path | None:
    """Return the directory of PostgreSQL's programs, the newest where there are several."""
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return versions[-1].parent if versions else None


def find_redis() -> str | None:
    """Return Redis's server program."""
    return shutil.which("redis-server")


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def die_with_parent() -> None:
    """Have the kernel end this process when whoever started it is gone, for a run that is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


class Daemon:
    """One server process in a directory of its own."""

    def __init__(self, *, user: str | None = None) -> None:
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="turnkeeper-faults-"))
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None
        if user is not None:
            entry = pwd.getpwnam(user)
            os.chown(self.directory, entry.pw_uid, entry.pw_gid)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        if self._process is None or self._process.poll() is not None:
            self._process = self._spawn(*self._command())
        self.signal(signal.SIGCONT)
        eventually_sync(self._answers, timeout=20)

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it with a signal and wait for that."""
        if self._process is not None:
            self.signal(signal.SIGCONT)
            self._process.send_signal(number)
            self._process.wait(timeout=20)
            self._process = None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and its children: SIGSTOP makes it silent, SIGCONT lets it go on."""
        assert self._process is not None
        self._process.send_signal(number)
        for pid in _children(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def remove(self) -> None:
        """End it and leave nothing."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _spawn(self, *command: str) -> "subprocess.Popen[bytes]":
        with (self.directory / "said.txt").open("ab") as said:
            return subprocess.Popen(
                command,
                stdout=said,
                stderr=said,
                cwd=self.directory,
                user=self._user,
                group=self._user and pwd.getpwnam(self._user).pw_gid,
                extra_groups=None if self._user is None else [],
                start_new_session=True,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )

    def _command(self) -> tuple[str, ...]:
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError


class Postgres(Daemon):
    """A PostgreSQL cluster; refuses to run as root, so root lends it another user.

    Unless it is durable, a commit does not wait for the disk.
    """

    def __init__(self, programs: Path, *, is_durable: bool = False) -> None:
        self._is_durable = is_durable
        super().__init__(user=_other_user() if os.geteuid() == 0 else None)
        self._programs = programs
        self._where = self.directory / "data"
        made = self._spawn(
            str(programs / "initdb"), "-D", str(self._where), "-U", "site", "-A", "trust", "-N"
        )
        assert made.wait(timeout=60) == 0, (self.directory / "said.txt").read_text()

    def url(self, name: str) -> str:
        """Return the address of a database."""
        return f"postgres://site@127.0.0.1:{self.port}/{name}"

    def run(self, statement: str, *, database: str = "postgres") -> list[tuple[object, ...]]:
        """Execute one statement outside a transaction and return its rows."""
        with psycopg.connect(self.url(database), autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def cut_connections(self, database: str) -> int:
        """End every connection to a database; return how many there were."""
        ended = self.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = '{database}' AND pid <> pg_backend_pid()"
        )
        return len(ended)

    def stop(self, number: signal.Signals = signal.SIGQUIT) -> None:
        """End it; by default at once and without a word to anybody, as a crash of its machine."""
        super().stop(number)

    def _command(self) -> tuple[str, ...]:
        options = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": 200,
            "shared_buffers": "32MB",
            **({} if self._is_durable else {"fsync": "off", "full_page_writes": "off"}),
        }
        listed = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return (str(self._programs / "postgres"), "-D", str(self._where), *listed)

    def _answers(self) -> bool:
        try:
            return bool(self.run("SELECT 1"))
        except psycopg.OperationalError:
            return False


class Redis(Daemon):
    """A Redis that keeps nothing."""

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://127.0.0.1:{self.port}/0"

    def _command(self) -> tuple[str, ...]:
        program = find_redis()
        assert program is not None
        port = str(self.port)
        return (program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def _children(parent: int) -> list[int]:
    """The processes that a process has started, each of which may be a group of its own."""
    children = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(pid) for pid in children.read_text().split()] if children.exists() else []


def _other_user() -> str:
    for name in _SYSTEM_USERS:
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise AssertionError("no user to run PostgreSQL as")
