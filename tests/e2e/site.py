"""The real site, started and ended as a person does it. Nothing of it may stay behind."""

import os
import shutil
import signal
from pathlib import Path

import httpx

from scripts.servers import free_port
from tests.fork_server import ROOT as ROOT
from tests.fork_server import shared_fork_server
from tests.made_once import made_once, migrated_file
from tests.processes import Process, owned_by
from tests.support import LONG_PATIENCE, eventually_sync

_LET_GO, _WAITS = "let-go", "waits"
UNTIL_TOLD = f"run touch {_WAITS}; until [ -e {_LET_GO} ]; do sleep 0.05; done"  # a message; see `Site.let_go`
MAKE_BLANK = """
from django.conf import settings
from django.core.management import call_command
call_command("create_demo_users", credentials=settings.VAR_DIR / "credentials.txt")
"""


class Site:
    """One server process with its own database, port and workspaces; a killed one can be started again."""

    def __init__(self, var: Path, **settings: str) -> None:
        self.var = var
        self._settings = settings
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: Process | None = None

    @property
    def said(self) -> str:
        """What the server has printed."""
        return self._process.said

    def start(self) -> None:
        """Start the server, and wait until it answers. The first start in a directory finds its tables there."""
        self._lay_out()
        environment = {
            **_environment(self.var),
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            "GOVERNANCE_APPROVAL": "*=never,list_files=once_per_conversation",
            # What stops when it is asked to may take its time on a busy machine.
            "GOVERNANCE_CANCEL_GRACE": "20",
            "TURNS_CANCEL_BOUND": "25",
            "TURNS_LEASE_FENCE_AFTER": "60",
            "TURNS_LEASE_TTL": "90",
            **self._settings,
        }
        self._process = _spawn("server", ["-m", "scripts.start"], environment)
        eventually_sync(lambda: self.answers() or not self._process.is_alive, timeout=LONG_PATIENCE)
        assert self._process.is_alive, self.said

    def carry_out(self, code: str) -> None:
        """Run a piece of Python on the site's database, the server running or not."""
        self._lay_out()
        _carry_out(code, self.var)

    def kill(self) -> None:
        """End the server as a crash does: no time for anything."""
        self._process.kill()

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._process.signal(signal.SIGINT)

    def wait(self) -> int:
        """Wait until the server has ended, and return its exit code."""
        return self._process.wait(within=LONG_PATIENCE)

    def leave(self) -> None:
        """End the server if it still runs, whatever the test has found."""
        if self._process is not None:
            self._process.kill()

    def let_go(self) -> None:
        """End the commands of `UNTIL_TOLD`, as soon as one waits: nobody guesses how long a test needs it."""

        def waiting() -> list[Path]:
            signs = (self.var / "workspaces").rglob(_WAITS)
            return [sign.parent for sign in signs if not (sign.parent / _LET_GO).exists()]

        eventually_sync(waiting)
        for directory in waiting():
            (directory / _LET_GO).touch()

    def password(self, name: str) -> str:
        """Return a demo user's password, from the file that keeps them."""
        lines = (self.var / "credentials.txt").read_text().splitlines()
        return dict(line.split(" ", 1) for line in lines)[name]

    def processes(self, command: str = "") -> list[int]:
        """Return the processes that belong to this site: by its directory, in their environment or as their own.

        With a `command`, only those whose whole command line it is.
        """
        wanted = command.encode().replace(b" ", b"\0")
        return [pid for pid in owned_by(self.var) if wanted in (b"", _command(pid))]

    def _lay_out(self) -> None:
        if not (self.var / "db.sqlite3").exists():
            shutil.copytree(_blank(), self.var, dirs_exist_ok=True)

    def answers(self) -> bool:
        """Return whether the server answers."""
        try:
            return httpx.get(f"{self.url}/healthz", trust_env=False, timeout=1).is_success
        except httpx.TransportError:
            return False


def _blank() -> Path:
    """Return a directory with a migrated database and the demo users; a fresh one is what tests/setup starts."""
    return made_once("blank", _make_blank)


def _make_blank(var: Path) -> None:
    shutil.copy(migrated_file(), var / "db.sqlite3")
    _carry_out(MAKE_BLANK, var)


def _carry_out(code: str, var: Path) -> None:
    environment = {**_environment(var), "DJANGO_SETTINGS_MODULE": "config.settings"}
    process = _spawn("code", ["-c", f"import django\ndjango.setup()\n{code}"], environment)
    assert process.wait(within=LONG_PATIENCE) == 0, process.said


def _spawn(name: str, arguments: list[str], environment: dict[str, str]) -> Process:
    return Process(
        name,
        arguments,
        fork_server=shared_fork_server(),
        environment=environment,
        log=Path(environment["VAR_DIR"]) / f"{name}.txt",
    )


def _environment(var: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "ENV_FILE": os.devnull, "VAR_DIR": str(var)}


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0")
    except OSError:
        return b"gone"
