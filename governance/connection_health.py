"""Connections that were lost while they rested in a pool: found as they are handed out, before a statement fails.

A pool does not look. Django's `CONN_HEALTH_CHECKS` lets it ask the server each time, a round trip, and after each lost
connection wait longer, which is seconds for a pool of them. The socket of a resting connection tells at once: nothing is to
be read from it unless the server has said farewell.
"""

import select
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created


def watch() -> None:
    """Look at every connection that this process gets from now on."""
    connection_created.connect(_replace_if_lost, dispatch_uid="governance.connection_health")


def _replace_if_lost(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Exchange a lost connection for a new one; those that were lost with it leave the pool, too."""
    pool = getattr(connection, "pool", None)
    if pool is None or not _has_something_to_read(connection.connection) or connection.is_usable():
        return
    pool.check()
    connection.close()
    connection.connect()


def _has_something_to_read(connection: Any) -> bool:
    """Whether the socket of a connection of psycopg has news. There is no round trip in it."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
