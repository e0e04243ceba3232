"""Watches the events of turns as a browser's socket would, and notes when each came."""

import asyncio
import time
from typing import Any
from uuid import UUID

PATIENCE = 60.0


class EventWatch:
    """A sink that remembers the moment of each turn's first event of each type."""

    def __init__(self) -> None:
        self._moments: dict[tuple[str, str], float] = {}
        self._news = asyncio.Condition()

    async def publish(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        """Note the moment."""
        key = (event["turn_id"], event["type"])
        self._moments.setdefault(key, time.perf_counter())
        async with self._news:
            self._news.notify_all()

    async def moment(self, turn_id: UUID, event_type: str) -> float:
        """Return when the event came; wait for it, bounded."""
        key = (str(turn_id), event_type)
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: key in self._moments)
        return self._moments[key]
