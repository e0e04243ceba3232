"""Updates of many rows at once, each with values of its own (sync ORM)."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from django.db.models import Model

from governance.prepared_statements import Update, fields_of


def update_each(rows: Sequence[Model], fields: Sequence[str]) -> None:
    """Write these fields of rows of one model, in one way to the database.

    `bulk_update` would put every value into one expression, which takes longer to build than all else here.
    """
    if rows:
        statement = _statement(type(rows[0]), tuple(fields))
        columns = [(name, field.attname) for name, field in statement.places.items()]  # type: ignore[union-attr]
        statement.run_each({name: getattr(row, column) for name, column in columns} for row in rows)


@cache
def _statement(model: type[Model], fields: tuple[str, ...]) -> Update:
    """The update of these fields, which a process has few of."""

    def build(pk: Any, **values: Any) -> Any:
        return model._base_manager.filter(pk=pk), values

    return Update(build, **fields_of(model, "pk", *fields))
