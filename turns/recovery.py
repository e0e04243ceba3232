"""Ends the turns that a dead process left behind, and finds what waits to be started (H4; sync ORM)."""

import logging
from collections.abc import Collection
from datetime import timedelta
from uuid import UUID

from django.utils import timezone

from turns import log
from turns.core.ports import TurnEnding
from turns.core.turns import LIVE_STATUSES, TurnStatus
from turns.endings import end_turn
from turns.models import Process, Turn
from turns.processes import is_alive, retire
from turns.store import waiting_conversations

logger = logging.getLogger(__name__)

CLAIM_GRACE = timedelta(seconds=10)

Recovered = list[tuple[UUID, list[log.WireEvent]]]


def end_lost(process: Process, live: Collection[UUID]) -> Recovered:
    """End the turns that name `process` as their owner although it runs only those in `live`.

    That happens where a commit came through and its answer did not. A turn that was claimed a moment ago may not be in
    `live` yet, so it is left alone.
    """
    claimed_before = timezone.now() - CLAIM_GRACE
    lost = Turn.objects.filter(
        owner=process, status__in=LIVE_STATUSES, started_at__lt=claimed_before
    )
    recovered: Recovered = []
    for turn in lost.exclude(pk__in=live):
        events = end_turn(turn.pk, TurnEnding(status=TurnStatus.INTERRUPTED))
        if events is not None:
            logger.warning("A turn was lost by its owner", extra={"turn_id": str(turn.pk)})
            recovered.append((turn.conversation_id, events))
    return recovered


def recover() -> tuple[Recovered, list[UUID]]:
    """End what was interrupted and repair its history.

    Returns the events to publish by conversation, and the conversations whose queued turns may start now: those never
    began, so nothing is run twice. An interrupted turn is never run again by itself.
    """
    recovered: Recovered = []
    dead = {
        owner.pk
        for owner in Process.objects.filter(turns__status__in=LIVE_STATUSES).distinct()
        if not is_alive(owner)
    }
    for turn in Turn.objects.filter(status__in=LIVE_STATUSES).select_related("owner"):
        if turn.owner_id is not None and turn.owner_id not in dead:
            continue
        events = end_turn(turn.pk, TurnEnding(status=TurnStatus.INTERRUPTED))
        if events is not None:
            logger.warning(
                "A turn was interrupted: its process is gone", extra={"turn_id": str(turn.pk)}
            )
            recovered.append((turn.conversation_id, events))
    for owner in Process.objects.filter(pk__in=dead):
        retire(owner)
    return recovered, waiting_conversations()
