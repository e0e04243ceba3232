"""Ends the turns of dead processes (H4).

Every process checks, including those that run no turns. The first one ends a turn; the others then find nothing to do.
The functions here use the synchronous ORM.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

from django.db.models import F, Q, QuerySet

from governance import Cancellation, CancelReason
from governance.db_clock import now_minus
from turns.calls import late_settlements
from turns.cancelling import descendants
from turns.core.turns import LEASE_LOST, LIVE_STATUSES, TurnEnding, TurnStatus, ending_of
from turns.endings import report_delivery
from turns.endings.turn_endings import end_turn
from turns.events import acknowledgements
from turns.events.notifications import Notifications
from turns.models import Process, Turn
from turns.processes import process_registry
from turns.processes.process_registry import end_dead

logger = logging.getLogger(__name__)

CRASHED = TurnEnding(status=TurnStatus.INTERRUPTED)
CLAIM_GRACE = timedelta(seconds=10)
SWEEPS_PER_LOOK = 30  # number of sweeps between two searches for abandoned calls of dead processes

_OF_OWNER = ("pid", "pid_namespace", "boot_id", "start_ticks")
_sweeps = count(1)


def sweep(process: Process, live: Callable[[], Collection[UUID]]) -> Notifications:
    """End turns without a live owner; every process does this every few seconds, with a few short queries.

    `live` is a function, because a sweep may wait longer than the time for which new turns are skipped.
    """
    notifications = end_lost(process, live())
    notifications.add(end_orphaned())
    notifications.add(complete_endings())
    if next(_sweeps) % SWEEPS_PER_LOOK == 0:
        notifications.batches += late_settlements.settle_of_dead_processes()
    return notifications


def end_lost(process: Process, live: Collection[UUID]) -> Notifications:
    """End the turns owned by `process` that are not in `live`.

    Such turns exist if a commit succeeded but was not confirmed. A turn that was just claimed may not be in `live` yet,
    so it is skipped.
    """
    turns = _live_of(process).filter(started_at__lt=now_minus(CLAIM_GRACE))
    turns = turns.only("epoch").order_by("queued_at", "pk")
    ownerless = [turn for turn in turns if turn.pk not in live]
    ending = process_registry.lost_here.get(process.pk, CRASHED)
    return _end(ownerless, "A turn was lost by its owner", ending)


def find_deleted(live: Collection[UUID]) -> set[UUID]:
    """Return the ids in `live` of turns whose rows were deleted with their user or conversation."""
    return set(live).difference(Turn.objects.filter(pk__in=live).values_list("pk", flat=True))


def end_abandoned(process: Process) -> None:
    """End the turns that `process` still owns with the reason `shutdown`, and retire the process."""
    ending = ending_of(Cancellation(reason=CancelReason.SHUTDOWN))
    for turn in _live_of(process):
        end_turn(turn.pk, ending)
    process_registry.retire(process)


def recover() -> Notifications:
    """End interrupted turns and repair their histories. An interrupted turn is never restarted automatically."""
    notifications = end_orphaned()
    notifications.add(complete_endings())
    notifications.batches += late_settlements.settle_of_dead_processes()
    return notifications


def complete_endings() -> Notifications:
    """Complete what dead processes left undone: cancel the descendants of ended turns, and queue reports."""
    notifications = Notifications(batches=report_delivery.enqueue_report_turns())
    notifications.add(descendants.complete())
    notifications.answers += acknowledgements.overdue()
    return notifications


def end_orphaned() -> Notifications:
    """End the turns whose owners are dead."""
    end_dead()
    turns = Turn.objects.filter(
        Q(owner=None) | Q(owner__ended_at__isnull=False), status__in=LIVE_STATUSES
    )
    notifications = Notifications()
    rows = turns.select_related("owner").only("epoch", *(f"owner__{name}" for name in _OF_OWNER))
    for turn in rows.order_by("queued_at", "pk"):
        owner: Any = turn.owner
        has_died = owner is None or process_registry.has_died(owner)
        cause = CRASHED if has_died else LEASE_LOST
        ending = process_registry.lost_here.get(turn.owner_id) or cause
        ended = _end([turn], "A turn was interrupted: its process is gone", ending)
        if ended.batches and owner is not None:
            Process.objects.filter(pk=owner.pk).update(lost_turns=F("lost_turns") + 1)
        notifications.add(ended)
    return notifications


def _live_of(process: Process) -> "QuerySet[Turn]":
    return Turn.objects.filter(owner=process, status__in=LIVE_STATUSES, ended_at=None)


def _end(turns: Iterable[Turn], log_message: str, ending: TurnEnding) -> Notifications:
    notifications = Notifications()
    for turn in turns:
        ended = end_turn(turn.pk, ending, epoch=turn.epoch, waits=False)
        if ended is not None:
            logger.warning(log_message, extra={"turn_id": str(turn.pk)})
            notifications.add(ended)
    return notifications
