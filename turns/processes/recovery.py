"""Ends the turns that a dead process left behind, and finds what waits to be started (H4; sync ORM).

Every process looks, also one that runs no turns; whoever comes first ends a turn, the others find nothing to do.
"""

import logging
from collections.abc import Collection, Iterable
from datetime import timedelta
from itertools import count
from uuid import UUID

from django.db.models import Q, QuerySet

from governance import Cancellation, CancelReason
from governance.db_clock import now_minus
from turns import acknowledgements, leftovers, processes
from turns.core.turns import LIVE_STATUSES, TurnEnding, TurnStatus, ending_of
from turns.endings import end_turn
from turns.models import Process, Turn
from turns.news import News
from turns.processes import end_dead
from turns.scheduling import waiting_conversations
from turns.sub_agents import cascades, deliveries

logger = logging.getLogger(__name__)

CLAIM_GRACE = timedelta(seconds=10)
SWEEPS_PER_LOOK = 30  # at what calls of processes that are gone have left behind

_sweeps = count(1)


def sweep(process: Process, live: Collection[UUID]) -> News:
    """End what has no live owner: what each process does every few seconds, in a few short queries."""
    news = end_lost(process, live)
    news.add(end_orphaned())
    news.add(mend())
    if next(_sweeps) % SWEEPS_PER_LOOK == 0:
        news.batches += leftovers.settle_gone()
    return news


def end_lost(process: Process, live: Collection[UUID]) -> News:
    """End the turns that name `process` as their owner although it runs only those in `live`.

    That happens where a commit came through and its answer did not. A turn that was claimed a moment ago may not be in
    `live` yet, so it is left alone.
    """
    lost = _live_of(process).filter(started_at__lt=now_minus(CLAIM_GRACE)).exclude(pk__in=live)
    return _end(lost, "A turn was lost by its owner")


def end_abandoned(process: Process) -> None:
    """End whatever `process` still owns as interrupted by its shutdown, and let it retire."""
    ending = ending_of(Cancellation(reason=CancelReason.SHUTDOWN))
    for turn in _live_of(process):
        end_turn(turn.pk, ending)
    processes.retire(process)


def recover() -> tuple[News, list[UUID]]:
    """End what was interrupted and repair its history.

    Returns what is to be told of that, and the conversations whose queued turns may start now: those never began, so
    nothing is run twice. An interrupted turn is never run again by itself.
    """
    news = end_orphaned()
    news.add(mend())
    news.batches += leftovers.settle_gone()
    return news, waiting_conversations()


def mend() -> News:
    """Do what somebody who has gone should have done: cancel what belongs to an ended turn, bring reports on their way."""
    news = News(batches=deliveries.carry_all())
    news.add(cascades.complete())
    news.answers += acknowledgements.overdue()
    return news


def end_orphaned() -> News:
    """End the turns whose owner is dead."""
    end_dead()
    without_owner = Turn.objects.filter(
        Q(owner=None) | Q(owner__ended_at__isnull=False), status__in=LIVE_STATUSES
    )
    return _end(without_owner, "A turn was interrupted: its process is gone")


def _live_of(process: Process) -> "QuerySet[Turn]":
    return Turn.objects.filter(owner=process, status__in=LIVE_STATUSES, ended_at=None)


def _end(turns: Iterable[Turn], complaint: str) -> News:
    news = News()
    for turn in turns:
        ended = end_turn(
            turn.pk, TurnEnding(status=TurnStatus.INTERRUPTED), epoch=turn.epoch, waits=False
        )
        if ended is not None:
            logger.warning(complaint, extra={"turn_id": str(turn.pk)})
            news.add(ended)
    return news
