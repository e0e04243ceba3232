"""Cancels the descendants of a turn: everything that it has started (C10).

Each descendant has its own stored request, which its owner applies like any other. A descendant whose conversation is
locked does not delay the others; the sweep stores its request later.
"""

import logging
from collections.abc import Iterable, Sequence
from uuid import UUID

from django.db import DatabaseError
from django.db.models import Exists, OuterRef, Q, QuerySet

from governance import Cancellation, CancelReason
from governance.db import atomic
from turns.cancelling import cancel_requests
from turns.core.periodic import SWEEP_LIMIT
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.events import log
from turns.events.notifications import Notifications
from turns.models import CancelRequest, Conversation, Turn

logger = logging.getLogger(__name__)

CUT_OFF = (  # statuses of a turn whose descendants end too
    TurnStatus.CANCELLING,
    TurnStatus.CANCELLED,
    TurnStatus.FAILED,
    TurnStatus.TIMED_OUT,
    TurnStatus.INTERRUPTED,
)

# The ended turn may be a more distant ancestor, because a turn in between may have completed and left detached ones.
BELOW_CUT_OFF = (
    Q(parent__status__in=CUT_OFF)
    | Q(parent__parent__status__in=CUT_OFF)
    | Q(root__status__in=CUT_OFF)
)


def cancel_descendants(
    turn_id: UUID, cancellation: Cancellation, *, tool_id: str | None = None, waits: bool = True
) -> Notifications:
    """Store a cancel request for every active descendant of this turn.

    With `tool_id`, only the descendants that this call has started are cancelled. The caller holds the lock of the
    turn's conversation or has stored its cancel, so no new descendant can start. Without `waits`, descendants with
    locked conversations are left out; the others then need a constant number of statements.
    """
    return cancel_all(below(turn_id, tool_id), cancellation, waits=waits)


def cancel_all(
    turns: Iterable[Turn], cancellation: Cancellation, *, waits: bool = True
) -> Notifications:
    """Store cancel requests for descendants that were read under the turn's lock."""
    passed_on = inherited(cancellation)
    active = [turn for turn in turns if turn.status in ACTIVE_STATUSES]
    notifications, turn_ids = _cancel_free(active, passed_on)
    for turn in active:
        if turn.pk in turn_ids:
            continue
        if waits:
            notifications.add(cancel_turn(turn, passed_on))
        else:
            notifications.has_left_out = True
    return notifications


def ask_for_report(turns: "QuerySet[Turn, Turn]", cancellation: Cancellation) -> Notifications:
    """Request reports from turns that reached their time limit; queued turns never start.

    Running turns report to the conversation, because no turn is waiting for them.
    """
    notifications = Notifications()
    for turn in turns.order_by("queued_at", "pk"):
        notifications.add(cancel_turn(turn, cancellation, mode="report"))
    return notifications


def _missed() -> "QuerySet[Turn]":
    requests = CancelRequest.objects.filter(turn=OuterRef("pk"), tool_id="", mode="now")
    unreached = Turn.objects.filter(
        BELOW_CUT_OFF, ~Exists(requests), status__in=ACTIVE_STATUSES, parent__isnull=False
    )
    return unreached.order_by("queued_at", "pk")[:SWEEP_LIMIT]


def complete() -> Notifications:
    """Store the missing cancel requests of active turns whose ancestor was cancelled."""
    notifications = Notifications()
    for turn in _missed():
        with atomic():
            notifications.add(
                cancel_with_descendants(turn, Cancellation(reason=CancelReason.PARENT))
            )
    return notifications


def cancel_turn(turn: Turn, cancellation: Cancellation, *, mode: str = "now") -> Notifications:
    """Cancel one descendant. A failure does not roll back the cancels of the others; the sweep then retries it."""
    if turn.status not in ACTIVE_STATUSES:
        return Notifications()
    try:
        with atomic(), log.short_lock_wait():
            conversation = log.locked(turn.conversation_id)
            return cancel_requests.cancel_turns(
                [turn], cancellation, conversations=[conversation], mode=mode
            )
    except DatabaseError:
        logger.exception("A sub-agent's turn could not be asked to stop", extra=_ids(turn))
        return Notifications()


def cancel_with_descendants(turn: Turn, cancellation: Cancellation) -> Notifications:
    """Store a request for a sub-agent's turn and its descendants, within a transaction."""
    notifications = cancel_turn(turn, cancellation)
    notifications.add(cancel_descendants(turn.pk, cancellation))
    return notifications


def cancel_waited_for(turn_id: UUID) -> Notifications:
    """Cancel the sub-agents that a completed turn was waiting for, because the calls that waited for them failed (C10).

    The caller holds the lock of the turn's conversation. Detached sub-agents continue.
    """
    children = Turn.objects.filter(parent=turn_id, is_detached=False, status__in=ACTIVE_STATUSES)
    notifications = Notifications()
    for turn in children.order_by("queued_at", "pk"):
        notifications.add(cancel_with_descendants(turn, Cancellation(reason=CancelReason.PARENT)))
    return notifications


def inherited(cancellation: Cancellation) -> Cancellation:
    """Return the cancellation of the descendants of a turn with the given cancellation."""
    return Cancellation(
        reason=CancelReason.PARENT,
        source=cancellation.source,
        by=cancellation.by,
        note=cancellation.note,
    )


def reached(turns: Sequence[Turn]) -> int:
    """Return how many of these descendants were cancelled together with their ancestor.

    A descendant in this process is cancelled before its request is stored, and may have ended by then.
    """
    if not turns:
        return 0
    requests = CancelRequest.objects.filter(
        turn=OuterRef("pk"), tool_id="", reason=CancelReason.PARENT
    )
    obeyed = Q(status=TurnStatus.CANCELLED, ended_by_reason=CancelReason.PARENT)
    return (
        Turn.objects.filter(pk__in=[turn.pk for turn in turns])
        .filter(obeyed | Exists(requests))
        .count()
    )


def below(turn_id: UUID, tool_id: str | None = None) -> list[Turn]:
    """Return the descendants of a turn or of one of its calls, from the top down."""
    children = Turn.objects.filter(parent_id=turn_id)
    if tool_id is not None:
        children = children.filter(parent_tool_id=tool_id)
    descendants: list[Turn] = []
    frontier = list(children.order_by("queued_at", "pk"))
    while frontier:
        descendants += frontier
        started = Turn.objects.filter(parent_id__in=[child.pk for child in frontier])
        frontier = list(started.order_by("queued_at", "pk"))
    return descendants


def _cancel_free(
    turns: Sequence[Turn], cancellation: Cancellation
) -> tuple[Notifications, set[UUID]]:
    """Cancel the descendants whose conversations are not locked. Return the notifications, and the ids of
    these turns.
    """
    if not turns:
        return Notifications(), set()
    try:
        with atomic():
            rows = Conversation.objects.select_for_update(skip_locked=True).order_by("pk")
            free = list(rows.filter(pk__in=[turn.conversation_id for turn in turns]))
            free_ids = {conversation.pk for conversation in free}
            cancellable = [turn for turn in turns if turn.conversation_id in free_ids]
            notifications = cancel_requests.cancel_turns(
                cancellable, cancellation, conversations=free
            )
            return notifications, {turn.pk for turn in cancellable}
    except DatabaseError:
        logger.exception("The turns of sub-agents could not be asked to stop together")
        return Notifications(), set()


def _ids(turn: Turn) -> dict[str, str]:
    return {"turn_id": str(turn.pk), "conversation_id": str(turn.conversation_id)}
