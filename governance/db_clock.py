"""The database's clock, which all processes share.

All stored and displayed times come from it, regardless of the machine's clock. Code whose decisions depend on the time
queries the database. Elsewhere `now()` suffices, which extrapolates from the last query.
"""

import time
from datetime import datetime, timedelta
from typing import cast

from django.db.models import DateTimeField, Expression, ExpressionWrapper
from django.db.models.functions import Now
from django.utils import timezone

from governance.db import database_connection

LONGEST_ANSWER = 1.0  # seconds; a slower query does not measure the time precisely


class _Measured:
    """The last measurement: the database's time, and `time.monotonic()` at that time. It is None if the database uses
    this machine's clock, or has not been queried.
    """

    reading: tuple[datetime, float] | None = None


def now() -> datetime:
    """Return the database's current time, estimated without a query, so that it can be called on an event loop.

    A process that holds a lease queries the clock at each renewal, which keeps the estimate accurate.
    """
    if _Measured.reading is None:
        return timezone.now()
    at, moment = _Measured.reading
    return at + timedelta(seconds=time.monotonic() - moment)


def database_now() -> datetime:
    """Return the database's current time (sync ORM). With PostgreSQL, this takes one short query."""
    connection = database_connection()
    if connection.vendor == "sqlite":  # it runs in this process, and its `Now` has milliseconds
        at = timezone.now()
        return at.replace(microsecond=at.microsecond // 1000 * 1000)
    sent_at = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute("SELECT STATEMENT_TIMESTAMP()")  # the same as Django's `Now`
        (at,) = cursor.fetchone()
    received_at = time.monotonic()
    if received_at - sent_at < LONGEST_ANSWER:
        _Measured.reading = at, (sent_at + received_at) / 2
    return cast("datetime", at)


def now_minus(span: timedelta) -> Expression:
    """Return an expression for the time that was `span` ago by the database's clock."""
    return ExpressionWrapper(Now() - span, output_field=DateTimeField())
