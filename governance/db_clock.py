"""The database's clock, which all processes share (sync ORM).

Times of different processes are compared by it: leases, graces, ages in the queue, the duration of a cancel.
"""

from datetime import datetime, timedelta
from typing import cast

from django.db import connection
from django.db.models import DateTimeField, Expression, ExpressionWrapper
from django.db.models.functions import Now
from django.db.models.sql import Query


def database_now() -> datetime:
    """Return the database's current time; one short query."""
    now = Now()
    with connection.cursor() as cursor:
        sql, params = Query(None).get_compiler(connection=connection).compile(now)
        cursor.execute(f"SELECT {sql}", params)
        (value,) = cursor.fetchone()
    for convert in connection.ops.get_db_converters(now):
        value = convert(value, now, connection)
    return cast("datetime", value)


def now_minus(span: timedelta) -> Expression:
    """Return an expression for the moment that lies `span` back by the database's clock."""
    return ExpressionWrapper(Now() - span, output_field=DateTimeField())
