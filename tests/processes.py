"""One process of the product under test: started with a fault or without, signalled, read, and surely ended."""

import ctypes
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.fork_server import ROOT, ForkServer, shared_fork_server
from tests.support import LONG_PATIENCE, PATIENCE, eventually_sync


class Process:
    """A Python process of the product; what it prints is kept in a file."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        fork_server: ForkServer,
        environment: Mapping[str, str],
        log: Path,
        errors: Path | None = None,
        directory: Path = ROOT,
    ) -> None:
        self.name = name
        self._log = log
        self._log.touch()
        self._said_before = self._log.stat().st_size
        self._exit_code: int | None = None
        self.pid = fork_server.spawn(
            arguments, environment=environment, log=log, errors=errors, directory=directory
        )

    @property
    def said(self) -> str:
        """What it has printed, with what earlier processes of this name had."""
        return self._log.read_text("utf-8", "replace")

    @property
    def own_words(self) -> str:
        """What this one has printed."""
        return self._log.read_bytes()[self._said_before :].decode("utf-8", "replace")

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        if self._exit_code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._exit_code = os.waitstatus_to_exitcode(status)
        return self._exit_code

    @property
    def is_alive(self) -> bool:
        """Whether it runs (or is stopped)."""
        return self.exit_code is None

    @property
    def is_frozen(self) -> bool:
        """Whether it was stopped."""
        stat = Path(f"/proc/{self.pid}/stat").read_text("utf-8", "replace")
        return self.is_alive and stat.rpartition(")")[2].split()[0] == "T"

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self.is_alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it as a crash does."""
        self.signal(signal.SIGKILL)
        self.wait(within=PATIENCE)

    def signal_aside(self, number: int) -> None:
        """Let another thread than its main one take a signal, as happens when two come at once."""
        aside = next(
            int(tid) for tid in os.listdir(f"/proc/{self.pid}/task") if tid != str(self.pid)
        )
        if ctypes.CDLL(None, use_errno=True).tgkill(self.pid, aside, number):
            raise OSError(ctypes.get_errno(), "tgkill")

    def freeze(self) -> None:
        """Stop it as a machine that hangs (SIGSTOP)."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on (SIGCONT)."""
        self.signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        self.signal(signal.SIGTERM)

    def has_ended(self, *, within: float) -> bool:
        """Wait for its end, and return whether it came in time."""
        try:
            eventually_sync(lambda: not self.is_alive, timeout=within)
        except AssertionError:
            return False
        return True

    def wait(self, *, within: float) -> int:
        """Wait until it has ended and return its exit code; fail if it does not end in time."""
        if not self.has_ended(within=within) or self.exit_code is None:
            raise AssertionError(f"{self.name} lives after {within} s:\n{self.own_words[-3000:]}")
        return self.exit_code


def run_python(
    *arguments: str, environment: Mapping[str, str], directory: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run Python to its end, as `subprocess.run` does, in half the time where it uses Django."""
    with tempfile.TemporaryDirectory() as kept:
        said, errors = Path(kept, "said"), Path(kept, "errors")
        process = Process(
            "python",
            arguments,
            fork_server=shared_fork_server(),
            environment=environment,
            log=said,
            errors=errors,
            directory=directory,
        )
        try:
            code = process.wait(within=LONG_PATIENCE)
        finally:
            process.kill()
        return subprocess.CompletedProcess(
            arguments, code, stdout=said.read_text("utf-8"), stderr=errors.read_text("utf-8")
        )


def owned_by(directory: Path) -> list[int]:
    """Return the running processes that carry a site's directory in their environment or stand in it."""
    where = str(directory).encode()
    return [
        pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _owns(pid, where)
    ]


def deaf(directory: Path) -> list[int]:
    """Return those of them that ignore SIGTERM: the workers that run `ignore`."""
    return [pid for pid in owned_by(directory) if _ignores(pid, signal.SIGTERM)]


def _ignores(pid: int, number: signal.Signals) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    [ignored] = re.findall(r"^SigIgn:\s*(\w+)$", status, re.MULTILINE)
    return bool(int(ignored, 16) >> (number - 1) & 1)


def _owns(pid: int, where: bytes) -> bool:
    entry = Path(f"/proc/{pid}")
    try:
        if (entry / "stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X"):
            return False
        return where in (entry / "environ").read_bytes() or os.readlink(
            entry / "cwd"
        ).encode().startswith(where)
    except OSError:  # gone in between, or another user's
        return False
