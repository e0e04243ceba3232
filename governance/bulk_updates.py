"""Updates of many rows at once, each with values of its own (sync ORM)."""

from collections.abc import Sequence
from typing import Any

from django.db import connection
from django.db.models import Model


def update_each(rows: Sequence[Model], fields: Sequence[str]) -> None:
    """Write these fields of rows of one model, in one statement that is sent once for all of them.

    `bulk_update` would put every value into one expression, which takes longer to build than all else here.
    """
    if not rows:
        return
    meta: Any = type(rows[0])._meta
    quote = connection.ops.quote_name
    written = [meta.get_field(name) for name in fields]
    assignments = ", ".join(f"{quote(field.column)} = %s" for field in written)
    values = [
        [
            field.get_db_prep_save(getattr(row, field.attname), connection=connection)
            for field in (*written, meta.pk)
        ]
        for row in rows
    ]
    sql = f"UPDATE {quote(meta.db_table)} SET {assignments} WHERE {quote(meta.pk.column)} = %s"  # noqa: S608 - our own names
    with connection.cursor() as cursor:
        cursor.executemany(sql, values)
