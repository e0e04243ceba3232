"""Scheduling of turns over all processes: who is next when a place is free, and who has to be told of again (sync ORM).

Next is whoever has the fewest turns at work, then who waits longest: one user's fifty conversations do not keep another
user's one waiting. The queue is what has not begun, and what has begun and not ended: no history is read.
"""

import logging
from collections import Counter
from datetime import timedelta
from uuid import UUID

from django.db import DatabaseError, InterfaceError, OperationalError, transaction
from django.db.models import Exists, Min, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from governance import CallStatus, registry, selectors
from governance.db_clock import now_minus
from turns.core.slots import only_waits
from turns.core.turns import LIVE_STATUSES, TurnStatus
from turns.events import log
from turns.models import Process, Turn
from turns.queueing import queue
from turns.queueing.dispatchers import get_dispatcher

logger = logging.getLogger(__name__)

DISPATCH_PATIENCE = timedelta(seconds=5)
CANDIDATES = 20  # that one claim tries: others may be faster with the first ones


def claim_next(*, process: Process) -> queue.Claimed | None:
    """Make the turn that is next running and owned by `process`; None if none can begin now.

    A conversation that somebody is writing is passed over, and waited for only if there is no other: a process that
    stands still in the middle of a write must not hold up everybody's turns.
    """
    candidates = waiting_conversations(limit=CANDIDATES)
    for conversation_id in candidates:
        claimed = _claim_in(conversation_id, process=process, waits=False)
        if claimed is not None:
            return claimed
    for conversation_id in candidates:
        try:
            with transaction.atomic(), log.patience():
                claimed = _claim_in(conversation_id, process=process)
        except DatabaseError:  # still being written: the sweep comes back to it
            return None
        if claimed is not None:
            return claimed
    return None


def waiting_conversations(*, limit: int = 100) -> list[UUID]:
    """Return conversations that have a queued turn and no live one, in the order in which they are next."""
    queued = _startable().values_list("conversation", "conversation__owner")
    waiting = list(queued.annotate(since=Min("queued_at")).order_by("since", "conversation"))
    at_work = _at_work() if len(waiting) > 1 else Counter()
    places: list[tuple[int, UUID]] = []
    for conversation_id, owner_id, _since in waiting:
        at_work[owner_id] += 1  # as if those before it had begun
        places.append((at_work[owner_id], conversation_id))
    places.sort(key=lambda place: place[0])
    return [conversation_id for _count, conversation_id in places[:limit]]


def dispatch_again(*, limit: int = 100) -> int:
    """Dispatch queued turns that nobody has claimed for a while, in whatever process; return how many.

    The database's clock decides; of several processes one does it.
    """
    patience = Q(dispatched_at=None) | Q(dispatched_at__lt=now_minus(DISPATCH_PATIENCE))
    overdue = _startable().filter(patience).order_by("queued_at")
    count = 0
    for turn in overdue.only("conversation_id", "dispatched_at")[:limit]:
        with transaction.atomic():
            unclaimed = Turn.objects.filter(
                pk=turn.pk, status=TurnStatus.QUEUED, dispatched_at=turn.dispatched_at
            )
            if unclaimed.update(dispatched_at=Now()):
                get_dispatcher().dispatch(turn.conversation_id, turn.pk)
                count += 1
    return count


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


def _startable() -> QuerySet[Turn]:
    """The queued turns of conversations without a live one that are not parked."""
    live = Turn.objects.filter(conversation=OuterRef("conversation"), status__in=LIVE_STATUSES)
    queued = Turn.objects.filter(status=TurnStatus.QUEUED, conversation__parked_at=None)
    return queued.filter(~Exists(live))


def _at_work() -> Counter[object]:
    """How many turns of each user are at work; one that waits for a person or for a sub-agent is not."""
    live = Turn.objects.filter(status__in=LIVE_STATUSES).order_by()
    owners = dict(live.values_list("pk", "conversation__owner"))
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
