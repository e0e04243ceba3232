"""Plants a long past into the database of a site: within minutes, since nobody is at work there meanwhile."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import UUID

import psycopg
from django.apps import apps
from psycopg import sql

from tests.bulk_history import BulkHistory, Execute, insert_history
from tests.faults.site import Site

_APPS = ("turns", "governance")
_SQLITE_IN_HASTE = (
    "PRAGMA journal_mode = OFF",
    "PRAGMA synchronous = OFF",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -262144",  # KiB
)
_SQLITE_AS_SHIPPED = "PRAGMA journal_mode = WAL"
_POSTGRES_IN_HASTE = (
    "SET session_replication_role = replica",  # no look at each foreign key
    "SET synchronous_commit = off",
    "SET maintenance_work_mem = '256MB'",
    "SET work_mem = '256MB'",
)


def plant_into(site: Site, template: UUID, pasts: Iterable[BulkHistory]) -> None:
    """Insert pasts like the one finished turn of a conversation; the site has no process that runs."""
    if site.database_url.startswith("sqlite"):
        _into_sqlite(Path(site.var) / "db.sqlite3", template, pasts)
    else:
        _into_postgres(site.database_url, template, pasts)


def _into_sqlite(file: Path, template: UUID, pasts: Iterable[BulkHistory]) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for statement in _SQLITE_IN_HASTE:
            connection.execute(statement)
        made = connection.execute(
            "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        ).fetchall()
        indexes = {name: how for name, table, how in made if table in _tables()}
        connection.execute("BEGIN")
        with _without(indexes, connection.execute):
            for history in pasts:
                insert_history(connection.execute, "sqlite", template, history)
        connection.execute("COMMIT")
        connection.execute(_SQLITE_AS_SHIPPED)


def _into_postgres(url: str, template: UUID, pasts: Iterable[BulkHistory]) -> None:
    with psycopg.connect(url, autocommit=True) as connection:

        def execute(statement: str) -> None:
            connection.execute(statement.encode())

        for statement in _POSTGRES_IN_HASTE:
            execute(statement)
        made = connection.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = ANY(%s)"
            " AND indexname NOT IN (SELECT conname FROM pg_constraint)",
            [_tables()],
        ).fetchall()
        with connection.transaction(), _without(dict(made), execute):
            for history in pasts:
                insert_history(execute, "postgresql", template, history)
        tables = sql.SQL(", ").join(map(sql.Identifier, _tables()))
        connection.execute(sql.SQL("VACUUM ANALYZE {}").format(tables))


def _tables() -> list[str]:
    """Those that grow with what is said and done."""
    return [
        model._meta.db_table for app in _APPS for model in apps.get_app_config(app).get_models()
    ]


@contextmanager
def _without(indexes: dict[str, str], execute: Execute) -> Iterator[None]:
    """Make indexes again afterwards: sorting is faster than inserting."""
    for name in indexes:
        execute(f'DROP INDEX "{name}"')
    yield
    for how in indexes.values():
        execute(how)
