"""The supervisor's store on Django's ORM: persists, then publishes."""

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from governance import Decision, ToolOutcome, approval_store, checkpoint
from governance.db import run_in_db_thread, run_in_poll_thread
from turns.cancelling import cancel_requests
from turns.core.ports import ClaimedTurn, PendingCancel
from turns.core.turns import TurnEnding
from turns.endings import recovery, report_delivery, turn_endings
from turns.events import sinks
from turns.events.notifications import notify
from turns.processes import wakeups
from turns.queueing import scheduling
from turns.running.ownership import Ownership
from turns.storage.priority_lock import PriorityLock, Urgency

_claim_next = run_in_db_thread(scheduling.claim_next)
# A cancel waits behind nothing (C12); nor does what is read in the same round, or it would hold up the next one.
_pending_cancels = run_in_poll_thread(cancel_requests.pending_cancels)
_decisions = run_in_poll_thread(approval_store.decisions_on)
_end_turn = run_in_db_thread(turn_endings.end_turn)
_sweep = run_in_db_thread(recovery.sweep)
_deliver_after = run_in_db_thread(report_delivery.after)
_dispatch_again = run_in_db_thread(scheduling.dispatch_again)
_waiting_conversations = run_in_db_thread(scheduling.waiting_conversations)


class DatabaseStore:
    """Keeps turns in the database; publishes what it has persisted."""

    def __init__(self, ownership: Ownership, *, lock: PriorityLock) -> None:
        self._ownership = ownership
        self._lock = lock

    async def claim_next(self) -> ClaimedTurn | None:
        """Make the queued turn ours that is next."""
        checkpoint("before_claim")
        claimed = await _claim_next(process=self._ownership.process)
        if claimed is None:
            return None
        checkpoint("after_claim")
        turn, events = claimed
        await sinks.publish(turn.conversation_id, events)
        return turn

    async def pending_cancels(self, turn_ids: Sequence[UUID]) -> list[PendingCancel]:
        """Return the unsettled cancel requests of these turns."""
        return await _pending_cancels(turn_ids)

    async def decisions(self, questions: Sequence[str]) -> list[Decision]:
        """Return what people have decided of these questions."""
        return await _decisions(questions)

    async def end_turn(
        self,
        turn: ClaimedTurn,
        ending: TurnEnding,
        *,
        steps: int,
        usage: dict[str, int],
        outcomes: Mapping[str, ToolOutcome],
    ) -> bool:
        """End the turn if it is still ours; that goes before whatever else waits to be written."""
        checkpoint("before_end")
        async with self._lock.acquired(Urgency.ENDING):
            ended = await _end_turn(
                turn.id, ending, epoch=turn.epoch, steps=steps, usage=usage, outcomes=outcomes
            )
        checkpoint("after_end")
        if ended is None:
            return False
        await notify(ended, check_requests=self._wake_others)
        for conversation_id, events in await _deliver_after(turn.id):
            await sinks.publish(conversation_id, events)
        return True

    async def sweep(self, live: Collection[UUID]) -> None:
        """End what has no live owner, and tell of it."""
        await notify(await _sweep(self._ownership.process, live), check_requests=self._wake_others)

    async def dispatch_again(self) -> None:
        """Send the news of turns anew that were queued a while ago and that nobody has claimed."""
        await _dispatch_again()

    async def waiting_conversations(self) -> list[UUID]:
        """Return the conversations with a queued turn and no live one."""
        return await _waiting_conversations()

    async def _wake_others(self, owner_id: UUID) -> None:
        """The supervisor looks itself for what is stored for its own turns."""
        if owner_id != self._ownership.process.pk:
            await wakeups.send(owner_id)
