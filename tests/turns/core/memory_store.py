"""A store of turns in memory. It keeps the rules of the real one, and remembers what was asked."""

import asyncio
from collections.abc import Callable
from uuid import UUID

from governance import ToolOutcome
from tests.support import PATIENCE
from turns.core.ports import ClaimedTurn
from turns.core.turns import PendingRequest, PendingTimeout, TurnEnding


class MemoryStore:
    """One live turn per conversation, claimed in order; one ending per turn."""

    def __init__(self):
        self.queued: list[ClaimedTurn] = []
        self.live: list[ClaimedTurn] = []
        self.orders: list[PendingRequest] = []
        self.settled: list[PendingTimeout] = []
        self.endings: dict[UUID, TurnEnding] = {}
        self.totals: dict[UUID, tuple[int, dict[str, int]]] = {}
        self.outcomes: dict[UUID, dict[str, ToolOutcome]] = {}
        self.claims: list[UUID] = []
        self.failures: list[Exception] = []
        self.attempts = 0
        self.swept: list[tuple[UUID, ...]] = []
        self.sweeping = asyncio.Event()
        self.may_sweep = asyncio.Event()
        self.may_sweep.set()
        self.may_read_cancels = asyncio.Event()
        self.may_read_cancels.set()
        self.deleted: set[UUID] = set()
        self.claiming = asyncio.Event()
        self.after_end: Callable[[], None] = lambda: None
        self._answering: asyncio.Event | None = None
        self._news = asyncio.Event()

    def add(self, *turns: ClaimedTurn):
        self.queued.extend(turns)

    def hold_next_answer(self) -> asyncio.Event:
        """Let the next claim look now, but answer only once the returned event is set."""
        self._answering = asyncio.Event()
        return self._answering

    async def until_ended(self, *turns: ClaimedTurn) -> list[TurnEnding]:
        async with asyncio.timeout(PATIENCE):
            while not all(turn.id in self.endings for turn in turns):
                self._news.clear()
                await self._news.wait()
        return [self.endings[turn.id] for turn in turns]

    async def claim_next(self) -> ClaimedTurn | None:
        if self.failures:
            raise self.failures.pop()
        turn = self._claim()
        answering, self._answering = self._answering, None
        self.claiming.set()
        if answering is not None:
            await answering.wait()
        return turn

    def _claim(self) -> ClaimedTurn | None:
        busy = {turn.conversation_id for turn in self.live}
        turn = next((turn for turn in self.queued if turn.conversation_id not in busy), None)
        if turn is not None:
            self.queued.remove(turn)
            self.live.append(turn)
            self.claims.append(turn.id)
        return turn

    async def pending_requests(self, turn_ids, questions) -> list[PendingRequest]:
        return [order for order in self.orders if order.turn_id in turn_ids]

    async def pending_cancels(self, turn_id) -> list[PendingRequest]:
        await self.may_read_cancels.wait()
        return await self.pending_requests([turn_id], [])

    def settle_requests(self, requests) -> None:
        self.settled += [it for it in requests if isinstance(it, PendingTimeout)]
        self.orders = [order for order in self.orders if order not in self.settled]

    async def end_turn(self, turn, ending, *, steps, usage, outcomes, answer=None) -> None:
        self.attempts += 1
        if self.failures:
            raise self.failures.pop()
        self.live.remove(turn)
        self.orders = [order for order in self.orders if order.turn_id != turn.id]
        is_first = turn.id not in self.endings
        if is_first:
            self.endings[turn.id] = ending
            self.totals[turn.id] = (steps, usage)
            self.outcomes[turn.id] = dict(outcomes)
        self._news.set()
        self.after_end()

    async def sweep(self, live) -> None:
        self.sweeping.set()
        await self.may_sweep.wait()
        self.swept.append(tuple(live()))

    async def find_deleted(self, live):
        return self.deleted.intersection(live)
