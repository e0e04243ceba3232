"""Cascades: the cancel of a turn reaches all that it has started, in one go (C10).

The rows are the truth: each descendant gets a request of its own, which its owner obeys like any other. One that cannot
be reached keeps nobody else waiting; the sweep stores its request later.
"""

import logging
from collections.abc import Iterable, Sequence
from uuid import UUID

from django.db import DatabaseError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from governance import Cancellation, CancelReason
from governance.prepared_statements import Select
from turns.cancelling import cancel_requests
from turns.core.periodic import SWEEP_LIMIT
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.events import log
from turns.events.notifications import Notifications
from turns.models import CancelRequest, Conversation, Turn

logger = logging.getLogger(__name__)

CUT_OFF = (  # how a turn ends that takes its descendants with it, and how it looks before
    TurnStatus.CANCELLING,
    TurnStatus.CANCELLED,
    TurnStatus.FAILED,
    TurnStatus.TIMED_OUT,
    TurnStatus.INTERRUPTED,
)

# What was cut off may stand further up: a turn that completed before that has left detached ones at work.
BELOW_CUT_OFF = (
    Q(parent__status__in=CUT_OFF)
    | Q(parent__parent__status__in=CUT_OFF)
    | Q(root__status__in=CUT_OFF)
)


def cancel_descendants(
    turn_id: UUID, cancellation: Cancellation, *, tool_id: str | None = None, waits: bool = True
) -> Notifications:
    """Store a request for every turn that this one has started, directly or not, and that is not over.

    With `tool_id` only what that call has started. The caller holds the lock of the turn's conversation, or has stored
    its cancel, so nothing can be started meanwhile. Without `waits` those are left out whose conversations somebody is
    writing. For each of the others that is the same few statements.
    """
    return cancel_all(below(turn_id, tool_id), cancellation, waits=waits)


def cancel_all(
    turns: Iterable[Turn], cancellation: Cancellation, *, waits: bool = True
) -> Notifications:
    """Store the same for descendants of a turn that were read under its lock."""
    passed_on = inherited(cancellation)
    active = [turn for turn in turns if turn.status in ACTIVE_STATUSES]
    notifications, asked = _cancel_free(active, passed_on)
    for turn in active:
        if turn.pk in asked:
            continue
        if waits:
            notifications.add(cancel_turn(turn, passed_on))
        else:
            notifications.has_left_out = True
    return notifications


def ask_for_report(turns: "QuerySet[Turn, Turn]", cancellation: Cancellation) -> Notifications:
    """Store for turns that they are out of time: what waits never begins.

    Those that run report what they have, to the conversation, since nobody waits for them any more.
    """
    notifications = Notifications()
    for turn in turns.order_by("queued_at", "pk"):
        notifications.add(cancel_turn(turn, cancellation, mode="report"))
    return notifications


def _missed() -> "QuerySet[Turn]":
    asked = CancelRequest.objects.filter(turn=OuterRef("pk"), tool_id="", mode="now")
    missed = Turn.objects.filter(
        BELOW_CUT_OFF, ~Exists(asked), status__in=ACTIVE_STATUSES, parent__isnull=False
    )
    return missed.order_by("queued_at", "pk")[:SWEEP_LIMIT]


_MISSED = Select(_missed)


def complete() -> Notifications:
    """Store the requests that a cascade could not. They are for what is not over although what is above it was cut off."""
    notifications = Notifications()
    for turn in _MISSED.all():
        with transaction.atomic():
            notifications.add(
                cancel_with_descendants(turn, Cancellation(reason=CancelReason.PARENT))
            )
    return notifications


def cancel_turn(turn: Turn, cancellation: Cancellation, *, mode: str = "now") -> Notifications:
    """Ask one descendant to stop. What fails here is left to the sweep: it must not undo the others."""
    if turn.status not in ACTIVE_STATUSES:
        return Notifications()
    try:
        with transaction.atomic(), log.short_lock_wait():
            conversation = log.locked(turn.conversation_id)
            return cancel_requests.cancel_turns(
                [turn], cancellation, conversations=[conversation], mode=mode
            )
    except DatabaseError:
        logger.exception("A sub-agent's turn could not be asked to stop", extra=_ids(turn))
        return Notifications()


def cancel_with_descendants(turn: Turn, cancellation: Cancellation) -> Notifications:
    """Store a request for a sub-agent's turn and for all that it has started; inside a transaction."""
    notifications = cancel_turn(turn, cancellation)
    notifications.add(cancel_descendants(turn.pk, cancellation))
    return notifications


def cancel_waited_for(turn_id: UUID) -> Notifications:
    """Store a request for the sub-agents that a completed turn should have waited for: their calls have failed (C10).

    The caller holds the lock of the turn's conversation. Detached ones go on.
    """
    left = Turn.objects.filter(parent=turn_id, is_detached=False, status__in=ACTIVE_STATUSES)
    notifications = Notifications()
    for turn in left.order_by("queued_at", "pk"):
        notifications.add(cancel_with_descendants(turn, Cancellation(reason=CancelReason.PARENT)))
    return notifications


def inherited(cancellation: Cancellation) -> Cancellation:
    """Return a cancellation as the turns see it that the cancelled one has started."""
    return Cancellation(
        reason=CancelReason.PARENT,
        source=cancellation.source,
        by=cancellation.by,
        note=cancellation.note,
    )


def reached(turns: Sequence[Turn]) -> int:
    """Return how many of these descendants were asked to stop because of what they belong to."""
    ids = [turn.pk for turn in turns]
    asked = CancelRequest.objects.filter(turn__in=ids, tool_id="", reason=CancelReason.PARENT)
    return asked.count() if ids else 0


def below(turn_id: UUID, tool_id: str | None = None) -> list[Turn]:
    """Return everything that a turn has started, or one call of it, from the top down."""
    children = Turn.objects.filter(parent_id=turn_id)
    if tool_id is not None:
        children = children.filter(parent_tool_id=tool_id)
    found: list[Turn] = []
    frontier = list(children.order_by("queued_at", "pk"))
    while frontier:
        found += frontier
        started = Turn.objects.filter(parent_id__in=[child.pk for child in frontier])
        frontier = list(started.order_by("queued_at", "pk"))
    return found


def _cancel_free(
    turns: Sequence[Turn], cancellation: Cancellation
) -> tuple[Notifications, set[UUID]]:
    """Ask those to stop whose conversations nobody is writing; return who that was, too."""
    if not turns:
        return Notifications(), set()
    try:
        with transaction.atomic():
            rows = Conversation.objects.select_for_update(skip_locked=True).order_by("pk")
            free = list(rows.filter(pk__in=[turn.conversation_id for turn in turns]))
            free_ids = {conversation.pk for conversation in free}
            asked = [turn for turn in turns if turn.conversation_id in free_ids]
            notifications = cancel_requests.cancel_turns(asked, cancellation, conversations=free)
            return notifications, {turn.pk for turn in asked}
    except DatabaseError:
        logger.exception("The turns of sub-agents could not be asked to stop together")
        return Notifications(), set()


def _ids(turn: Turn) -> dict[str, str]:
    return {"turn_id": str(turn.pk), "conversation_id": str(turn.conversation_id)}
