"""The slots of a process: how many turns may be busy at once, and which conversations request one (P4).

The store decides which queued turn gets a slot: it knows the turns of all processes and their users.
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
    """`limit` slots, None = no limit. `busy` returns how many turns take one now, `live` how many could.

    A request means that some turn of a conversation waits. It is no right to the next slot.
    """

    def __init__(
        self, limit: int | None, *, live: Callable[[], int], busy: Callable[[], int]
    ) -> None:
        self._limit = limit
        self._live = live
        self._busy = busy
        self._claims = 0
        self._requests: dict[UUID, None] = {}
        self._room = asyncio.Event()

    @property
    def has_room(self) -> bool:
        """Whether another turn may begin here."""
        if self._limit is None or self._live() + self._claims < self._limit:
            return (
                True  # this is asked several times for each turn, and `busy` looks at all of them
            )
        return self._busy() + self._claims < self._limit

    async def until_room(self) -> None:
        """Wait until another turn may begin here."""
        await self._room.wait()

    def request(self, conversation_id: UUID) -> None:
        """Note that a turn of a conversation waits for a slot; without any slots nothing is noted."""
        if self._limit != 0:
            self._requests.setdefault(conversation_id)

    def forget(self) -> None:
        self._requests.clear()

    def acquire(self) -> UUID | None:
        """Take a free slot for a claim; return the conversation that requested it, None without a slot or a request."""
        requester = next(iter(self._requests), None) if self.has_room else None
        if requester is not None:
            del self._requests[requester]
            self._claims += 1
        self.refresh()
        return requester

    def take(self) -> bool:
        """Take a free slot without a request, unless somebody has requested one; return whether there was one."""
        is_free = self.has_room and not self._requests
        self._claims += is_free
        self.refresh()
        return is_free

    def release(self) -> None:
        """Release the slot of a finished claim; a claimed turn counts as busy from now on."""
        self._claims -= 1

    def refresh(self) -> None:
        """Wake the waiters for room if there is room: a turn may have freed its slot."""
        if self.has_room:
            self._room.set()
        else:
            self._room.clear()
