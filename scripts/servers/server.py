"""One server process of our own: started, silenced, ended, and gone when we are."""

import ctypes
import os
import pwd
import random
import secrets
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

_PORTS = range(20_000, 32_000)
_START_LIMIT = 30.0
_STOP_LIMIT = 10.0
_PR_SET_PDEATHSIG = 1


class NotInstalled(Exception):
    """A program is missing; says what to do about it."""


class Server(ABC):
    """One server process that ends with us. It listens on a free port of the loopback address and asks for a password."""

    crash_signal: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, directory: Path, *, user: str | None = None) -> None:
        self.directory = directory
        self.directory.mkdir(parents=True, exist_ok=True)
        self.password = _password(directory / "password")
        self.port = free_port()
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Its address, with the password."""

    def start(self) -> None:
        """Start it unless it runs, let it go on if it stands still, and wait until it answers.

        Raise `RuntimeError` with what it said if it does not.
        """
        if self._process is None or self._process.poll() is not None:
            self._process = self._spawn(self._command())
        self.signal(signal.SIGCONT)
        until = time.monotonic() + _START_LIMIT
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise RuntimeError(self._said)
            time.sleep(0.02)

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """End it by a signal, in an orderly way if none is given, and wait for that."""
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
        """End it at once, as its machine does that loses power."""
        self.stop(self.crash_signal)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and its children: SIGSTOP makes it silent, SIGCONT lets it go on."""
        if self._process is None:
            return
        self._process.send_signal(number)
        for pid in _children(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """Return what starts it, after what has to be there before."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it does what it is asked."""

    @property
    def _log(self) -> Path:
        return self.directory / "log.txt"

    @property
    def _said(self) -> str:
        return self._log.read_text("utf-8", "replace")[-2000:]

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
                # The one signal that ends a server that stands still, too; what it had committed is there afterwards.
                preexec_fn=ends_with_us(signal.SIGKILL),
            )


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on now.

    None of those that the kernel lends to clients. A client may keep asking for a server that is away. One day it would
    get the server's own port, and be connected to itself.
    """
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port


def ends_with_us(number: signal.Signals) -> Callable[[], None]:
    """Return the first thing that a child does: ask the kernel for a signal when its parent dies (Linux)."""
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def ask() -> None:
        if hasattr(libc, "prctl"):
            libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

    return ask


def _children(parent: int) -> list[int]:
    """The processes that a process has started, each of which may be a group of its own."""
    children = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(pid) for pid in children.read_text().split()] if children.exists() else []


def _password(file: Path) -> str:
    if not file.exists():
        write_secret(file, secrets.token_urlsafe(24))
    return file.read_text("ascii")


def write_secret(file: Path, text: str) -> None:
    """Write a file that nobody else can read."""
    file.touch(0o600)
    file.write_text(text, "ascii")
