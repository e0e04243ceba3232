"""Scheduling of turns over all processes: who is next when a slot is free, who is dispatched again (sync ORM).

Next is whoever has the fewest turns at work, then who waits longest. One user's fifty conversations do not keep another
user's one waiting. The queue is what has not begun, and what has begun and not ended: no history is read.
"""

import logging
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from datetime import timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import DatabaseError, InterfaceError, OperationalError, transaction
from django.db.models import Min, Q
from django.db.models.functions import Now

from governance import CallStatus, registry, selectors
from governance.db_clock import now_minus
from governance.prepared_statements import Select
from turns.core.periodic import SWEEP_LIMIT
from turns.core.slots import only_waits
from turns.core.turns import LIVE_STATUSES, TurnStatus
from turns.events import log
from turns.models import Process, Turn
from turns.queueing import queue
from turns.queueing.dispatchers import get_dispatcher

logger = logging.getLogger(__name__)

DISPATCH_TIMEOUT = timedelta(seconds=5)
CANDIDATES = 20  # that one claim tries: others may be faster with the first ones

WAITING = Select(
    lambda: (
        queue.startable()
        .values_list("conversation", "conversation__owner")
        .annotate(since=Min("queued_at"))
        .order_by("since", "conversation")
    )
)


LIVE = Select(
    lambda: (
        Turn.objects.filter(status__in=LIVE_STATUSES)
        .order_by()
        .values_list("pk", "conversation__owner")
    )
)


class ClaimBatch:
    """Claims of a process that share one reading of who is next: those that were asked for before it.

    To read the queue again for each of many claims would cost the square of their number.
    """

    def __init__(self) -> None:
        self.is_read = False  # from now on nobody may join: the queue may have changed since
        self.order: deque[UUID] = deque()


def claim_next(*, process: Process, batch: ClaimBatch | None = None) -> queue.Claimed | None:
    """Make the turn that is next running and owned by `process`; None if none can begin now.

    A conversation that another process is writing is passed over. It is waited for only if there is no other. A process
    that stands still in the middle of a write must not hold up everybody's turns. A turn that another process has
    claimed meanwhile counts as begun, and those behind it stay in order. When none is left of a batch, the queue is
    read again.
    """
    batch = batch or ClaimBatch()
    batch.is_read = True
    return _claim_in_order(batch.order, process=process) or _claim_again(batch, process=process)


def waiting_conversations(*, limit: int | None = 100) -> list[UUID]:
    """Return conversations that have a queued turn and no live one, in the order in which they are next."""
    waiting = [(conversation_id, owner_id) for conversation_id, owner_id, _since in WAITING.all()]
    at_work = _at_work() if len(waiting) > 1 else Counter()
    return in_order(waiting, at_work=at_work)[:limit]


def in_order(waiting: Iterable[tuple[UUID, Any]], *, at_work: Mapping[Any, int]) -> list[UUID]:
    """Return conversations that wait, with their owners and the oldest first, in the order in which they are next.

    `at_work` is how many turns of each owner are. The order holds while they begin: each counts as if those before it had.
    """
    begun = Counter(at_work)
    places: list[tuple[int, UUID]] = []
    for conversation_id, owner_id in waiting:
        begun[owner_id] += 1
        places.append((begun[owner_id], conversation_id))
    places.sort(key=lambda place: place[0])
    return [conversation_id for _count, conversation_id in places]


def _undispatched() -> Q:
    return Q(dispatched_at=None) | Q(dispatched_at__lt=now_minus(DISPATCH_TIMEOUT))


_OVERDUE = Select(
    lambda: (
        queue.startable()
        .filter(_undispatched())
        .order_by("queued_at")
        .values_list("pk", "conversation_id")[:SWEEP_LIMIT]
    )
)


def dispatch_again() -> int:
    """Dispatch queued turns that nobody has claimed for a while, in whatever process; return how many.

    The database's clock decides; of several processes one does it.
    """
    count = 0
    for turn_id, conversation_id in _OVERDUE.all():
        with transaction.atomic():
            # Not by the moment that was read: SQLite keeps one of its own clock in a form that equals no bound one.
            unclaimed = Turn.objects.filter(_undispatched(), pk=turn_id, status=TurnStatus.QUEUED)
            if unclaimed.update(dispatched_at=Now()):
                get_dispatcher().dispatch(conversation_id, turn_id)
                count += 1
    return count


def _claim_again(batch: ClaimBatch, *, process: Process) -> queue.Claimed | None:
    """Read who is next for the rest of a batch, and claim the first one. Wait for one only if there is no other."""
    batch.order = deque(waiting_conversations(limit=None))
    candidates = list(islice(batch.order, CANDIDATES))
    claimed = _claim_in_order(batch.order, process=process)
    if claimed is not None:
        return claimed
    for conversation_id in candidates:
        try:
            with transaction.atomic(), log.short_lock_wait():
                claimed = _claim_in(conversation_id, process=process)
        except DatabaseError:  # still being written: the sweep comes back to it
            return None
        if claimed is not None:
            return claimed
    return None


def _claim_in_order(order: deque[UUID], *, process: Process) -> queue.Claimed | None:
    """Claim in the first conversation that nobody else writes; take it out of the order, and those before it."""
    for _ in range(min(CANDIDATES, len(order))):
        claimed = _claim_in(order.popleft(), process=process, waits=False)
        if claimed is not None:
            return claimed
    return None


def _claim_in(
    conversation_id: UUID, *, process: Process, waits: bool = True
) -> queue.Claimed | None:
    """Claim in one conversation; one that cannot be read as it should keeps nobody else's turn waiting."""
    try:
        return queue.claim(conversation_id, process=process, waits=waits)
    except (OperationalError, InterfaceError):  # the database, which is everybody's
        raise
    except Exception:
        logger.exception(
            "A turn could not be claimed", extra={"conversation_id": str(conversation_id)}
        )
        return None


def _at_work() -> Counter[object]:
    """How many turns of each user are at work. One that waits for a person or for a sub-agent is not."""
    owners = dict(LIVE.all())
    calls = selectors.open_calls_of_groups(map(str, owners))
    at_work: Counter[object] = Counter()
    for turn_id, owner_id in owners.items():
        going_on = calls.get(str(turn_id), ())
        at_work[owner_id] += not only_waits(
            (CallStatus(call.status), _only_waits(call.tool_name)) for call in going_on
        )
    return at_work


def _only_waits(tool_name: str) -> bool:
    return tool_name in registry and registry.get(tool_name).only_waits
