"""Deletes what is older than it has to be kept, a little at a time, so that nobody waits for it (sync ORM).

Of an ended turn goes what was said and done: its messages, its tool calls with their results, its events. Its row stays
as a record of what ran when and who ended it, with the cancel requests, the repairs and the decisions of people.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import models, transaction
from django.db.models import Exists, OuterRef, Q

from governance import recorder, selectors
from governance.db_clock import database_now
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.events import log
from turns.models import (
    Acknowledgement,
    Conversation,
    DeadlineOrder,
    Event,
    Message,
    Operation,
    Process,
    Turn,
)

BATCH = 200  # turns that are looked up at once
PIECE = 1_000  # rows that are deleted at once


@dataclass(slots=True)
class Pruned:
    """How much was deleted, or would be."""

    turns: int = 0
    events: int = 0
    messages: int = 0
    calls: int = 0
    conversations: int = 0
    processes: int = 0


def prune(
    older_than: timedelta,
    *,
    with_conversations: bool = False,
    is_dry_run: bool = False,
    pause: float = 0.0,
) -> Pruned:
    """Delete the contents of turns that ended longer ago than `older_than`, by the database's clock.

    `with_conversations`: also whole conversations in which nothing has happened since, with all records of them.
    `pause` is how many seconds to leave to others after each turn. It can be interrupted and run again at any time.
    """
    before = database_now() - older_than
    pruned = Pruned()
    quiet = _quiet_conversations(before) if with_conversations else []
    for conversation_id in quiet:
        turns = Turn.objects.filter(conversation_id=conversation_id, ended_at__lt=before)
        for turn_id in turns.values_list("pk", flat=True):
            _add(pruned, turn_id)
            if not is_dry_run:
                _delete_events(turn_id)
                time.sleep(pause)
        pruned.conversations += is_dry_run or _delete_conversation(conversation_id, before=before)
    counted = set(quiet)
    for turn in _old_turns(before):
        if turn.conversation_id in counted:  # counted above, and left where it was taken up again
            continue
        _add(pruned, turn.pk)
        if not is_dry_run:
            _delete_events(turn.pk)
            _empty(turn)
            time.sleep(pause)
    owned = Turn.objects.filter(owner=OuterRef("pk"))
    gone = Process.objects.filter(~Exists(owned), ended_at__lt=before)
    pruned.processes = gone.count() if is_dry_run else gone.delete()[0]
    return pruned


def _old_turns(before: datetime) -> Iterator[Turn]:
    """The turns that ended before a moment and have contents, oldest first.

    A report that is still due is not old; one of work that was cut off is due to nobody.
    """
    old = (
        Turn.objects.filter(ended_at__lt=before)
        .exclude(status__in=ACTIVE_STATUSES)
        .exclude(user_message="")
        .exclude(is_detached=True, delivered_at=None, parent__status=TurnStatus.COMPLETED)
        .order_by("ended_at", "pk")
    )
    batch = list(_few(old))
    while batch:
        yield from batch
        last = batch[-1]
        later = Q(ended_at__gt=last.ended_at) | Q(pk__gt=last.pk)
        batch = list(_few(old.filter(later, ended_at__gte=last.ended_at)))


def _few(turns: "models.QuerySet[Turn]") -> "models.QuerySet[Turn]":
    return turns.only("ended_at", "conversation_id")[:BATCH]


def _quiet_conversations(before: datetime) -> list[UUID]:
    """Conversations in which nothing has happened since a moment, those of sub-agents before those that they work for."""
    active = Turn.objects.filter(conversation=OuterRef("pk"), status__in=ACTIVE_STATUSES)
    quiet = Conversation.objects.filter(~Exists(active), updated_at__lt=before)
    ids = set(quiet.values_list("pk", flat=True))
    parents = dict(Conversation.objects.filter(parent_id__in=ids).values_list("pk", "parent_id"))
    while blocked := {parent for child, parent in parents.items() if child not in ids} & ids:
        ids -= blocked
    depths = {pk: _depth(pk, parents) for pk in ids}
    return sorted(ids, key=lambda pk: depths[pk], reverse=True)


def _depth(conversation_id: UUID, parents: Mapping[UUID, UUID | None]) -> int:
    depth = 0
    parent = parents.get(conversation_id)
    while parent is not None:
        depth, parent = depth + 1, parents.get(parent)
    return depth


def _add(pruned: Pruned, turn_id: UUID) -> None:
    pruned.turns += 1
    pruned.events += Event.objects.filter(turn_id=turn_id).count()
    pruned.messages += Message.objects.filter(turn_id=turn_id).count()
    pruned.calls += selectors.count_of_group(str(turn_id))


def _delete_events(turn_id: UUID) -> None:
    """They are no part of the history: pages that were away for that long get a snapshot."""
    rows: models.QuerySet[Event] = Event.objects.filter(turn_id=turn_id)
    while piece := list(rows.values_list("pk", flat=True)[:PIECE]):
        Event.objects.filter(pk__in=piece).delete()


def _empty(turn: Turn) -> None:
    """Delete what was said and done in a turn at once: a history never has calls of which the results are gone."""
    with transaction.atomic():
        if log.locked_of(turn.pk) is None:
            return
        Message.objects.filter(turn=turn).delete()
        recorder.delete_calls(str(turn.pk))
        Operation.objects.filter(turn=turn).delete()
        Acknowledgement.objects.filter(turn=turn).delete()
        DeadlineOrder.objects.filter(turn=turn).delete()
        Turn.objects.filter(pk=turn.pk).update(user_message="", error_message="")


def _delete_conversation(conversation_id: UUID, *, before: datetime) -> bool:
    """Delete a conversation with all records of it, unless it has been taken up again; return whether it is gone."""
    with transaction.atomic():
        try:
            conversation = log.locked(conversation_id)
        except Conversation.DoesNotExist:
            return False
        is_active = conversation.turns.filter(status__in=ACTIVE_STATUSES).exists()
        if is_active or conversation.updated_at >= before:
            return False
        for turn_id in conversation.turns.values_list("pk", flat=True):
            recorder.delete_calls(str(turn_id), with_decisions=True)
        conversation.delete()
        return True
