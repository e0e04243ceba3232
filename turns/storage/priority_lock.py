"""The lane of a process to its database: writes of turns pass one by one, the most urgent first (C1).

The database has one thread here. What is handed to it cannot be overtaken any more; what waits in the lane can.
"""

import asyncio
import heapq
from enum import IntEnum
from itertools import count


class Urgency(IntEnum):
    """Who passes first."""

    ENDING = 0  # of a turn or of its calls
    WORK = 1  # without which a turn does not go on
    PROGRESS = 2  # which may as well come later


class PriorityLock:
    """Lets one pass at a time; belongs to one event loop."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: list[tuple[Urgency, int, asyncio.Future[None]]] = []
        self._numbers = count()

    def acquired(self, urgency: Urgency) -> "_Acquired":
        """Wait for one's turn, and hold the lane meanwhile."""
        return _Acquired(self, urgency)

    async def enter(self, urgency: Urgency) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        let_in = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (urgency, next(self._numbers), let_in))
        try:
            await let_in
        except asyncio.CancelledError:
            if let_in.done() and not let_in.cancelled():  # it was ours already
                self.leave()
            raise

    def leave(self) -> None:
        """Let the next one in that still waits."""
        while self._waiting:
            _urgency, _number, let_in = heapq.heappop(self._waiting)
            if not let_in.done():
                let_in.set_result(None)
                return
        self._is_taken = False


class _Acquired:
    """What `acquired` returns; made by hand, since every write enters it."""

    def __init__(self, lock: PriorityLock, urgency: Urgency) -> None:
        self._lock = lock
        self._urgency = urgency

    async def __aenter__(self) -> None:
        await self._lock.enter(self._urgency)

    async def __aexit__(self, *_: object) -> None:
        self._lock.leave()
