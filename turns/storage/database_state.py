"""Says in words why a database cannot be used, where a start would end in a traceback (sync ORM)."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from django.db import DatabaseError, connection, transaction
from django.db.migrations.loader import MigrationLoader

OURS = ("governance", "turns", "webchat")
NUMBER = 4  # digits at the beginning of a migration's name

_SAID = {  # what SQLite says, and what it means
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
    """Return why the default database cannot be used, and what to do; empty if it can.

    `is_own` demands that nothing but this site has ever been in it.
    """
    try:
        with (
            transaction.atomic(),
            connection.cursor() as cursor,
        ):  # in a file this begins as a writer
            if _takes_no_writes(cursor):
                return f"The database {_name()} takes no writes: it is read-only now. Set DATABASE_URL to the one that does."
            tables = set(connection.introspection.table_names(cursor))
        return _foreign(tables, is_own=is_own)
    except DatabaseError as error:
        return _reason(error)
    finally:
        connection.close()


def _foreign(tables: set[str], *, is_own: bool) -> str:
    """Why it belongs to somebody else, or to a later version of ourselves."""
    loader = MigrationLoader(connection, ignore_no_migrations=True)
    applied = loader.applied_migrations or {}
    if is_own and tables and not any(app == "turns" for app, _migration in applied):
        return (
            f"The database {_name()} holds something else: {len(tables)} tables, none of this site. Nothing was started,"
            " and no table was touched. Set DATABASE_URL to a database of its own."
        )
    known = {app: max(names) for app, names in _by_app(loader.disk_migrations).items()}
    for app, names in _by_app(applied).items():
        if app in OURS and max(names) > known.get(app, max(names)):
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
    if connection.vendor != "postgresql":
        return False
    cursor.execute("SHOW transaction_read_only")
    return bool(cursor.fetchone()[0] == "on")


def _reason(error: DatabaseError) -> str:
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    if connection.vendor != "sqlite":
        return f"The database {_name()} cannot be used: {said}. Check DATABASE_URL, and whether the server runs."
    meaning = next(
        (words for part, words in _SAID.items() if part in said), f"cannot be used: {said}"
    )
    return f"The database {_name()} {meaning}. {_ADVICE}"


def _name() -> str:
    return str(connection.settings_dict["NAME"])
