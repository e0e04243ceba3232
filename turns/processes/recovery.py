"""Ends the turns that a dead process left behind, and finds what waits to be started (H4; sync ORM).

Every process looks, also one that runs no turns; whoever comes first ends a turn, the others find nothing to do.
"""

import logging
from collections.abc import Collection, Iterable
from datetime import timedelta
from uuid import UUID

from django.db.models import Q, QuerySet

from governance import Cancellation, CancelReason
from governance.moments import ago
from turns import log, processes
from turns.core.ports import TurnEnding
from turns.core.runner import ending_of
from turns.core.turns import LIVE_STATUSES, TurnStatus
from turns.endings import end_turn
from turns.models import Process, Turn
from turns.processes import end_dead
from turns.store import waiting_conversations
from turns.sub_agents import cascades, deliveries

logger = logging.getLogger(__name__)

CLAIM_GRACE = timedelta(seconds=10)

Recovered = list[log.Batch]


def sweep(process: Process, live: Collection[UUID]) -> Recovered:
    """End what has no live owner: what each process does every few seconds, in a few short queries."""
    return end_lost(process, live) + end_orphaned() + mend()


def end_lost(process: Process, live: Collection[UUID]) -> Recovered:
    """End the turns that name `process` as their owner although it runs only those in `live`.

    That happens where a commit came through and its answer did not. A turn that was claimed a moment ago may not be in
    `live` yet, so it is left alone.
    """
    lost = _live_of(process).filter(started_at__lt=ago(CLAIM_GRACE)).exclude(pk__in=live)
    return _end(lost, "A turn was lost by its owner")


def end_abandoned(process: Process) -> None:
    """End whatever `process` still owns as interrupted by its shutdown, and let it retire."""
    ending = ending_of(Cancellation(reason=CancelReason.SHUTDOWN))
    for turn in _live_of(process):
        end_turn(turn.pk, ending)
    processes.retire(process)


def recover() -> tuple[Recovered, list[UUID]]:
    """End what was interrupted and repair its history.

    Returns the events to publish by conversation, and the conversations whose queued turns may start now: those never
    began, so nothing is run twice. An interrupted turn is never run again by itself.
    """
    return end_orphaned() + mend(), waiting_conversations()


def mend() -> Recovered:
    """Do what somebody who has gone should have done: cancel what belongs to an ended turn, bring reports on their way."""
    return [*cascades.complete().batches, *deliveries.carry_all()]


def end_orphaned() -> Recovered:
    """End the turns whose owner is dead."""
    end_dead()
    without_owner = Turn.objects.filter(
        Q(owner=None) | Q(owner__ended_at__isnull=False), status__in=LIVE_STATUSES
    )
    return _end(without_owner, "A turn was interrupted: its process is gone")


def _live_of(process: Process) -> "QuerySet[Turn]":
    return Turn.objects.filter(owner=process, status__in=LIVE_STATUSES, ended_at=None)


def _end(turns: Iterable[Turn], complaint: str) -> Recovered:
    recovered: Recovered = []
    for turn in turns:
        ended = end_turn(
            turn.pk, TurnEnding(status=TurnStatus.INTERRUPTED), epoch=turn.epoch, waits=False
        )
        if ended is not None:
            logger.warning(complaint, extra={"turn_id": str(turn.pk)})
            recovered += ended.batches
    return recovered
