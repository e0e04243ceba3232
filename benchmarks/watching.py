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
        self._awaited: dict[tuple[str, str], asyncio.Future[None]] = {}

    async def publish(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        """Note the moment."""
        key = (event["turn_id"], event["type"])
        self._moments.setdefault(key, time.perf_counter())
        if (awaited := self._awaited.pop(key, None)) is not None and not awaited.done():
            awaited.set_result(None)

    def push(self, conversation_id: UUID, delta: dict[str, Any]) -> None:
        """Text has no moment of its own."""

    async def moment(self, turn_id: UUID, event_type: str) -> float:
        """Return when the event came; wait for it, bounded. One waits for each event."""
        key = (str(turn_id), event_type)
        if key not in self._moments:
            self._awaited[key] = asyncio.get_running_loop().create_future()
            await asyncio.wait_for(self._awaited[key], PATIENCE)
        return self._moments[key]
