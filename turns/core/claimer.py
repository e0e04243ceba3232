"""Claims queued turns for a process while it has room, and hands each one over to be run."""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from uuid import UUID

from governance import CancellationToken, ScopeRegistry
from turns.core.ports import ClaimedTurn, TurnStore
from turns.core.slots import TurnSlots

logger = logging.getLogger(__name__)

Claim = Callable[[], Awaitable[ClaimedTurn | None]]
Run = Callable[[ClaimedTurn, int], Awaitable[None]]
"""Runs a claimed turn to its end; the number is the stamp of the scopes from before its claim."""


class Phase(Enum):
    """Whether turns may begin in a process."""

    OPEN = "open"
    FENCED = "fenced"  # its lease is lost: none begins until it has a new one
    DRAINING = "draining"  # it goes down: none begins any more


class TurnClaimer:
    """Claims as many turns as there are free slots, each in a task that also runs the turn.

    Which turn is next is for the store to say, whichever conversation asked for a slot (P4).
    """

    def __init__(
        self,
        store: TurnStore,
        *,
        run: Run,
        slots: TurnSlots,
        scopes: ScopeRegistry[CancellationToken],
    ) -> None:
        self.phase = Phase.OPEN
        self.tasks: set[asyncio.Task[None]] = set()
        self._store = store
        self._run = run
        self._slots = slots
        self._scopes = scopes
        self._fenced_at = 0
        self._requested_again: set[UUID] = set()  # while a turn of the conversation ran

    @property
    def has_room(self) -> bool:
        return self._slots.has_room

    async def until_room(self) -> None:
        await self._slots.until_room()

    def fence(self) -> None:
        """Claim nothing until `resume`; a process that drains goes on draining."""
        if self.phase is Phase.OPEN:
            self.phase = Phase.FENCED
        self._fenced_at = self._scopes.stamp()
        self._slots.forget()

    def resume(self) -> None:
        """Claim again after a fence."""
        if self.phase is Phase.FENCED:
            self.phase = Phase.OPEN
        self.fill()

    def close(self) -> None:
        self.phase = Phase.DRAINING
        self._slots.forget()

    def request(self, conversation_id: UUID) -> None:
        """Claim a turn as soon as there is room, because one of this conversation waits."""
        if self._scopes.has(str(conversation_id)):
            self._requested_again.add(conversation_id)
        else:
            self._slots.request(conversation_id)
            self.fill()

    def request_next(self, conversation_id: UUID, *, others_wait: bool) -> None:
        """Claim a turn, because one of this conversation has ended: if others wait, or if one was told of meanwhile."""
        if conversation_id in self._requested_again or others_wait:
            self._requested_again.discard(conversation_id)
            self.request(conversation_id)
        self.fill()

    def fill(self) -> None:
        """Begin a claim for each free slot that is requested."""
        if self.phase is not Phase.OPEN:
            self._slots.forget()
        while (requester := self._slots.acquire()) is not None:
            self._begin(requester, self._store.claim_next)

    def reserve(self, conversation_id: UUID) -> "asyncio.Future[ClaimedTurn | None] | None":
        """Take a slot for a turn that is about to be stored and claimed in one. None if there is none, or others wait.

        Whoever calls this sets the future's result: the turn, or None if it was not claimed.
        """
        is_open = self.phase is Phase.OPEN and not self._scopes.has(str(conversation_id))
        if not is_open or not self._slots.take():
            return None
        claimed = asyncio.get_running_loop().create_future()
        self._begin(conversation_id, lambda: claimed)
        return claimed

    def _begin(self, requester: UUID, claim: Claim) -> None:
        # a context of its own: a turn must not carry what is bound to the request that started it
        task = asyncio.get_running_loop().create_task(
            self._claim(requester, claim, stamp=self._scopes.stamp()),
            name=f"claim as conversation {requester} has a turn",
            context=contextvars.Context(),
        )
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _claim(self, requester: UUID, claim: Claim, *, stamp: int) -> None:
        """Make the turn ours that is next, whichever conversation asked, and run it."""
        turn = None
        try:
            turn = await claim()
        except Exception:
            logger.exception("A turn could not be claimed")
        finally:
            self._slots.release()
        if turn is None:
            self.fill()
            return
        if stamp < self._fenced_at:
            return  # claimed under a lease that is lost: whoever finds it ends it
        if turn.conversation_id != requester:
            self._slots.request(requester)
        await self._run(turn, stamp)
