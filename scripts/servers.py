"""Starts the installed PostgreSQL and Redis as servers for trials, measurements and fault tests.

A server can be suspended and resumed. It ends with this process at the latest.
"""

import ctypes
import os
import pwd
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, TypeVar

import psycopg

_PORTS = range(20_000, 32_000)
_START_LIMIT = 30.0
_STOP_LIMIT = 10.0
_PR_SET_PDEATHSIG = 1
_NOT_ROOT = ("postgres", "nobody")
NOTE = "elsewhere"  # the file with the cluster's location
_STATE = Path("/var/lib")  # survives a restart of the machine, unlike /tmp


class NotInstalled(Exception):
    """A program is missing; the message names the package to install."""


class Server(ABC):
    """A server process that ends with this process. It listens on a free loopback port and requires a password."""

    crash_signal: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, directory: Path, *, user: str | None = None) -> None:
        self.directory = directory
        self.directory.mkdir(parents=True, exist_ok=True)
        self.password = _password(directory / "password")
        self.port = free_port()
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def exit_code(self) -> int | None:
        """The exit code, which is negative after a signal; None while the server runs or before its start."""
        return None if self._process is None else self._process.poll()

    @property
    def said(self) -> str:
        """The end of the server's log."""
        return self._log.read_text("utf-8", "replace")[-2000:]

    @property
    @abstractmethod
    def url(self) -> str:
        """The server's URL, including the password."""

    def start(self) -> None:
        """Start the server, or resume a suspended one, and wait until it responds.

        Raises:
            RuntimeError: the server ended or did not respond in time. The message is the end of its log.
        """
        if self._process is None or self._process.poll() is not None:
            self._process = self._spawn(self._command())
        self.signal(signal.SIGCONT)
        until = time.monotonic() + _START_LIMIT
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise RuntimeError(self.said)
            time.sleep(0.02)

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Send the server a signal, by default SIGINT, and wait until it ends. Kill it if it does not end in time."""
        if self._process is None:
            return
        self.signal(signal.SIGCONT)
        self._process.send_signal(number)
        try:
            self._process.wait(timeout=_STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def crash(self) -> None:
        """End the server immediately, without an orderly shutdown."""
        self.stop(self.crash_signal)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server and its children, for example SIGSTOP to suspend them or SIGCONT to resume them."""
        if self._process is None:
            return
        self._process.send_signal(number)
        for pid in _children(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """Prepare the server's files, and return the command that starts it."""

    @abstractmethod
    def _answers(self) -> bool:
        """Return whether the server responds."""

    @property
    def _log(self) -> Path:
        return self.directory / "log.txt"

    def _spawn(self, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                user=self._user,
                group=self._user and pwd.getpwnam(self._user).pw_gid,
                extra_groups=None if self._user is None else [],
                start_new_session=True,
                # SIGKILL is the only signal that also ends a suspended server. Committed data survives.
                preexec_fn=ends_with_us(signal.SIGKILL),
            )


class Postgres(Server):
    """A PostgreSQL server with its own cluster. PostgreSQL refuses to run as root, so root starts it as another user.

    With `is_durable=False`, a commit does not wait for the disk.
    """

    crash_signal = signal.SIGQUIT  # PostgreSQL passes it on to its children

    def __init__(self, directory: Path, *, is_durable: bool = True) -> None:
        self._programs = find_postgres()
        self._is_durable = is_durable
        user = _other_user() if os.geteuid() == 0 else None
        is_elsewhere = (directory / NOTE).exists()
        if is_elsewhere or (user is not None and not _may_enter(directory)):
            directory = _elsewhere(directory)
        super().__init__(directory, user=user)

    @property
    def url(self) -> str:
        """The URL of the default database `postgres`."""
        return self.database_url("postgres")

    def database_url(self, name: str) -> str:
        return f"postgres://turnkeeper:{self.password}@127.0.0.1:{self.port}/{name}"

    def run(
        self, statement: str, *values: object, database: str = "postgres"
    ) -> list[tuple[object, ...]]:
        """Execute one statement outside a transaction and return its rows."""
        url = self.database_url(database)
        with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _command(self) -> Sequence[str]:
        if self._user is not None:
            owner = pwd.getpwnam(self._user)
            for path in (self.directory, *self.directory.iterdir()):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        if not (self._data / "PG_VERSION").exists():
            self._make_cluster()
        (self._data / "postmaster.pid").unlink(missing_ok=True)  # left by a killed server
        options = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": 200,
            **({} if self._is_durable else {"fsync": "off", "full_page_writes": "off"}),
        }
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return (str(self._programs / "postgres"), "-D", str(self._data), *arguments)

    def _make_cluster(self) -> None:
        how = ("-U", "turnkeeper", "-E", "UTF8", "--no-locale", "-A", "scram-sha-256")
        where = ("-D", str(self._data), f"--pwfile={self.directory / 'password'}")
        quickly = () if self._is_durable else ("--no-sync",)
        process = self._spawn((str(self._programs / "initdb"), *where, *how, *quickly))
        if process.wait() != 0:
            raise RuntimeError(self.said)

    def _answers(self) -> bool:
        try:
            return bool(self.run("SELECT 1"))
        except psycopg.OperationalError:
            return False


def find_postgres() -> Path:
    """Return the directory with the newest version of PostgreSQL's programs. Raise `NotInstalled` if there is none."""
    program = shutil.which("initdb")
    if program is not None:
        return Path(program).parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not versions:
        raise NotInstalled("PostgreSQL: install postgresql")
    return versions[-1].parent


def _other_user() -> str:
    for name in _NOT_ROOT:
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise NotInstalled("PostgreSQL does not run as root: use another user")


def _may_enter(directory: Path) -> bool:
    """Return whether other users can enter this directory."""
    return all(parent.stat().st_mode & 0o001 for parent in directory.parents if parent.exists())


def _elsewhere(directory: Path) -> Path:
    """Return a directory that the server's user can enter. Its path is stored in `directory`.

    Files of a cluster that are still in `directory` are moved there. Raise `RuntimeError` if a directory chosen earlier
    is no longer accessible.
    """
    directory.mkdir(parents=True, exist_ok=True)
    note = directory / NOTE
    if not note.exists():
        new_directory = Path(
            tempfile.mkdtemp(prefix="turnkeeper-", dir=_STATE if _STATE.is_dir() else None)
        )
        for name in ("data", "password"):
            if (directory / name).exists():
                shutil.move(directory / name, new_directory / name)
        note.write_text(str(new_directory), "utf-8")
    place = Path(note.read_text("utf-8"))
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        raise RuntimeError(
            f"The database is in {place}, which does not exist or belongs to another user. To start with an empty one, remove"
            f" {note}."
        )
    return place


class Redis(Server):
    """A Redis server without persistence."""

    def __init__(self, directory: Path) -> None:
        self._program = find_redis()
        super().__init__(directory)

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def _command(self) -> Sequence[str]:
        lines = (
            f"port {self.port}",
            "bind 127.0.0.1",
            'save ""',
            "appendonly no",
            f"requirepass {self.password}",
        )
        # In a file, because other users could read a password on the command line.
        file = self.directory / "redis.conf"
        _write_secret(file, "\n".join(lines))
        return (self._program, str(file))

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(f"AUTH {self.password}\r\n".encode())
                return connection.recv(16).startswith(b"+OK")
        except OSError:
            return False


def find_redis() -> str:
    """Return the path of the Redis server program. Raise `NotInstalled` if there is none."""
    program = shutil.which("redis-server")
    if program is None:
        raise NotInstalled("Redis: install redis-server")
    return program


S = TypeVar("S", bound=Server)


@contextmanager
def passing(kind: Callable[[Path], S]) -> Iterator[S]:
    """Run a temporary server for the duration of the context. Raise `NotInstalled` if its program is missing."""
    with tempfile.TemporaryDirectory(prefix="turnkeeper-", ignore_cleanup_errors=True) as directory:
        server = kind(Path(directory))
        try:
            server.start()
            yield server
        finally:
            server.crash()


def are_installed() -> bool:
    """Return whether the programs of both servers are installed."""
    try:
        find_postgres()
        find_redis()
    except NotInstalled:
        return False
    return True


def free_port() -> int:
    """Return an unused port on the loopback address, outside the kernel's ephemeral range.

    If the port were in that range, a client that keeps reconnecting to a stopped server could be assigned the server's
    port and connect to itself.
    """
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port


def ends_with_us(number: signal.Signals) -> Callable[[], None]:
    """Return a `preexec_fn` with which a child receives the signal when this process dies (only on Linux)."""
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def ask() -> None:
        if hasattr(libc, "prctl"):
            libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

    return ask


def _children(parent: int) -> list[int]:
    """Return the ids of the child processes.

    They are signalled one by one, because each may lead its own process group.
    """
    children = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(pid) for pid in children.read_text().split()] if children.exists() else []


def _password(file: Path) -> str:
    if not file.exists():
        _write_secret(file, secrets.token_urlsafe(24))
    return file.read_text("ascii")


def _write_secret(file: Path, text: str) -> None:
    """Write a file that only this user can read."""
    file.touch(0o600)
    file.write_text(text, "ascii")
