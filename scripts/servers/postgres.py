"""A PostgreSQL of our own."""

import os
import pwd
import shutil
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psycopg

from scripts.servers.server import NotInstalled, Server

_NOT_ROOT = ("postgres", "nobody")


class Postgres(Server):
    """A PostgreSQL cluster. It refuses to run as root, so root lends it another user.

    Unless it is durable, a commit does not wait for the disk.
    """

    crash_signal = signal.SIGQUIT  # to the children too

    def __init__(self, directory: Path, *, is_durable: bool = True) -> None:
        self._programs = find_postgres()
        self._is_durable = is_durable
        user = _other_user() if os.geteuid() == 0 else None
        if user is not None and not _may_enter(directory):
            directory = _elsewhere(directory)
        super().__init__(directory, user=user)

    @property
    def url(self) -> str:
        """The address of the database that is always there."""
        return self.database_url("postgres")

    def database_url(self, name: str) -> str:
        """Return the address of a database."""
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
        (self._data / "postmaster.pid").unlink(missing_ok=True)  # of one that did not end by itself
        options = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": 200,
            **({} if self._is_durable else {"fsync": "off", "full_page_writes": "off"}),
        }
        listed = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return (str(self._programs / "postgres"), "-D", str(self._data), *listed)

    def _make_cluster(self) -> None:
        how = ("-U", "turnkeeper", "-E", "UTF8", "--no-locale", "-A", "scram-sha-256")
        where = ("-D", str(self._data), f"--pwfile={self.directory / 'password'}")
        quickly = () if self._is_durable else ("--no-sync",)
        making = self._spawn((str(self._programs / "initdb"), *where, *how, *quickly))
        if making.wait() != 0:
            raise RuntimeError(self._said)

    def _answers(self) -> bool:
        try:
            return bool(self.run("SELECT 1"))
        except psycopg.OperationalError:
            return False


def find_postgres() -> Path:
    """Return the directory of PostgreSQL's programs, the newest where there are several. Raise `NotInstalled`."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
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
    """Whether other users get as far as this directory."""
    return all(parent.stat().st_mode & 0o001 for parent in directory.parents if parent.exists())


def _elsewhere(directory: Path) -> Path:
    """Return a directory outside, the same one each time; its name is kept inside."""
    directory.mkdir(parents=True, exist_ok=True)
    note = directory / "elsewhere"
    if not (note.exists() and Path(note.read_text("utf-8")).exists()):
        note.write_text(tempfile.mkdtemp(prefix="turnkeeper-"), "utf-8")
    return Path(note.read_text("utf-8"))
