"""Database options of the site, chosen for many short writes."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from governance.private_files import make_directory, make_file, restrict

SQLITE_OPTIONS: dict[str, Any] = {
    # A transaction that begins with a read cannot wait for the write lock later, and would fail immediately.
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    # FULL, so that the record of a started tool call survives a power cut.
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
    # Statements about all live turns differ with the number of these turns, and each takes tens of kilobytes in the
    # cache of every thread's connection, which keeps 128 by default.
    "cached_statements": 32,
}

# The kernel gives up a connection after 15 seconds without acknowledgement, instead of 15 minutes. On an idle
# connection, it detects the loss within the same time.
LOST_AFTER: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,  # ms
}
LONGEST_PAUSE_MS = 5_000  # between two statements of a PostgreSQL transaction
# Short, because a pool doubles its pause after each failed attempt. After an outage of one minute, callers could
# otherwise wait another minute. Once the pool has stopped retrying, the next request starts again with a short pause.
RECONNECT_SECONDS = 2.0


def with_options(database: dict[str, Any], *, pool_size: int) -> dict[str, Any]:
    """Return the settings of a database, completed with the options for its engine."""
    match database["ENGINE"]:
        case "django.db.backends.sqlite3":
            _make_private(str(database["NAME"]))
            options = SQLITE_OPTIONS
        case "django.db.backends.postgresql":
            # Under ASGI, connections are opened and closed with their threads. A pool limits their number.
            options = {
                **LOST_AFTER,
                "pool": {
                    "min_size": 1,
                    "max_size": pool_size,
                    "timeout": 10,
                    "reconnect_timeout": RECONNECT_SECONDS,
                },
                "application_name": _application_name(),
                # A process that hangs in the middle of a transaction must not keep its locks, because no other process
                # could then end its turns. The site's transactions take milliseconds.
                "options": f"-c idle_in_transaction_session_timeout={LONGEST_PAUSE_MS}",
            }
        case _:
            options = {}
    return {**database, "CONN_MAX_AGE": 0, "OPTIONS": {**options, **database.get("OPTIONS", {})}}


def _application_name() -> str:
    """Return the name that PostgreSQL shows for this process, such as `turnkeeper web` or `turnkeeper runner`."""
    program, *arguments = sys.argv
    words = [word for word in arguments if not word.startswith("-")]
    command = words[0] if words and Path(program).stem in {"django-admin", "manage"} else "serve"
    return f"turnkeeper {'web' if command in {'runserver', 'serve'} else command}"


def _make_private(name: str) -> None:
    """Create the file and its directory with private permissions, because SQLite would make the file readable by
    everyone.
    """
    if name.startswith((":memory:", "file:")):
        return
    path = Path(name)
    if not path.parent.exists():
        make_directory(path.parent)
    with suppress(OSError):  # the code that opens the file will report the error
        make_file(path)
    for suffix in ("-wal", "-shm", "-journal"):  # new ones inherit the permissions of the main file
        restrict(path.with_name(path.name + suffix))
