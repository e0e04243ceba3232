"""Ends the turns that a dead process left behind, and finds what waits to be started (H4; sync ORM).

Every process looks, also one that runs no turns. Whoever comes first ends a turn, the others find nothing to do.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet, UUIDField

from governance import Cancellation, CancelReason
from governance.db_clock import now_minus
from governance.prepared_statements import Select
from turns.calls import late_settlements
from turns.cancelling import descendants
from turns.core.turns import LIVE_STATUSES, TurnEnding, TurnStatus, ending_of
from turns.endings import report_delivery
from turns.endings.turn_endings import end_turn
from turns.events import acknowledgements
from turns.events.notifications import Notifications
from turns.models import Process, Turn
from turns.processes import process_registry
from turns.processes.process_registry import end_dead
from turns.queueing.scheduling import waiting_conversations

logger = logging.getLogger(__name__)

CLAIM_GRACE = timedelta(seconds=10)
SWEEPS_PER_LOOK = 30  # at what calls of processes that are gone have left behind

_sweeps = count(1)


def sweep(process: Process, live: Callable[[], Collection[UUID]]) -> Notifications:
    """End what has no live owner: what each process does every few seconds, in a few short queries.

    `live` is asked here and no sooner: a sweep may have waited for longer than a new turn is left alone.
    """
    notifications = end_lost(process, live())
    notifications.add(end_orphaned())
    notifications.add(complete_endings())
    if next(_sweeps) % SWEEPS_PER_LOOK == 0:
        notifications.batches += late_settlements.settle_of_dead_processes()
    return notifications


def end_lost(process: Process, live: Collection[UUID]) -> Notifications:
    """End the turns that name `process` as their owner although it runs only those in `live`.

    That happens where a commit came through and its answer did not. A turn that was claimed a moment ago may not be in
    `live` yet, so it is left alone.
    """
    lost = [turn for turn in _OWNED.all(process=process.pk) if turn.pk not in live]
    return _end(lost, "A turn was lost by its owner")


def find_deleted(live: Collection[UUID]) -> set[UUID]:
    """Return those of `live` that have no row any more: it went with its user or its conversation."""
    return set(live).difference(Turn.objects.filter(pk__in=live).values_list("pk", flat=True))


def end_abandoned(process: Process) -> None:
    """End whatever `process` still owns as interrupted by its shutdown, and let it retire."""
    ending = ending_of(Cancellation(reason=CancelReason.SHUTDOWN))
    for turn in _live_of(process):
        end_turn(turn.pk, ending)
    process_registry.retire(process)


def recover() -> tuple[Notifications, list[UUID]]:
    """End what was interrupted and repair its history.

    Returns the notifications, and the conversations whose queued turns may start now. Those never began, so nothing is
    run twice. An interrupted turn is never run again by itself.
    """
    notifications = end_orphaned()
    notifications.add(complete_endings())
    notifications.batches += late_settlements.settle_of_dead_processes()
    return notifications, waiting_conversations()


def complete_endings() -> Notifications:
    """Do what somebody who has gone should have done. Cancel what belongs to an ended turn, and bring reports on their way."""
    notifications = Notifications(batches=report_delivery.enqueue_report_turns())
    notifications.add(descendants.complete())
    notifications.answers += acknowledgements.overdue()
    return notifications


def end_orphaned() -> Notifications:
    """End the turns whose owner is dead."""
    end_dead()
    return _end(_WITHOUT_OWNER.all(), "A turn was interrupted: its process is gone")


def _live_of(process: Any) -> "QuerySet[Turn]":
    return Turn.objects.filter(owner=process, status__in=LIVE_STATUSES, ended_at=None)


_OWNED = Select(
    lambda process: (
        _live_of(process)
        .filter(started_at__lt=now_minus(CLAIM_GRACE))
        .only("epoch")
        .order_by("queued_at", "pk")
    ),
    process=UUIDField(),
)
_WITHOUT_OWNER = Select(
    lambda: (
        Turn.objects.filter(
            Q(owner=None) | Q(owner__ended_at__isnull=False), status__in=LIVE_STATUSES
        )
        .only("epoch")
        .order_by("queued_at", "pk")
    )
)


def _end(turns: Iterable[Turn], complaint: str) -> Notifications:
    notifications = Notifications()
    for turn in turns:
        ended = end_turn(
            turn.pk, TurnEnding(status=TurnStatus.INTERRUPTED), epoch=turn.epoch, waits=False
        )
        if ended is not None:
            logger.warning(complaint, extra={"turn_id": str(turn.pk)})
            notifications.add(ended)
    return notifications
