"""The places of a process: how many turns may be busy at once, and for whom one is wanted (P4).

Which of the queued turns gets a place is the store's to say: it knows those of all processes, and whose they are.
"""

import asyncio
from collections.abc import Callable, Iterable
from uuid import UUID

from governance import CallStatus


def only_waits(open_calls: Iterable[tuple[CallStatus, bool]]) -> bool:
    """Return whether a turn with these open calls only waits for people or other turns, and so takes no place.

    `open_calls` are the status of each, and whether its tool only waits.
    """
    going_on = list(open_calls)
    return bool(going_on) and all(
        status is CallStatus.AWAITING_APPROVAL or waits for status, waits in going_on
    )


class TurnSlots:
    """`limit` places, None = as many as there are turns. `busy` says how many turns take one now.

    A conversation that wants one is a sign that some turn waits, not a right to the next place.
    """

    def __init__(self, limit: int | None, *, busy: Callable[[], int]) -> None:
        self._limit = limit
        self._busy = busy
        self._claims = 0
        self._wanted: dict[UUID, None] = {}
        self._room = asyncio.Event()

    @property
    def has_room(self) -> bool:
        """Whether another turn may begin here."""
        return self._limit is None or self._busy() + self._claims < self._limit

    async def until_room(self) -> None:
        """Wait until another turn may begin here."""
        await self._room.wait()

    def request(self, conversation_id: UUID) -> None:
        """Note that a turn of a conversation waits for a place; where there never is one, nobody waits."""
        if self._limit != 0:
            self._wanted.setdefault(conversation_id)

    def forget(self) -> None:
        """Note that no place is wanted any more."""
        self._wanted.clear()

    def acquire(self) -> UUID | None:
        """Hold a free place for a claim; return for whom it was wanted, None if there is no place or nobody wants one."""
        wanted = next(iter(self._wanted), None) if self.has_room else None
        if wanted is not None:
            del self._wanted[wanted]
            self._claims += 1
        self.look()
        return wanted

    def release(self) -> None:
        """Let go the place of a claim that is over: its turn takes it now, if it got one."""
        self._claims -= 1

    def look(self) -> None:
        """Let those go on that wait for room, if there is some: a turn may take no place any more."""
        if self.has_room:
            self._room.set()
        else:
            self._room.clear()
