"""Dispatch with PostgreSQL's NOTIFY: a queued turn wakes one runner after its transaction is committed.

The turn's row is the queue, so no job has to be stored, fetched or deleted. A lost notification costs little, because
runners with free slots also poll the queue.
"""

import asyncio
import logging
from hashlib import sha256
from typing import Any
from uuid import UUID

from django.db.models import Count, F, OuterRef, Subquery
from django.db.models.functions import Coalesce, Greatest, Random
from psycopg import AsyncConnection, sql

from governance.db import atomic, database_connection
from turns.core.turns import LIVE_STATUSES
from turns.models import Turn
from turns.processes import process_registry
from turns.queueing.dispatchers import Wake

logger = logging.getLogger(__name__)

RESTART_PAUSE = 1.0
LOOK_INTERVAL = 10.0  # seconds of silence after which the connection is tested
ANSWER_LIMIT = 5.0  # seconds to connect, and to wait for a reply
LEAST_CHANCE = 0.01  # weight of a full runner: it may still have room, because its row does not show which turns wait for a person


class NotifyDispatcher:
    """Notifies one runner of each queued turn. The runner is chosen at random, weighted by its free slots."""

    is_embedded = False

    def dispatch(self, conversation_id: UUID, turn_id: UUID) -> None:
        """Notify within the caller's transaction.

        If that fails, the transaction continues and the runners' poll finds the turn.
        """
        try:
            with atomic():
                name = _pick_runner()
                if name is not None:
                    with database_connection().cursor() as cursor:
                        cursor.execute(
                            "SELECT pg_notify(%s, %s)", [_channel(name), str(conversation_id)]
                        )
        except Exception:
            logger.exception("A turn was not dispatched", extra={"turn_id": str(turn_id)})

    async def listen(self, wake: Wake, *, name: str) -> None:
        """Listen until cancelled, reconnecting whenever the connection is lost."""
        listener = _Listener(wake, channel=_channel(name))
        while True:
            try:
                await listener.run()
            except Exception:
                if listener.is_heard:
                    logger.exception("No turns are heard of; it is tried again every second")
                listener.is_heard = False
            await asyncio.sleep(RESTART_PAUSE)


class _Listener:
    """Calls `wake` for each notification on a channel. `is_heard` is false after the connection has failed."""

    def __init__(self, wake: Wake, *, channel: str) -> None:
        self.is_heard = True
        self._wake = wake
        self._channel = channel

    async def run(self) -> None:
        """Listen until the connection fails; test it if it is silent."""
        async with asyncio.timeout(ANSWER_LIMIT):
            connection = await AsyncConnection.connect(**_connection_params(), autocommit=True)
        try:
            await self._execute(connection, sql.SQL("LISTEN {}"))
            self.is_heard = True
            while True:
                async for notification in connection.notifies(timeout=LOOK_INTERVAL):
                    self._wake(UUID(notification.payload))
                await self._execute(connection, sql.SQL("SELECT 1"))
        finally:
            await connection.close()

    async def _execute(self, connection: AsyncConnection, statement: sql.SQL) -> None:
        async with asyncio.timeout(ANSWER_LIMIT):
            await connection.execute(statement.format(sql.Identifier(self._channel)))


def _pick_runner() -> str | None:
    """Return the name of a runner, chosen at random and weighted by its free slots; None if there is no runner."""
    live = Turn.objects.filter(owner=OuterRef("pk"), status__in=LIVE_STATUSES, ended_at=None)
    count = live.order_by().values("owner").annotate(count=Count("pk")).values("count")
    room = Greatest(F("turn_limit") - Coalesce(Subquery(count), 0), LEAST_CHANCE)
    runners = process_registry.alive().filter(role="runner", draining_at=None)
    return runners.order_by((room * Random()).desc()).values_list("name", flat=True).first()


def _channel(name: str) -> str:
    """Return the channel of a runner. Names are hashed, because they may exceed PostgreSQL's limit for identifiers."""
    return f"turns_{sha256(name.encode()).hexdigest()[:32]}"


def _connection_params() -> dict[str, Any]:
    """Return Django's connection parameters without those that only fit blocking connections."""
    params = database_connection().get_connection_params()
    return {key: value for key, value in params.items() if key not in {"cursor_factory", "context"}}
