"""PostgreSQL and Redis from what is installed, in a directory of their own: to try several processes out."""

import ctypes
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

_NOT_ROOT = ("postgres", "nobody")
_START_LIMIT = 30.0
_STOP_LIMIT = 10.0
_PR_SET_PDEATHSIG = 1


class NotInstalled(Exception):
    """A program is missing; says what to install or to set instead."""


class Server:
    """One server process that ends with us. It listens on a free port of the loopback address and asks for a password."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.directory.mkdir(parents=True, exist_ok=True)
        self.password = _password(directory / "password")
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers. Raise `RuntimeError` with what it said if it does not."""
        until = time.monotonic() + _START_LIMIT
        self._process = self._launch()
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise RuntimeError(self._log.read_text("utf-8", "replace")[-2000:])
            time.sleep(0.05)

    def stop(self) -> None:
        """End it, and wait for that."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout=_STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def url(self) -> str:
        """Its address, with the password."""
        raise NotImplementedError

    @property
    def _log(self) -> Path:
        return self.directory / "log.txt"

    def _launch(self) -> "subprocess.Popen[bytes]":
        raise NotImplementedError

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False


class Postgres(Server):
    """A PostgreSQL cluster. It refuses to run as root, so root lends it another user."""

    def __init__(self, directory: Path) -> None:
        self._programs = _postgres_programs()
        self._user = _other_user() if os.geteuid() == 0 else None
        if self._user is not None and not _may_enter(directory):
            directory = _elsewhere(directory)
        super().__init__(directory)

    @property
    def url(self) -> str:
        """The address of its database."""
        return f"postgres://turnkeeper:{self.password}@127.0.0.1:{self.port}/postgres"

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _launch(self) -> "subprocess.Popen[bytes]":
        if self._user is not None:
            owner = pwd.getpwnam(self._user)
            for path in (self.directory, *self.directory.iterdir()):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        if not (self._data / "PG_VERSION").exists():
            self._make_cluster()
        (self._data / "postmaster.pid").unlink(missing_ok=True)  # of one that did not end by itself
        options = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": 200,
        }
        listed = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return self._run("postgres", "-D", str(self._data), *listed)

    def _make_cluster(self) -> None:
        making = self._run(
            *("initdb", "-D", str(self._data), "-U", "turnkeeper", "-E", "UTF8", "--no-locale"),
            *("-A", "scram-sha-256", f"--pwfile={self.directory / 'password'}"),
        )
        if making.wait() != 0:
            raise RuntimeError(self._log.read_text("utf-8", "replace")[-2000:])

    def _run(self, program: str, *arguments: str) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [self._programs / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                user=self._user,
                group=self._user and pwd.getpwnam(self._user).pw_gid,
                extra_groups=None if self._user is None else [],
                start_new_session=True,
                preexec_fn=ends_with_us(signal.SIGINT),
            )


class Redis(Server):
    """A Redis that keeps nothing."""

    def __init__(self, directory: Path) -> None:
        if shutil.which("redis-server") is None:
            raise NotInstalled("Redis: install redis-server, or set REDIS_URL.")
        super().__init__(directory)

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def _launch(self) -> "subprocess.Popen[bytes]":
        lines = (
            f"port {self.port}",
            "bind 127.0.0.1",
            'save ""',
            "appendonly no",
            f"requirepass {self.password}",
        )
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [
                    str(shutil.which("redis-server")),
                    "-",
                ],  # a password on the command line can be read
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                start_new_session=True,
                preexec_fn=ends_with_us(signal.SIGINT),
            )
        if process.stdin is not None:
            process.stdin.write("\n".join(lines).encode())
            process.stdin.close()
        return process


def ends_with_us(number: signal.Signals) -> Callable[[], None]:
    """Return what a child does first so that the kernel sends it a signal when we die, however we die (Linux)."""
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def ask() -> None:
        if hasattr(libc, "prctl"):
            libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

    return ask


def _postgres_programs() -> Path:
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not versions:
        raise NotInstalled("PostgreSQL: install postgresql, or set DATABASE_URL.")
    return versions[-1].parent


def _other_user() -> str:
    for name in _NOT_ROOT:
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise NotInstalled("PostgreSQL does not run as root: use another user, or set DATABASE_URL.")


def _may_enter(directory: Path) -> bool:
    """Whether other users get as far as this directory."""
    return all(parent.stat().st_mode & 0o001 for parent in directory.parents if parent.exists())


def _elsewhere(directory: Path) -> Path:
    """Return a directory outside, the same one each time; its name is kept inside."""
    directory.mkdir(parents=True, exist_ok=True)
    note = directory / "elsewhere"
    if not (note.exists() and Path(note.read_text("utf-8")).exists()):
        note.write_text(tempfile.mkdtemp(prefix="turnkeeper-"), "utf-8")
    return Path(note.read_text("utf-8"))


def _password(file: Path) -> str:
    if not file.exists():
        file.touch(0o600)
        file.write_text(secrets.token_urlsafe(24), "ascii")
    return file.read_text("ascii")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
