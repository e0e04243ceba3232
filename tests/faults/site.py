"""A site under test: its database, its settings, and its processes, in embedded mode (one) or scaled (many)."""

import json
import os
import shutil
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from scripts.servers import Postgres, Redis, free_port
from tests.faults import database_snapshot
from tests.faults.checker import violations
from tests.faults.client import Administrator, Client, WebSocketClient
from tests.faults.database_snapshot import ACTIVE, DatabaseSnapshot
from tests.faults.files import EFFECTS, ENDED, LET_GO
from tests.fork_server import ForkServer
from tests.made_once import migrated_file
from tests.processes import Process, owned_by, run_python
from tests.support import PATIENCE, eventually_sync

SCALED = {"TURNS_DISPATCHER": "runners"}
START_BOUND = 180.0  # seconds; a machine that is busy with other tests takes its time


@dataclass(frozen=True, slots=True, kw_only=True)
class Blank:
    """A migrated database with users, to be copied for each site: a SQLite file, or a name in a cluster."""

    file: Path | None = None
    name: str = ""
    tokens: Mapping[str, str] = field(default_factory=dict)


def make_blank(var: Path, *, postgres: Postgres | None = None) -> Blank:
    """Prepare a database once."""
    name = "blank"
    if postgres is not None:
        postgres.run(f"CREATE DATABASE {name}")
    else:
        shutil.copy(migrated_file(), var / "blank.sqlite3")
    url = postgres.database_url(name) if postgres else f"sqlite:///{var / 'blank.sqlite3'}"
    given = environment(var, database_url=url) | (SCALED if postgres else {})
    made = run_python("-m", "tests.faults.prepare", environment=given)
    assert made.returncode == 0, made.stderr
    tokens = json.loads(made.stdout.splitlines()[-1])
    if postgres is not None:
        return Blank(name=name, tokens=tokens)
    return Blank(file=var / "blank.sqlite3", tokens=tokens)


def environment(var: Path, *, database_url: str, redis_url: str = "") -> dict[str, str]:
    """Return what every process of a site has in its environment."""
    return {
        "PATH": os.environ["PATH"],
        "DJANGO_SETTINGS_MODULE": "tests.faults.settings",
        "ENV_FILE": os.devnull,
        "VAR_DIR": str(var),
        "SECRET_KEY": "the-tests-keep-no-secrets-" + "x" * 40,
        "HTTPS": "false",
        "GOVERNANCE_EXEC_ENABLED": "true",
        "GOVERNANCE_EXEC_SANDBOX": "none",
        "SILENCED_SYSTEM_CHECKS": "governance.W007",
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
    }


class Site:
    """The processes of one site. `settings` are Django settings of all of them.

    Without failpoints (`has_failpoints`) its processes cannot be told to fail, as where their speed is measured.
    """

    def __init__(
        self,
        var: Path,
        *,
        blank: Blank,
        fork_server: ForkServer,
        postgres: Postgres | None = None,
        redis: Redis | None = None,
        has_failpoints: bool = True,
        **settings: Any,
    ) -> None:
        self.var = var
        self._has_failpoints = has_failpoints
        self.settings = settings
        self.tokens = blank.tokens
        self.processes: dict[str, Process] = {}
        self.ports: dict[str, int] = {}
        self._clients: list[Client | Administrator] = []
        self._watchers: list[WebSocketClient] = []
        self._fork_server = fork_server
        self._postgres = postgres
        self.database = f"site_{var.name}".replace("-", "_").lower()
        if postgres is not None:
            postgres.run(f'CREATE DATABASE "{self.database}" TEMPLATE {blank.name}')
            self.database_url = postgres.database_url(self.database)
        else:
            assert blank.file is not None
            shutil.copy(blank.file, var / "db.sqlite3")
            self.database_url = f"sqlite:///{var / 'db.sqlite3'}"
        self.redis_url = redis.url if redis else ""

    # Processes

    def serve(self, name: str = "web", *, role: str = "embedded", **faults: Any) -> Process:
        """Start (again) a process that serves and runs turns: embedded mode, or a web process of scaled mode."""
        return self._web(name, ["manage.py", "serve"], role=role, **faults)

    def serve_uvicorn(self, name: str = "web", *, role: str = "embedded", **faults: Any) -> Process:
        """Start (again) uvicorn: embedded mode, or a web process of scaled mode."""
        port = str(self.port(name))
        command = ["-m", "uvicorn", "config.asgi:application", "--port", port, "--lifespan", "on"]
        command += ["--log-level", "warning", "--timeout-graceful-shutdown", "1"]
        return self._web(name, command, role=role, **faults)

    def serve_daphne(self, name: str = "web", **faults: Any) -> Process:
        """Start (again) Daphne itself, which knows nothing of turns: embedded mode."""
        command = ["-m", "daphne", "config.asgi:application", "--port", str(self.port(name))]
        return self._web(name, command, role="embedded", **faults)

    def serve_hypercorn(self, name: str = "web", **faults: Any) -> Process:
        """Start (again) Hypercorn: embedded mode."""
        command = ["-m", "hypercorn", "config.asgi:application", "--bind"]
        command += [f"127.0.0.1:{self.port(name)}"]
        return self._web(name, command, role="embedded", **faults)

    def run_turns(self, name: str = "runner", *options: str, **faults: Any) -> Process:
        """Start (again) a runner of scaled mode, and wait until it says that it runs turns."""
        process = self._start(name, ["manage.py", "runner", *options], role="runner", **faults)
        eventually_sync(
            lambda: not process.is_alive or "runs up to" in process.own_words, timeout=START_BOUND
        )
        assert process.is_alive, process.own_words
        return process

    def arm(self, name: str, crash: str) -> None:
        """Let a process fail at its next passes of a checkpoint; empty: nowhere."""
        self._orders(name).write_text(crash)

    def freeze(self, process: Process) -> None:
        """Stop a process, but not in the midst of a write. It would hold a SQLite file, and nobody could go on."""

        def stands_outside() -> bool:
            process.freeze()
            if self._postgres is not None or _takes_writes(self.var / "db.sqlite3"):
                return True
            process.thaw()
            return False

        eventually_sync(stands_outside)

    def owner_of(self, turn_id: str) -> Process:
        """Return the process that owns a turn."""
        pid = self.record().owner_pid(turn_id)
        return next(process for process in self.processes.values() if process.pid == pid)

    # People

    def client(self, name: str = "web", *, user: str = "ada") -> Client:
        """Return a user's client of a web process."""
        made = Client(self.url(name), self.tokens[user])
        self._clients.append(made)
        return made

    def administrator(self, name: str = "web") -> Administrator:
        """Sign in to the admin of a web process."""
        made = Administrator(self.url(name), "root")
        self._clients.append(made)
        return made

    def watch(
        self, conversation_id: str, *names: str, user: str = "ada", within: float = PATIENCE
    ) -> WebSocketClient:
        """Open a tab, and wait until it shows the conversation."""
        urls = [self.url(name) for name in names or ("web",)]
        made = WebSocketClient(urls, self.tokens[user], conversation_id)
        self._watchers.append(made)
        assert made.is_connected.wait(within)
        return made

    def url(self, name: str = "web") -> str:
        """Return the address of a web process."""
        return f"http://127.0.0.1:{self.port(name)}"

    def port(self, name: str = "web") -> int:
        """Return the port that is kept for a process."""
        return self.ports.setdefault(name, free_port())

    def is_ready(self, name: str = "web") -> bool:
        """Return whether a web process says that it can work."""
        return self._status(name, "/readyz") == 200

    # What is left behind

    def record(self) -> DatabaseSnapshot:
        """Read the tables."""
        return database_snapshot.read(self.database_url)

    def effects(self) -> list[str]:
        """Return the effects that tools had: key, turn, call and pid of each."""
        file = self.var / EFFECTS
        return file.read_text().splitlines() if file.exists() else []

    def has_ended(self, call_id: str) -> bool:
        """Return whether the body of a call of `affect` has ended, whatever is stored of it."""
        file = self.var / ENDED
        return file.exists() and call_id in file.read_text().splitlines()

    def let_go(self) -> None:
        """Let the tools go on that are `held`."""
        (self.var / LET_GO).touch()

    def set_policy(self, **fields: Any) -> None:
        """Choose what happens to turns that nobody watches, as an administrator does."""
        database_snapshot.save(self.database_url, "turns", "DisconnectPolicy", pk=1, **fields)

    def verdict(self, **bounds: Any) -> list[str]:
        """Return what is wrong with the history of this site."""
        return violations(self.record(), effects=self.effects(), **bounds)

    def active_turns(self) -> list[Any]:
        """Return the ids of the turns that wait or run."""
        return database_snapshot.keys(self.database_url, "turns", "Turn", status__in=ACTIVE)

    def parked_conversations(self) -> list[Any]:
        """Return the ids of the conversations that wait for a person."""
        return database_snapshot.keys(
            self.database_url, "turns", "Conversation", parked_at__isnull=False
        )

    def until_settled(self, *, within: float) -> None:
        """Wait until no turn waits or runs."""
        eventually_sync(lambda: not self.active_turns(), timeout=within)

    def leave(self) -> None:
        """End whatever still runs of this site, whatever the test has found."""
        for watcher in self._watchers:
            watcher.leave()
        for client in self._clients:
            client.close()
        for process in self.processes.values():
            process.kill()
        for pid in owned_by(self.var):
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        if self._postgres is not None:
            self._postgres.start()  # whatever the test has done to it
            self._postgres.run(f'DROP DATABASE IF EXISTS "{self.database}" WITH (FORCE)')

    def _web(self, name: str, arguments: Iterable[str], **faults: Any) -> Process:
        process = self._start(name, arguments, **faults)
        eventually_sync(
            lambda: not process.is_alive or self._status(name, "/healthz") == 200,
            timeout=START_BOUND,
        )
        assert process.is_alive, process.own_words
        return process

    def _start(
        self,
        name: str,
        arguments: Iterable[str],
        *,
        role: str,
        crash: str = "",
        layer: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Process:
        before = self.processes.get(name)
        if before is not None:
            before.kill()
        given = environment(self.var, database_url=self.database_url, redis_url=self.redis_url)
        given |= {
            "PORT": str(self.port(name)),
            "FAULTS_SETTINGS": json.dumps({**self.settings, **(settings or {})}),
            "FAULTS_LAYER": json.dumps(dict(layer)) if layer else "",
            **self._mode(role),
            **(environ or {}),
        }
        if self._has_failpoints:
            given["TURNKEEPER_CRASH"] = f"@{self._orders(name)}"
            self.arm(name, crash)
        log = self.var / f"{name}.txt"
        process = Process(
            name, [*arguments], fork_server=self._fork_server, environment=given, log=log
        )
        self.processes[name] = process
        return process

    def _orders(self, name: str) -> Path:
        return self.var / f"{name}.crash"

    def _mode(self, role: str) -> dict[str, str]:
        return {} if role == "embedded" else SCALED

    def _status(self, name: str, path: str) -> int:
        try:
            return httpx.get(self.url(name) + path, trust_env=False, timeout=PATIENCE).status_code
        except httpx.TransportError:
            return 0


def _takes_writes(file: Path) -> bool:
    with closing(sqlite3.connect(file, timeout=0.5, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
    return True
