"""The supervisor's store on Django's ORM: persists, then publishes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from uuid import UUID

from governance import ToolOutcome, checkpoint
from governance.db import (
    run_in_db_thread,
    run_in_db_thread_plainly,
    run_in_poll_thread,
    run_in_query_thread,
)
from turns.core.ports import Answer, ClaimedTurn
from turns.core.requests import PendingRequest
from turns.core.turns import TurnEnding
from turns.endings import recovery
from turns.events import sinks
from turns.events.notifications import NotifyOwner, notify
from turns.processes.background import spawn
from turns.queueing import scheduling
from turns.running import requests
from turns.running.ending_writes import EndingWrite, EndingWrites
from turns.running.ownership import Ownership
from turns.storage.priority_lock import PriorityLock

_claim_next = run_in_db_thread_plainly(scheduling.claim_next)
# A cancel waits behind nothing (C12). Nor does what is read in the same round, or it would hold up the next one.
_pending = run_in_poll_thread(requests.pending)
_settle = run_in_db_thread(requests.settle)
_sweep = run_in_db_thread(recovery.sweep)
_find_deleted = run_in_query_thread(recovery.find_deleted)
_dispatch_again = run_in_db_thread(scheduling.dispatch_again)
_waiting_conversations = run_in_query_thread(scheduling.waiting_conversations)


class DatabaseStore:
    """Keeps turns in the database; publishes what it has persisted."""

    def __init__(
        self, ownership: Ownership, *, lock: PriorityLock, notify_owner: NotifyOwner
    ) -> None:
        self._ownership = ownership
        self._endings = EndingWrites(lock)
        self._notify_owner = notify_owner
        self._batch = scheduling.ClaimBatch()

    async def claim_next(self) -> ClaimedTurn | None:
        """Make the queued turn ours that is next; claims that wait for the database together share a reading of it."""
        checkpoint("before_claim")
        if self._batch.is_read:
            self._batch = scheduling.ClaimBatch()
        claimed = await _claim_next(process=self._ownership.process, batch=self._batch)
        if claimed is None:
            return None
        checkpoint("after_claim")
        turn, events = claimed
        await sinks.publish(turn.conversation_id, events)
        return turn

    async def pending_requests(
        self, turn_ids: Sequence[UUID], questions: Sequence[str]
    ) -> list[PendingRequest]:
        """Return the unsettled requests for these turns, and the decisions on these questions."""
        return await _pending(turn_ids, questions)

    def settle_requests(self, applied: Sequence[PendingRequest]) -> None:
        """Let it be stored that requests were applied; a write that waits must not hold up the next poll."""
        if wanted := [request for request in applied if requests.needs_settling(request)]:
            spawn(_settle(wanted), name="settling of requests")

    async def end_turn(
        self,
        turn: ClaimedTurn,
        ending: TurnEnding,
        *,
        steps: int,
        usage: dict[str, int],
        outcomes: Mapping[str, ToolOutcome],
        answer: Answer | None = None,
    ) -> bool:
        """End the turn if it is still ours, and tell of it. Return whether another one may begin somewhere now."""
        checkpoint("before_end")
        facts = {"steps": steps, "usage": usage, "outcomes": outcomes, "answer": answer}
        ended = await self._endings.store(EndingWrite(turn=turn, ending=ending, facts=facts))
        checkpoint("after_end")
        if ended.told is not None:
            await notify(ended.told, notify_owner=self._notify_owner)
        for conversation_id, events in ended.deliveries:
            await sinks.publish(conversation_id, events)
        return ended.others_wait

    async def sweep(self, live: Callable[[], Collection[UUID]]) -> None:
        """End what has no live owner, and tell of it."""
        await notify(await _sweep(self._ownership.process, live), notify_owner=self._notify_owner)

    async def find_deleted(self, live: Collection[UUID]) -> Collection[UUID]:
        """Return the turns of `live` that are stored nowhere any more."""
        return await _find_deleted(live) if live else ()

    async def dispatch_again(self) -> None:
        """Dispatch turns again that were queued a while ago and that nobody has claimed."""
        await _dispatch_again()

    async def waiting_conversations(self) -> list[UUID]:
        """Return the conversations with a queued turn and no live one."""
        return await _waiting_conversations()
