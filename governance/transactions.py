"""Transactions of the default database that begin and are committed by the shortest way (sync ORM).

A turn has four. With SQLite, Django takes a sixth of all steps in the database thread for their beginnings and ends.
"""

from sqlite3 import Error
from types import TracebackType
from typing import Any

from django.db import DEFAULT_DB_ALIAS
from django.db.transaction import Atomic

from governance.db import thread_connection
from governance.drivers import is_watched, raise_as_django


def atomic() -> Atomic:
    """Return Django's block, for the default database. It is Django's own way wherever there is more to do."""
    return _Atomic(DEFAULT_DB_ALIAS, savepoint=True, durable=False)


class _Atomic(Atomic):
    """A block that leaves the connection as Django's does. So each of both can end what the other has begun."""

    def __enter__(self) -> None:
        database = thread_connection()
        if not _begins_plainly(database):
            super().__enter__()
            return
        try:
            database.connection.execute(_BEGIN[database.transaction_mode])
        except Error as error:
            raise_as_django(error, database)
        database.commit_on_exit = True
        database.autocommit = False
        database.in_atomic_block = True
        database.atomic_blocks.append(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        database = thread_connection()
        if kind is not None or not _is_committed_plainly(database):
            super().__exit__(kind, error, traceback)
            return
        try:
            database.connection.execute("COMMIT")
        except Error as refused:
            super().__exit__(type(refused), refused, refused.__traceback__)  # which rolls back
            raise_as_django(refused, database)
        database.atomic_blocks.pop()
        database.in_atomic_block = False
        database.autocommit = True
        database.errors_occurred = False
        if database.run_on_commit:
            database.run_and_clear_commit_hooks()


_BEGIN: dict[str | None, str] = {
    None: "BEGIN",
    **{mode: f"BEGIN {mode}" for mode in ("DEFERRED", "IMMEDIATE", "EXCLUSIVE")},
}


def _begins_plainly(database: Any) -> bool:
    """Whether nothing is under way on a connection to SQLite, and nobody listens."""
    return (
        database.vendor == "sqlite"
        and database.connection is not None
        and database.autocommit
        and not (database.in_atomic_block or database.needs_rollback or is_watched(database))
    )


def _is_committed_plainly(database: Any) -> bool:
    """Whether the outermost block on a whole connection to SQLite ends, with nothing to roll back."""
    return (
        database.vendor == "sqlite"
        and database.connection is not None
        and database.commit_on_exit
        and not (
            database.savepoint_ids
            or database.needs_rollback
            or database.closed_in_transaction
            or is_watched(database)
        )
    )
