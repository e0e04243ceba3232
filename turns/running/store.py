"""The supervisor's store on Django's ORM, which first persists and then publishes.

Turns that end together, such as a cancelled family, are written in one transaction.
"""

import contextvars
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from governance import ToolOutcome, checkpoint
from governance.db import (
    atomic,
    run_in_db_thread,
    run_in_poll_thread,
    run_in_query_thread,
)
from turns.calls import approvals, timeout_changes
from turns.cancelling import cancel_requests
from turns.core.ports import Answer, ClaimedTurn
from turns.core.turns import PendingCancel, PendingRequest, PendingTimeout, TurnEnding
from turns.endings import recovery, report_delivery, turn_endings
from turns.events import log, sinks
from turns.events.notifications import Notifications, NotifyOwner, notify
from turns.processes.background import spawn
from turns.queueing import queue
from turns.running.ownership import Ownership
from turns.running.write_queue import Batches, PriorityLock, Take, Urgency

logger = logging.getLogger(__name__)

_claim_next = run_in_db_thread(queue.claim_next)
_pending_cancels = run_in_poll_thread(cancel_requests.pending)
_settle = run_in_db_thread(timeout_changes.settle)
_sweep = run_in_db_thread(recovery.sweep)
_find_deleted = run_in_query_thread(recovery.find_deleted)
MOST_AT_ONCE = 10  # maximum endings per transaction, so that other writes need not wait long


def pending(turn_ids: Sequence[UUID], questions: Sequence[str]) -> list[PendingRequest]:
    """Return the unsettled requests for these turns and the decisions on these questions, cancels first.

    To add a kind of request, add a line here and a case in `RunningTurn.apply`.
    """
    return [
        *cancel_requests.pending(turn_ids),
        *timeout_changes.pending(turn_ids),
        *approvals.pending(questions),
    ]


# In the poll thread, because cancels must not wait (C12). The other requests are read with them, so that a slow read
# cannot delay the next poll.
_pending = run_in_poll_thread(pending)


class DatabaseStore:
    def __init__(
        self, ownership: Ownership, *, lock: PriorityLock, notify_owner: NotifyOwner
    ) -> None:
        self._ownership = ownership
        self._endings = EndingWrites(lock)
        self._notify_owner = notify_owner

    async def claim_next(self) -> ClaimedTurn | None:
        checkpoint("before_claim")
        claimed = await _claim_next(process=self._ownership.process)
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

    async def pending_cancels(self, turn_id: UUID) -> list[PendingCancel]:
        """Return the unsettled cancel requests for a turn that has just started."""
        return await _pending_cancels([turn_id])

    def settle_requests(self, applied: Sequence[PendingRequest]) -> None:
        """Queue applied changes of limits for settling; a slow write must not delay the next poll.

        Other requests are settled by their effect: the end of a cancelled turn or call, or the decision itself.
        """
        if changes := [request for request in applied if isinstance(request, PendingTimeout)]:
            spawn(_settle(changes), name="settling of requests")

    async def end_turn(
        self,
        turn: ClaimedTurn,
        ending: TurnEnding,
        *,
        steps: int,
        usage: dict[str, int],
        outcomes: Mapping[str, ToolOutcome],
        answer: Answer | None = None,
    ) -> None:
        """End the turn if this process still owns it, and publish the end."""
        checkpoint("before_end")
        facts = {"steps": steps, "usage": usage, "outcomes": outcomes, "answer": answer}
        ended = await self._endings.store(EndingWrite(turn=turn, ending=ending, facts=facts))
        checkpoint("after_end")
        if ended.told is not None:
            await notify(ended.told, notify_owner=self._notify_owner)
        for conversation_id, events in ended.deliveries:
            await sinks.publish(conversation_id, events)

    async def sweep(self, live: Callable[[], Collection[UUID]]) -> None:
        """End turns without a live owner, and publish their ends."""
        await notify(await _sweep(self._ownership.process, live), notify_owner=self._notify_owner)

    async def find_deleted(self, live: Collection[UUID]) -> Collection[UUID]:
        """Return the ids in `live` of turns whose rows no longer exist."""
        return await _find_deleted(live) if live else ()


class Ended(NamedTuple):
    """The notifications of an ending, and the events of the turns queued with it.

    `told` is None if the turn had already ended or has another owner.
    """

    told: Notifications | None
    deliveries: Sequence[log.Batch] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingWrite:
    """The ending of a turn; `facts` are further arguments of `turn_endings.end_turn`.

    Log lines are written in the turn's context.
    """

    turn: ClaimedTurn
    ending: TurnEnding
    facts: dict[str, Any]
    context: contextvars.Context = field(default_factory=contextvars.copy_context)

    def __call__(self, *, waits: bool = True) -> Notifications | None:
        """Write the ending with the synchronous ORM."""
        return self.context.run(
            turn_endings.end_turn,
            self.turn.id,
            self.ending,
            epoch=self.turn.epoch,
            waits=waits,
            **self.facts,
        )


class EndingWrites:
    """Writes endings for one event loop, before all other writes."""

    def __init__(self, lock: PriorityLock) -> None:
        self._lock = lock
        self._batches: Batches[EndingWrite, Ended] = Batches(
            self._store, name="endings of turns", most=MOST_AT_ONCE, of_many_turns=True
        )

    async def store(self, write: EndingWrite) -> Ended:
        """Store an ending. Raise the database's error."""
        return await self._batches.add(write)

    async def _store(self, take: Take[EndingWrite]) -> list[Ended | Exception]:
        async with self._lock.acquired(Urgency.ENDING):
            return await _store_endings(take())


def store_endings(writes: Sequence[EndingWrite]) -> list[Ended | Exception]:
    """Store endings, and queue the reports due after each. Return a result or an exception for each ending."""
    together = _store_together(writes) if len(writes) > 1 else {}
    return [_end(write, together.get(write.turn.id)) for write in writes]


def _store_together(writes: Sequence[EndingWrite]) -> dict[UUID, Notifications]:
    """Store endings in one transaction; those missing from the result must be tried alone.

    An ending is missing if its conversation is locked, and all are missing if one fails. The transaction waits for no
    lock, so the order of the conversations does not matter. Sub-agents end first, so that their parent need not cancel
    them.
    """
    parents = {write.turn.id: write.turn.parent_id for write in writes}
    try:
        with atomic():
            notifications = {
                write.turn.id: write(waits=False)
                for write in sorted(writes, key=lambda write: -_depth(write.turn.id, parents))
            }
    except Exception:
        logger.warning("Turns could not be ended together", exc_info=True)
        return {}
    return {turn_id: one for turn_id, one in notifications.items() if one is not None}


def _depth(turn_id: UUID, parents: Mapping[UUID, UUID | None]) -> int:
    """Return how many of these turns are ancestors of this one."""
    above = parents.get(turn_id)
    return 0 if above is None else 1 + _depth(above, parents)


def _end(write: EndingWrite, notifications: Notifications | None) -> Ended | Exception:
    try:
        notifications = notifications or write()
    except Exception as error:  # noqa: BLE001 - raised where the ending is awaited
        return error
    if notifications is None or not notifications.reports_wait:
        return Ended(notifications)
    try:
        return Ended(notifications, report_delivery.enqueue_due_after(write.turn.id))
    except Exception:  # the turn has ended regardless of this failure
        logger.exception("Reports are left to the sweep", extra={"turn_id": str(write.turn.id)})
        return Ended(notifications)


_store_endings = run_in_db_thread(store_endings)
