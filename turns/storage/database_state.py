"""Explains why a database cannot be used, so that a start fails with advice instead of a traceback.

The functions here use the synchronous ORM.
"""

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from django.apps import apps
from django.db import DatabaseError
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from governance.db import atomic, database_connection

OURS = ("governance", "turns", "webchat")
NUMBER = 4  # digits at the start of a migration's name

_SAID = {  # SQLite's messages, with explanations
    "file is not a database": "is no SQLite database, or its beginning is damaged",
    "malformed": "is damaged",
    "readonly": "cannot be written",
    "unable to open": "cannot be opened or made",
    "locked": "is kept locked by another process",
    "disk I/O error": "cannot be read or written: the disk reports an error",
    "is full": "cannot be written: the disk is full",
}
_ADVICE = (
    "Nothing was started, and no table was touched. Check whose file it is and who may write it and its directory; a"
    " damaged one is replaced by a backup, or moved away to begin anew."
)


def problem(*, is_own: bool = False) -> str:
    """Return why the database cannot be used, with advice; empty if it can be used.

    With `is_own`, only tables of this site may be in it.
    """
    connection = database_connection()
    try:
        with atomic(), connection.cursor() as cursor:  # with SQLite, this acquires the write lock
            if _takes_no_writes(cursor):
                return f"The database {_name()} takes no writes: it is read-only now. Let DATABASES name the one that does."
            tables = set(connection.introspection.table_names(cursor))
        return _foreign(tables, is_own=is_own)
    except DatabaseError as error:
        return _reason(error)
    finally:
        connection.close()


def missing_migrations() -> list[str]:
    """Return the migrations that the database lacks. They are compared by name, without loading them."""
    applied = MigrationRecorder(database_connection()).applied_migrations()
    return sorted(f"{app}.{name}" for app, name in _migrations_here() if (app, name) not in applied)


@cache
def _migrations_here() -> list[tuple[str, str]]:
    packages = {app: MigrationLoader.migrations_module(app)[0] for app in OURS}
    return [
        (app, module.name)
        for app, package in packages.items()
        if package is not None and apps.is_installed(app)
        for module in iter_modules(import_module(package).__path__)
    ]


def _foreign(tables: set[str], *, is_own: bool) -> str:
    """Return why the database belongs to another project or to a later version."""
    loader = MigrationLoader(database_connection(), ignore_no_migrations=True)
    applied = loader.applied_migrations or {}
    if is_own and tables and not any(app == "turns" for app, _migration in applied):
        return (
            f"The database {_name()} belongs to something else: it has {len(tables)} tables, none of them from this site. Nothing was"
            " started, and no table was changed. Set DATABASE_URL to a separate database."
        )
    newest = {app: max(names) for app, names in _by_app(loader.disk_migrations).items()}
    for app, names in _by_app(applied).items():
        if app in OURS and max(names) > newest.get(app, max(names)):
            return (
                f"The database {_name()} was migrated by a later version ({app}.{max(names)}). Nothing was started,"
                " and no table was touched. Update the code, or restore the backup from before."
            )
    return ""


def _by_app(migrations: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    names: defaultdict[str, list[str]] = defaultdict(list)
    for app, name in migrations:
        names[app].append(name[:NUMBER])
    return names


def _takes_no_writes(cursor: Any) -> bool:
    if database_connection().vendor != "postgresql":
        return False
    cursor.execute("SHOW transaction_read_only")
    return bool(cursor.fetchone()[0] == "on")


def _reason(error: DatabaseError) -> str:
    message = str(error).splitlines()[0] if str(error) else type(error).__name__
    if database_connection().vendor != "sqlite":
        return f"The database {_name()} cannot be used: {message}. Check DATABASES, and whether the server runs."
    meaning = next(
        (words for part, words in _SAID.items() if part in message), f"cannot be used: {message}"
    )
    return f"The database {_name()} {meaning}. {_ADVICE}"


def _name() -> str:
    return str(database_connection().settings_dict["NAME"])
