"""Takes what a test wrote out of the database again."""

import time
from typing import Any

from django.core.management import call_command
from django.db import IntegrityError, OperationalError, connection, transaction

from governance import db
from governance.threads import DaemonPool

_LONGEST_LATE_WRITE = 5.0  # seconds; a test may leave a statement that never ends


class CleanDatabase:
    """The rows that a flush leaves. A flush after each test would cost more: it makes every permission again."""

    def __init__(self) -> None:
        call_command("flush", verbosity=0, interactive=False)
        names = connection.introspection.django_table_names(only_existing=True)
        self._tables = sorted(map(connection.ops.quote_name, names))
        self._rows = {table: self._read(table) for table in self._filled()}

    def restore(self) -> None:
        """Delete and insert what is different, once the writes of the test are done.

        A coroutine that was cancelled leaves its function running in a thread of the database. A write from elsewhere may
        be in the way once: a deadlock, or a row whose turn is being deleted.
        """
        until = time.monotonic() + _LONGEST_LATE_WRITE
        while not all(map(_is_idle, db._pools)) and time.monotonic() < until:
            time.sleep(0.005)
        try:
            self._restore()
        except (OperationalError, IntegrityError):
            self._restore()

    def _restore(self) -> None:
        changed = {table for table in self._filled() if table not in self._rows}
        changed |= {table for table, rows in self._rows.items() if self._read(table) != rows}
        if not changed:
            return
        with transaction.atomic(), connection.cursor() as cursor:
            for table in changed:
                cursor.execute(f"DELETE FROM {table}")
            for table in changed & self._rows.keys():
                rows = self._rows[table]
                values = ", ".join(["%s"] * len(rows[0]))
                cursor.executemany(f"INSERT INTO {table} VALUES ({values})", rows)

    def _filled(self) -> list[str]:
        """The tables that have rows."""
        asked = " UNION ALL ".join(
            f"SELECT {number} WHERE EXISTS (SELECT 1 FROM {table})"
            for number, table in enumerate(self._tables)
        )
        return [self._tables[number] for (number,) in self._select(asked)]

    def _read(self, table: str) -> list[tuple[Any, ...]]:
        return self._select(f"SELECT * FROM {table} ORDER BY 1")

    def _select(self, query: str) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall()


def _is_idle(pool: DaemonPool) -> bool:
    with pool._changed:
        # A thread that has been notified still says that it is idle until it runs, and its work is in the queue.
        return not pool._queue and pool._idle == pool._threads


def end_other_sessions() -> None:
    """End what threads have left open: PostgreSQL drops no database that somebody is connected to."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
