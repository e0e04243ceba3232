"""Replaces pooled connections that the server has closed, before a statement fails.

A pool does not check. Django's `CONN_HEALTH_CHECKS` asks the server each time, which costs a round trip. After each
lost connection it also waits longer: seconds for a whole pool. The socket answers at once: it is readable only if the
server has closed it.
"""

import select
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created


def watch() -> None:
    """Look at every connection that this process gets from now on."""
    connection_created.connect(_replace_if_lost, dispatch_uid="governance.connection_health")


def _replace_if_lost(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Replace a lost connection, and drop the other lost ones from the pool."""
    pool = getattr(connection, "pool", None)
    if pool is None or not has_something_to_read(connection.connection) or connection.is_usable():
        return
    pool.check()
    connection.close()
    connection.connect()


def has_something_to_read(connection: Any) -> bool:
    """Whether the socket of a connection of psycopg has news. There is no round trip in it."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
