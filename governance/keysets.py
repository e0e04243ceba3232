"""Reads long lists by keyset: each batch starts after the last row of the previous one (sync ORM).

Keys are compared in the form in which the database stores them. SQLite stores times and ids as text, and other programs
may write them differently from Django, for example '10:00:00.123' instead of '10:00:00.123000'.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from django.db.models import F, Field, Func, Model, Q, QuerySet, Value

Row = TypeVar("Row", bound=Model)

_STORED: "Field[Any, Any]" = Field()  # reads a value, and passes it to a query, as it is stored


class _Stored(Func):
    """A column's value as it is stored."""

    arity = 1
    template = "%(expressions)s"
    output_field = _STORED

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Omit the column's type, because the driver converts typed columns to datetimes."""
        return self.as_sql(compiler, connection, template="+%(expressions)s", **context)


class Keyset:
    """The columns that order a list, each with a leading "-" if descending. The last column makes the key unique."""

    def __init__(self, order: Sequence[str]) -> None:
        self._order = order
        self.names = [f"keyset_{position}" for position in range(len(order))]

    def sort(self, rows: "QuerySet[Row]") -> "QuerySet[Row]":
        """Order rows by the key, and add the key's values to each row under `names`."""
        expressions = [_Stored(F(name.removeprefix("-"))) for name in self._order]
        annotated: QuerySet[Row] = rows.annotate(**dict(zip(self.names, expressions, strict=True)))
        return annotated.order_by(*self._order)

    def behind(self, last: Sequence[Any]) -> Q:
        """Return the condition for rows after this key. Its first part selects a range of the index that sorts them."""
        return _behind(self._order, [Value(value, output_field=_STORED) for value in last])


def _behind(order: Sequence[str], last: Sequence[Value]) -> Q:
    name, way = order[0].removeprefix("-"), "lt" if order[0].startswith("-") else "gt"
    beyond = Q(**{f"{name}__{way}": last[0]})
    if len(order) == 1:
        return beyond
    return Q(**{f"{name}__{way}e": last[0]}) & (beyond | _behind(order[1:], last[1:]))
