"""Delivers the report of a detached sub-agent to its parent conversation exactly once (C10).

A report is added to the conversation's next message. If the conversation is idle, a separate turn is queued to deliver
it. After a cancel, nothing starts automatically (C7). The functions here use the synchronous ORM.
"""

from contextlib import suppress
from uuid import UUID, uuid4

from django.db.models import Case, Exists, Max, OuterRef, Q, QuerySet, When

from governance.db import atomic
from turns.cancelling.descendants import CUT_OFF
from turns.core import texts
from turns.core.periodic import SWEEP_LIMIT
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.events import log
from turns.exceptions import ConversationNotFound, TurnsError
from turns.history.reports import UNDELIVERED, undelivered
from turns.models import CancelRequest, Conversation, Turn
from turns.queueing import queue, turn_tree
from turns.queueing.turn_tree import parent_id_of


def enqueue_due_after(turn_id: UUID) -> list[log.Batch]:
    """Queue turns for the reports that became due when a turn ended. Return the events to publish."""
    turn = Turn.objects.filter(pk=turn_id).select_related("parent").first()
    if turn is None:
        return []
    recipients = {turn.conversation_id}
    if turn.is_detached and turn.parent is not None:
        recipients.add(turn.parent.conversation_id)
    return [batch for pk in recipients if (batch := enqueue_report_turn(pk)) is not None]


def enqueue_report_turns(*, limit: int = SWEEP_LIMIT) -> list[log.Batch]:
    """Queue turns for due reports that another process failed to queue.

    Reports that must wait for a person are excluded, because there may be many of them, and they may wait forever.
    Others may be undeliverable for now, because an agent is unavailable, a queue is full or a conversation is locked.
    Each run therefore starts with a different report.
    """
    start_anywhere = Case(When(parent__conversation__pk__gte=uuid4(), then=0), default=1)
    rows = _without_report_turn().annotate(rank=start_anywhere)
    rows = rows.order_by("rank", "parent__conversation_id")
    recipients = rows.values_list("parent__conversation_id", "rank").distinct()
    return [
        batch
        for pk, _rank in recipients[:limit]
        if (batch := enqueue_report_turn(pk, waits=False)) is not None
    ]


def _without_report_turn() -> QuerySet[Turn]:
    """Return the turns whose reports are due, but which no active turn of the recipient will deliver."""
    busy = Turn.objects.filter(
        conversation=OuterRef("parent__conversation"), status__in=ACTIVE_STATUSES
    )
    cancelled_since = CancelRequest.objects.filter(
        turn__conversation=OuterRef("parent__conversation"),
        tool_id="",
        requested_at__gte=OuterRef("ended_at"),
    )
    return Turn.objects.filter(
        ~Exists(busy),
        ~Exists(cancelled_since),
        ~Q(status=TurnStatus.CANCELLED),
        Q(parent__parent=None) | ~Q(parent__parent__status__in=CUT_OFF),
        UNDELIVERED,
        parent__conversation__parked_at=None,
        parent__conversation__deleted_at=None,
        ended_at__isnull=False,
    )


def enqueue_report_turn(conversation_id: UUID, *, waits: bool = True) -> log.Batch | None:
    """Queue a turn for the due reports of an idle conversation. Return None if nothing was queued.

    Without `waits`, a locked conversation is treated as busy.
    """
    if not undelivered(conversation_id).exists():
        return None
    with suppress(ConversationNotFound), atomic():
        conversation = _locked(conversation_id, waits=waits)
        if conversation.turns.filter(status__in=ACTIVE_STATUSES).exists():
            return None  # the conversation's next turn delivers the reports
        due = _due(conversation_id)
        if not due:
            return None
        report = Turn.objects.select_related("parent__parent").get(pk=due[-1].pk)
        # the turn for which the recipient works, and which will receive the recipient's result
        parent = report.parent.parent if report.parent else None
        if parent is not None and (
            parent.status in CUT_OFF or not turn_tree.has_room_for_report_turn(parent)
        ):
            return None  # the sweep retries after another turn has ended
        text = texts.REPORT % {"names": ", ".join(sorted({turn.agent for turn in due}))}
        try:
            queued = queue.enqueue(
                conversation_id,
                text=text,
                source=queue.REPORT_SOURCE,
                client_id=None,
                parent=parent,
            )
        except TurnsError:  # parked, full, or without its agent: the sweep retries
            return None
        # as deep as the reports, so that agents cannot keep each other running without a person
        depth = max(turn.depth for turn in due)
        Turn.objects.filter(pk=queued.turn.pk).update(
            depth=depth, is_detached=parent is not None, root=due[-1].root_id
        )
        return conversation_id, queued.events
    return None


def _locked(conversation_id: UUID, *, waits: bool) -> Conversation:
    """Lock a conversation after its parent, because a cancel in the parent must prevent new turns here (C10)."""
    parent_id = parent_id_of(conversation_id)
    if parent_id is not None:
        report = undelivered(conversation_id).first()
        if report is not None:  # the lock of its family is acquired before those of conversations
            turn_tree.lock(report.pk, waits=waits)
        log.locked(parent_id, waits=waits)
    return log.locked(conversation_id, waits=waits)


def _due(conversation_id: UUID) -> list[Turn]:
    """Return the reports that may start a turn: those not followed by a cancel of the conversation."""
    cancels = CancelRequest.objects.filter(turn__conversation=conversation_id, tool_id="")
    last_cancel = cancels.aggregate(at=Max("requested_at"))["at"]
    due = undelivered(conversation_id).exclude(status=TurnStatus.CANCELLED)
    return list(due if last_cancel is None else due.filter(ended_at__gt=last_cancel))
