"""Reads long lists along a key, each batch from behind the last row of the one before (sync ORM).

A key is compared as the database keeps it. SQLite keeps moments and ids as texts. Other programs may write them in
another form: '10:00:00.123', which Django would write as '10:00:00.123000'.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from django.db.models import F, Field, Func, Model, Q, QuerySet, Value

Row = TypeVar("Row", bound=Model)

_KEPT: "Field[Any, Any]" = Field()  # reads and binds a value as the database has it


class _Kept(Func):
    """A column's value as the database has it."""

    arity = 1
    template = "%(expressions)s"
    output_field = _KEPT

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Leave out the column's type: the driver makes moments of what has one."""
        return self.as_sql(compiler, connection, template="+%(expressions)s", **context)


class Keyset:
    """The columns that a list is ordered by, each with a "-" before it if it descends. The last makes rows unique."""

    def __init__(self, order: Sequence[str]) -> None:
        self._order = order
        self.names = [f"keyset_{place}" for place in range(len(order))]

    def sort(self, rows: "QuerySet[Row]") -> "QuerySet[Row]":
        """Order rows by the key, and add it to each under `names`."""
        kept = [_Kept(F(name.removeprefix("-"))) for name in self._order]
        found: QuerySet[Row] = rows.annotate(**dict(zip(self.names, kept, strict=True)))
        return found.order_by(*self._order)

    def behind(self, last: Sequence[Any]) -> Q:
        """Return what comes behind a row with this key; the first condition is a range of the index that sorts."""
        return _behind(self._order, [Value(value, output_field=_KEPT) for value in last])


def _behind(order: Sequence[str], last: Sequence[Value]) -> Q:
    name, way = order[0].removeprefix("-"), "lt" if order[0].startswith("-") else "gt"
    beyond = Q(**{f"{name}__{way}": last[0]})
    if len(order) == 1:
        return beyond
    return Q(**{f"{name}__{way}e": last[0]}) & (beyond | _behind(order[1:], last[1:]))
