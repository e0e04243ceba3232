"""Cascades: the cancel of a turn reaches all that it has started, in one go (C10).

The rows are the truth: each descendant gets a request of its own, which its owner obeys like any other. One that cannot
be reached keeps nobody else waiting; the sweep stores its request later.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import DatabaseError, transaction
from django.db.models import Exists, OuterRef, QuerySet

from governance import Cancellation, CancelReason
from governance.db_clock import database_now
from turns.cancelling import cancel_requests
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.events import log
from turns.events.notifications import Notifications
from turns.models import CancelRequest, Conversation, Turn
from turns.queueing.queue import cancel_queued

logger = logging.getLogger(__name__)

CUT_OFF = (  # how a turn ends that takes its descendants with it, and how it looks before
    TurnStatus.CANCELLING,
    TurnStatus.CANCELLED,
    TurnStatus.FAILED,
    TurnStatus.TIMED_OUT,
    TurnStatus.INTERRUPTED,
)


@dataclass(slots=True)
class DescendantsCancelled(Notifications):
    """What is to be told of the descendants of a turn; `count` is how many were asked to stop.

    `has_left_out` says that some were not, since somebody was writing their conversations.
    """

    count: int = 0
    has_left_out: bool = False

    def take_in(self, other: "DescendantsCancelled") -> None:
        """Count others with these."""
        self.count += other.count
        self.has_left_out |= other.has_left_out
        self.add(other)


def cancel_descendants(
    turn_id: UUID, cancellation: Cancellation, *, tool_id: str | None = None, waits: bool = True
) -> DescendantsCancelled:
    """Store a request for every turn that this one has started, directly or not, and that is not over.

    With `tool_id` only what that call has started. The caller holds the lock of the turn's conversation, or has stored
    its cancel, so nothing can be started meanwhile. Without `waits` those are left out whose conversations somebody is
    writing; for each of the others that is the same few statements.
    """
    passed_on = inherited(cancellation)
    active = [turn for turn in _descendants(turn_id, tool_id) if turn.status in ACTIVE_STATUSES]
    cascade, asked = _ask_all_free(active, passed_on)
    for turn in active:
        if turn.pk in asked:
            continue
        if waits:
            cascade.take_in(_cancel(turn, passed_on))
        else:
            cascade.has_left_out = True
    return cascade


def ask_for_report(
    turns: "QuerySet[Turn, Turn]", cancellation: Cancellation
) -> DescendantsCancelled:
    """Store for turns that they are out of time: what waits never begins.

    Those that run report what they have, to the conversation, since nobody waits for them any more.
    """
    cascade = DescendantsCancelled()
    for turn in turns.order_by("queued_at", "pk"):
        cascade.take_in(_cancel(turn, cancellation, mode="report"))
    return cascade


def complete(*, limit: int = 100) -> DescendantsCancelled:
    """Store the requests that a cascade could not: of what is not over although what has started it was cut off."""
    asked = CancelRequest.objects.filter(turn=OuterRef("pk"), tool_id="", mode="now")
    missed = Turn.objects.filter(
        ~Exists(asked), status__in=ACTIVE_STATUSES, parent__status__in=CUT_OFF
    )
    cascade = DescendantsCancelled()
    for turn in missed.order_by("queued_at", "pk")[:limit]:
        with transaction.atomic():
            cascade.take_in(cancel_with_descendants(turn, Cancellation(reason=CancelReason.PARENT)))
    return cascade


def cancel_with_descendants(turn: Turn, cancellation: Cancellation) -> DescendantsCancelled:
    """Store a request for a sub-agent's turn and for all that it has started; inside a transaction."""
    cascade = _cancel(turn, cancellation)
    cascade.take_in(cancel_descendants(turn.pk, cancellation))
    return cascade


def cancel_waited_for(turn_id: UUID) -> DescendantsCancelled:
    """Store a request for the sub-agents that a completed turn should have waited for: their calls have failed (C10).

    The caller holds the lock of the turn's conversation. Detached ones go on.
    """
    left = Turn.objects.filter(parent=turn_id, is_detached=False, status__in=ACTIVE_STATUSES)
    cascade = DescendantsCancelled()
    for turn in left.order_by("queued_at", "pk"):
        cascade.take_in(cancel_with_descendants(turn, Cancellation(reason=CancelReason.PARENT)))
    return cascade


def inherited(cancellation: Cancellation) -> Cancellation:
    """Return a cancellation as the turns see it that the cancelled one has started."""
    return Cancellation(
        reason=CancelReason.PARENT,
        source=cancellation.source,
        by=cancellation.by,
        note=cancellation.note,
    )


def reached(turn_id: UUID) -> int:
    """Return how many descendants of a turn were asked to stop because of what they belong to."""
    count, frontier = 0, [turn_id]
    while frontier:
        children = Turn.objects.filter(parent_id__in=frontier)
        asked = CancelRequest.objects.filter(
            turn__parent_id__in=frontier, tool_id="", reason=CancelReason.PARENT.value
        )
        count += asked.count()
        frontier = list(children.values_list("pk", flat=True))
    return count


def _descendants(turn_id: UUID, tool_id: str | None) -> list[Turn]:
    """Everything that a turn has started, or one call of it, from the top down."""
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


def _ask_all_free(
    turns: Sequence[Turn], cancellation: Cancellation
) -> tuple[DescendantsCancelled, set[UUID]]:
    """Ask those to stop whose conversations nobody is writing; return who that was, too."""
    if not turns:
        return DescendantsCancelled(), set()
    try:
        with transaction.atomic():
            rows = Conversation.objects.select_for_update(skip_locked=True).order_by("pk")
            wanted = [turn.conversation_id for turn in turns]
            free = {row.pk: row for row in rows.filter(pk__in=wanted)}
            asked = {turn.pk for turn in turns if turn.conversation_id in free}
            return _ask_all(asked, free, cancellation), asked
    except DatabaseError:
        logger.exception("The turns of sub-agents could not be asked to stop together")
        return DescendantsCancelled(), set()


def _ask_all(
    turn_ids: Collection[UUID],
    conversations: Mapping[UUID, Conversation],
    cancellation: Cancellation,
) -> DescendantsCancelled:
    """Store a request for each of these turns of locked conversations; those that wait never begin."""
    at = database_now()
    active = list(Turn.objects.filter(pk__in=turn_ids, status__in=ACTIVE_STATUSES))
    cancel_requests.write_all(active, cancellation, at=at)
    Turn.objects.filter(pk__in=turn_ids, status=TurnStatus.RUNNING).update(
        status=TurnStatus.CANCELLING
    )
    cascade = DescendantsCancelled(count=len(active))
    for turn in active:
        if turn.status == TurnStatus.QUEUED:
            place = conversations[turn.conversation_id]
            cascade.batches.append((place.pk, cancel_queued(place, [turn], cancellation, at=at)))
            cancel_requests.settle(turn.pk, outcome=TurnStatus.CANCELLED.value, at=at)
        elif turn.owner_id is not None:
            cascade.owner_ids.add(turn.owner_id)
    return cascade


def _cancel(turn: Turn, cancellation: Cancellation, *, mode: str = "now") -> DescendantsCancelled:
    """Ask one descendant to stop. What fails here is left to the sweep: it must not undo the others (90)."""
    if turn.status not in ACTIVE_STATUSES:
        return DescendantsCancelled()
    try:
        with transaction.atomic(), log.patience():
            return _ask(turn, cancellation, mode=mode, at=database_now())
    except DatabaseError:
        logger.exception("A sub-agent's turn could not be asked to stop", extra=_ids(turn))
        return DescendantsCancelled()


def _ask(
    turn: Turn, cancellation: Cancellation, *, mode: str, at: datetime
) -> DescendantsCancelled:
    conversation = log.locked(turn.conversation_id)
    turn.refresh_from_db(fields=["status", "owner"])
    if turn.status not in ACTIVE_STATUSES:
        return DescendantsCancelled()
    cancel_requests.write(turn, cancellation, mode=mode)
    if turn.status == TurnStatus.QUEUED:
        events = cancel_queued(conversation, [turn], cancellation, at=at)
        cancel_requests.settle(turn.pk, outcome=TurnStatus.CANCELLED.value, at=at)
        return DescendantsCancelled(count=1, batches=[(turn.conversation_id, events)])
    if mode == "now":
        running = Turn.objects.filter(pk=turn.pk, status=TurnStatus.RUNNING)
        running.update(status=TurnStatus.CANCELLING)
    else:
        Turn.objects.filter(pk=turn.pk).update(is_detached=True)
    return DescendantsCancelled(count=1, owner_ids={turn.owner_id} if turn.owner_id else set())


def _ids(turn: Turn) -> dict[str, str]:
    return {"turn_id": str(turn.pk), "conversation_id": str(turn.conversation_id)}
