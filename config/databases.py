"""Options that let a database serve many short writers."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from governance.private_files import make_directory, make_file, restrict

SQLITE_OPTIONS: dict[str, Any] = {
    # A transaction that begins as a reader cannot wait for its turn to write: it fails at once.
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    # FULL: a tool call that was written down as started is still there after a power cut.
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
}

LONGEST_PAUSE_MS = 5_000  # between two statements of a transaction on PostgreSQL
# A pool that may go on for longer by itself waits twice as long after each failure. So does whoever asks it: after an
# outage of a minute for another one. Whoever asks once it has given up is a new beginning.
RECONNECT_SECONDS = 2.0


def with_options(database: dict[str, Any], *, pool_size: int) -> dict[str, Any]:
    """Return the settings of a database with the options of its engine."""
    match database["ENGINE"]:
        case "django.db.backends.sqlite3":
            _make_private(str(database["NAME"]))
            options = SQLITE_OPTIONS
        case "django.db.backends.postgresql":
            # Under ASGI connections come and go with threads; a pool keeps their number bounded.
            options = {
                "pool": {
                    "min_size": 1,
                    "max_size": pool_size,
                    "timeout": 10,
                    "reconnect_timeout": RECONNECT_SECONDS,
                },
                # A process that hangs in the middle of a transaction must not keep its locks: nobody could end its
                # turns. Ours take milliseconds.
                "options": f"-c idle_in_transaction_session_timeout={LONGEST_PAUSE_MS}",
            }
        case _:
            options = {}
    return {**database, "CONN_MAX_AGE": 0, "OPTIONS": {**options, **database.get("OPTIONS", {})}}


def _make_private(name: str) -> None:
    """Create the file and its directory with private rights: SQLite would make the file readable for everybody."""
    if name.startswith((":memory:", "file:")):
        return
    path = Path(name)
    if not path.parent.exists():
        make_directory(path.parent)
    with suppress(OSError):  # whoever opens it says what is wrong
        make_file(path)
    for suffix in ("-wal", "-shm", "-journal"):  # new ones get the rights of the file
        restrict(path.with_name(path.name + suffix))
