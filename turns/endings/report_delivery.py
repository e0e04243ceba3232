"""Deliveries: the report of a detached sub-agent reaches the conversation it worked for, once (C10; sync ORM).

A report is part of the next message that its conversation gets. Where nothing goes on there, a turn of its own is
queued to carry it. But nothing begins by itself after a cancel (C7).
"""

from contextlib import suppress
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Case, Exists, Max, OuterRef, Q, QuerySet, UUIDField, When

from governance.prepared_statements import Select
from turns.cancelling.descendants import CUT_OFF
from turns.core import texts
from turns.core.periodic import SWEEP_LIMIT
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.events import log
from turns.exceptions import ConversationNotFound, TurnsError
from turns.history.reports import UNDELIVERED, are_due, undelivered
from turns.models import CancelRequest, Conversation, Turn
from turns.queueing import queue, turn_tree
from turns.storage.conversation_tree import parent_id_of


def enqueue_due_after(turn_id: UUID) -> tuple[list[log.Batch], bool]:
    """Queue what carries the reports that are due since a turn has ended.

    Return the events to publish, and whether there was a turn anywhere that may begin now.
    """
    place = _PLACE.first(turn_id=turn_id)
    if place is None:
        return [], True
    conversation_id, has_reports, is_detached, above, others_wait = place
    waiting = {conversation_id} if has_reports else set[UUID]()
    if is_detached and above is not None:
        waiting.add(above)
    batches = [batch for pk in waiting if (batch := enqueue_report_turn(pk)) is not None]
    return batches, others_wait


def enqueue_report_turns(*, limit: int = SWEEP_LIMIT) -> list[log.Batch]:
    """Queue what carries the reports that somebody has left behind who should have.

    Those that have to wait for a person are not even looked at. They may be many, and wait for ever. Some of them
    cannot be delivered yet: an agent is gone, a queue is full, or somebody writes there. So each run begins with another one.
    """
    return [
        batch
        for pk, _is_before in _LEFT_BEHIND.all(first=uuid4())[:limit]
        if (batch := enqueue_report_turn(pk, waits=False)) is not None
    ]


def _left_behind() -> QuerySet[Turn]:
    """The turns whose reports wait for nobody, and have not been delivered."""
    busy = Turn.objects.filter(
        conversation=OuterRef("parent__conversation"), status__in=ACTIVE_STATUSES
    )
    overtaken = CancelRequest.objects.filter(
        turn__conversation=OuterRef("parent__conversation"),
        tool_id="",
        requested_at__gte=OuterRef("ended_at"),
    )
    return Turn.objects.filter(
        ~Exists(busy),
        ~Exists(overtaken),
        ~Q(status=TurnStatus.CANCELLED),
        Q(parent__parent=None) | ~Q(parent__parent__status__in=CUT_OFF),
        UNDELIVERED,
        parent__conversation__parked_at=None,
        parent__conversation__deleted_at=None,
        ended_at__isnull=False,
    )


def enqueue_report_turn(conversation_id: UUID, *, waits: bool = True) -> log.Batch | None:
    """Queue a turn for the reports that are due to an idle conversation; None if there is nothing to begin.

    Without `waits` one that somebody is writing is as good as busy.
    """
    if _FIRST_REPORT.first(conversation_id=conversation_id) is None:
        return None
    with suppress(ConversationNotFound), transaction.atomic():
        conversation = _locked(conversation_id, waits=waits)
        if conversation.turns.filter(status__in=ACTIVE_STATUSES).exists():
            return None  # its next turn takes them
        due = _due(conversation_id)
        if not due:
            return None
        above = _above(due[-1])
        if above is not None and not _takes_reports(above):
            return None
        text = texts.REPORT % {"names": ", ".join(sorted({turn.agent for turn in due}))}
        try:
            queued = queue.enqueue(
                conversation_id, text=text, source=queue.REPORT_SOURCE, client_id=None, parent=above
            )
        except TurnsError:  # parked, full, or without its agent: the sweep looks again
            return None
        # what a report sets going is one deeper: agents cannot keep each other going without a person
        depth = max(turn.depth for turn in due)
        Turn.objects.filter(pk=queued.turn.pk).update(
            depth=depth, is_detached=above is not None, root=due[-1].root_id
        )
        return conversation_id, queued.events
    return None


def _takes_reports(above: Turn) -> bool:
    """Whether somebody waits for them, and there is room. If not, the sweep looks again when another turn has ended."""
    return above.status not in CUT_OFF and turn_tree.has_room_for_report_turn(above)


_PLACE = Select(
    lambda turn_id: (
        Turn.objects.filter(pk=turn_id)
        .order_by()
        .annotate(
            has_reports=are_due(OuterRef("conversation")),
            others_wait=Exists(queue.startable()),
        )
        .values_list(
            "conversation_id",
            "has_reports",
            "is_detached",
            "parent__conversation_id",
            "others_wait",
        )
    ),
    turn_id=UUIDField(),
)
_LEFT_BEHIND = Select(
    lambda first: (
        _left_behind()
        .annotate(is_before=Case(When(parent__conversation__pk__gte=first, then=0), default=1))
        .order_by("is_before", "parent__conversation_id")
        .values_list("parent__conversation_id", "is_before")
        .distinct()[:SWEEP_LIMIT]
    ),
    first=UUIDField(),
)
_FIRST_REPORT = Select(
    lambda conversation_id: undelivered(conversation_id).values_list("pk")[:1],
    conversation_id=UUIDField(),
)


def _locked(conversation_id: UUID, *, waits: bool) -> Conversation:
    """The conversation, locked behind the one that it works for: a cancel there lets nothing begin here (C10)."""
    above = parent_id_of(conversation_id)
    if above is not None:
        report = undelivered(conversation_id).first()
        if report is not None:  # its family is counted below
            turn_tree.lock(report.pk, waits=waits)
        log.locked(above, waits=waits)
    return log.locked(conversation_id, waits=waits)


def _above(report: Turn) -> Turn | None:
    """The turn that whoever gets a report works for: what comes of it is delivered there in turn."""
    place = Turn.objects.select_related("parent__parent").get(pk=report.pk)
    return place.parent.parent if place.parent else None


def _due(conversation_id: UUID) -> list[Turn]:
    """The reports that may begin a turn: of work that no cancel of the conversation has overtaken."""
    cut_off = CancelRequest.objects.filter(
        turn__conversation=conversation_id, tool_id=""
    ).aggregate(at=Max("requested_at"))["at"]
    due = undelivered(conversation_id).exclude(status=TurnStatus.CANCELLED)
    return list(due if cut_off is None else due.filter(ended_at__gt=cut_off))
