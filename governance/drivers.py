"""Asks databases by their own libraries, for statements that were built once (sync ORM).

Django's cursor, and that of psycopg below it, look at each statement anew: its places, its types, its transaction. That
takes longer than the database takes to answer it.
"""

import threading
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any, NoReturn, Protocol, TypeAlias
from uuid import UUID

from governance.db import thread_connection

Row = tuple[Any, ...]
Values = Sequence[Any]

_PLACE = "\0"  # which no SQL has in it
_VALUES = " VALUES "


class Sql:
    """SQL whose places are `%s`, as Django writes it, and the same as the driver takes it."""

    def __init__(self, text: str, *, places: int, vendor: str) -> None:
        self.text = text
        self.own: Any = text
        match vendor:
            case "sqlite":
                self.own = text % (("?",) * places)
            case "postgresql":
                pieces = (text % ((_PLACE,) * places)).split(_PLACE)
                self.own = [piece.encode() for piece in pieces]


Bound: TypeAlias = tuple[Sql, Values]


class Driver(Protocol):
    """What asks the default database for the thread whose connection it has. It raises the errors of Django."""

    database: Any  # Django's connection

    def fetch(self, sql: Sql, values: Values, *, behind: Bound | None = None) -> list[Row]:
        """Return the rows of a statement. It reads what is there once the one `behind` which it goes is done."""
        ...

    def execute(self, sql: Sql, values: Values) -> int:
        """Return how many rows a statement has changed."""
        ...

    def execute_many(self, sql: Sql, many: Sequence[Values]) -> int:
        """Execute a statement once for each list of values; return how many rows were changed in all."""
        ...

    def insert_many(self, sql: Sql, many: Sequence[Values]) -> None:
        """Insert a row for each list of values."""
        ...


class _Cursor:
    """A cursor: that of Django, or the database's own, which takes its own SQL."""

    def __init__(self, database: Any, cursor: Any, *, is_own: bool) -> None:
        self.database = database
        self._cursor = cursor
        self._name = "own" if is_own else "text"

    def fetch(self, sql: Sql, values: Values, *, behind: Bound | None = None) -> list[Row]:
        if behind is not None:
            self.fetch(*behind)
        try:
            self._cursor.execute(getattr(sql, self._name), values)
            return list(self._cursor.fetchall())
        except self.database.Database.Error as error:
            raise_as_django(error, self.database)

    def execute(self, sql: Sql, values: Values) -> int:
        try:
            self._cursor.execute(getattr(sql, self._name), values)
        except self.database.Database.Error as error:
            raise_as_django(error, self.database)
        return int(self._cursor.rowcount)

    def execute_many(self, sql: Sql, many: Sequence[Values]) -> int:
        try:
            self._cursor.executemany(getattr(sql, self._name), many)
        except self.database.Database.Error as error:
            raise_as_django(error, self.database)
        return int(self._cursor.rowcount)

    def insert_many(self, sql: Sql, many: Sequence[Values]) -> None:
        self.execute_many(sql, many)


class _Postgres:
    """libpq, by way of psycopg: values stand in the statement, as Django's cursor has them by default.

    The first statement of a transaction begins it. Rows are read as psycopg's cursor reads them.
    """

    def __init__(self, database: Any, cursor: Any) -> None:
        from psycopg import adapt, errors, generators, pq  # noqa: PLC0415 - an extra

        self.database = database
        self._connection = database.connection
        self._transformer = adapt.Transformer(cursor)
        self._errors = errors
        self._receive = generators.execute
        self._idle = pq.TransactionStatus.IDLE
        self._lost = pq.ConnStatus.BAD
        self._done = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)

    def fetch(self, sql: Sql, values: Values, *, behind: Bound | None = None) -> list[Row]:
        try:
            statement = self._render(sql, values)
            if behind is not None:
                # The server takes a snapshot for each. The rows are those of the last one.
                statement = b"; ".join((self._render(*behind), statement))
            result = self._ask(statement)
            self._transformer.set_pgresult(result)
            return list(self._transformer.load_rows(0, result.ntuples, tuple))
        except self._errors.Error as error:
            raise_as_django(error, self.database)

    def execute(self, sql: Sql, values: Values) -> int:
        try:
            return self._ask(self._render(sql, values)).command_tuples or 0
        except self._errors.Error as error:
            raise_as_django(error, self.database)

    def execute_many(self, sql: Sql, many: Sequence[Values]) -> int:
        try:
            results = self._ask_all(b"; ".join(self._render(sql, values) for values in many))
            return sum(result.command_tuples or 0 for result in results)
        except self._errors.Error as error:
            raise_as_django(error, self.database)

    def insert_many(self, sql: Sql, many: Sequence[Values]) -> None:
        head = sql.own[0].index(_VALUES.encode()) + len(_VALUES)
        try:
            first, *others = (self._render(sql, values) for values in many)
            self._ask(b", ".join([first, *(row[head:] for row in others)]))
        except self._errors.Error as error:
            raise_as_django(error, self.database)

    def _render(self, sql: Sql, values: Values) -> bytes:
        """Return a statement with its values in their places."""
        other = self._transformer.as_literal
        parts = [sql.own[0]]
        for value, piece in zip(values, sql.own[1:], strict=True):
            literal = _LITERALS.get(type(value), other)
            parts += (literal(value), piece)
        return b"".join(parts)

    def _ask(self, statement: bytes) -> Any:
        return self._checked(self._connection.pgconn.exec_(self._begun(statement)))

    def _ask_all(self, statements: bytes) -> list[Any]:
        """Ask several, in one way to the server and back; return what each has come to."""
        connection = self._connection
        connection.pgconn.send_query(self._begun(statements))
        return [
            self._checked(result) for result in connection.wait(self._receive(connection.pgconn))
        ]

    def _begun(self, statement: bytes) -> bytes:
        """Return a statement with what begins its transaction, if that has not begun."""
        connection = self._connection
        has_begun = connection.autocommit or connection.pgconn.transaction_status != self._idle
        return statement if has_begun else b"BEGIN; " + statement

    def _checked(self, result: Any) -> Any:
        if result.status in self._done:
            return result
        if self._connection.pgconn.status == self._lost:
            raise self._errors.OperationalError(result.get_error_message())
        raise self._errors.error_from_result(result)


# As psycopg writes them, which looks for the way of each value.
_LITERALS: dict[type, Callable[[Any], bytes]] = {
    NoneType: lambda _: b"NULL",
    bool: lambda value: b"true" if value else b"false",
    int: lambda value: b" %d" % value,
    UUID: lambda value: b"'%s'::uuid" % value.hex.encode(),
}
_kept = threading.local()


def thread_driver() -> Driver:
    """Return what asks the default database for this thread; it is kept as long as the connection.

    It is Django's cursor if Django has to look at each statement.
    """
    database = thread_connection()
    raw = database.connection
    if raw is None or database.needs_rollback or is_watched(database):
        return _Cursor(database, database.cursor(), is_own=False)
    if getattr(_kept, "raw", None) is not raw:
        _kept.driver = _made(database, raw)
        _kept.raw = raw
    driver: Driver = _kept.driver
    return driver


def is_watched(database: Any) -> bool:
    """Whether Django has to look at each statement: somebody listens, or the connection has to be checked first."""
    is_checked = database.health_check_done or not database.health_check_enabled
    return bool(not is_checked or database.force_debug_cursor or database.execute_wrappers)


def raise_as_django(error: Exception, database: Any) -> NoReturn:
    """Raise an error of the database's library as Django's own of its kind, as its cursor does."""
    with database.wrap_database_errors:
        raise error


def _made(database: Any, raw: Any) -> Driver:
    if database.vendor == "sqlite":
        return _Cursor(database, raw.cursor(), is_own=True)
    cursor = database.cursor().cursor
    if database.vendor == "postgresql" and _begins_plainly(raw) and _binds_here(cursor):
        return _Postgres(database, cursor)
    return _Cursor(database, cursor, is_own=False)


def _begins_plainly(raw: Any) -> bool:
    """Whether a transaction of this connection to PostgreSQL begins with no more than that word."""
    asked = ("isolation_level", "read_only", "deferrable")
    return all(getattr(raw, name, "unknown") is None for name in asked)


def _binds_here(cursor: Any) -> bool:
    """Whether values stand in the statement when the server gets it: psycopg 3, without `server_side_binding`."""
    try:
        from psycopg import ClientCursor  # noqa: PLC0415 - an extra
    except ImportError:
        return False
    return isinstance(cursor, ClientCursor)
