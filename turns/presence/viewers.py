"""Who looks at a conversation, and which turns were left behind by the last who did (C11; sync ORM).

A conversation and those of its sub-agents are one family: who looks at one of them attends to all. The topmost row is
locked first, so that a returning viewer and the end of the grace have one order.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.db.models.functions import Now

from governance import Cancellation, CancelReason, CancelSource
from governance.prepared_statements import Select, fields_of
from turns.cancelling import cancel_requests
from turns.core.turns import ACTIVE_STATUSES
from turns.events import log
from turns.events.notifications import Notifications
from turns.exceptions import ConversationNotFound
from turns.models import Conversation, Process, Turn, Viewer
from turns.presence import disconnects
from turns.processes.process_registry import end_dead
from turns.storage.conversation_tree import parent_id_of, tree_of

IDLE_AT_ONCE = 100
LEFT = Cancellation(reason=CancelReason.DISCONNECT, source=CancelSource.POLICY)


def join(
    process: Process, conversation_id: UUID, *, key: str, user_id: Any, waits: bool = True
) -> bool:
    """Note that an open socket shows a conversation to its owner; False for anybody else, who attends to nothing."""
    with transaction.atomic():
        conversation = Conversation.objects.filter(pk=conversation_id, owner_id=user_id).first()
        if conversation is None:
            return False
        top = log.locked(_top_of(conversation), waits=waits)
        Viewer.objects.update_or_create(
            key=key, defaults={"process": process, "conversation": conversation, "since": Now()}
        )
        Conversation.objects.filter(pk=top.pk).update(unattended_since=None)
    return True


def leave(key: str, *, comes_back: bool = False, waits: bool = True) -> Notifications:
    """Forget an open socket. Return what is to be told where the policy wants that all ends at once."""
    viewer = Viewer.objects.select_related("conversation").filter(key=key).first()
    if viewer is None:
        return Notifications()
    with suppress(ConversationNotFound), transaction.atomic():
        top = log.locked(_top_of(viewer.conversation), waits=waits)
        viewer.delete()
        if _is_left(top):
            grace = disconnects.grace_period(disconnects.read(), is_clean_close=not comes_back)
            if grace == timedelta(0):
                return _cancel(top, waits=waits)
    return Notifications()


def reconcile(process: Process, present: Mapping[str, UUID]) -> Notifications:
    """Make the rows of a process those of its open sockets. A write may have been lost, or others thought it dead.

    This and what follows never wait for a conversation that somebody is writing: the next round comes.
    """
    rows = dict(_OF_PROCESS.all(process=process.pk))
    notifications = Notifications()
    for key in rows.keys() - present.keys():
        # How it went was lost: it may come back.
        notifications.add(leave(key, comes_back=True, waits=False))
    for key in present.keys() - rows.keys():
        owners = Conversation.objects.filter(pk=present[key]).values_list("owner_id", flat=True)
        for owner_id in owners:
            with suppress(ConversationNotFound):
                join(process, present[key], key=key, user_id=owner_id, waits=False)
    return notifications


def forget_lost() -> None:
    """Take away the viewers of processes that are gone: their grace begins now, when somebody can take them in again.

    Only for a process that serves sockets: while none does, nobody can come back.
    """
    end_dead()
    for conversation in {viewer.conversation for viewer in _LOST.all()}:
        with suppress(ConversationNotFound), transaction.atomic():
            top = log.locked(_top_of(conversation), waits=False)
            _lost().filter(conversation=conversation).delete()
            _is_left(top)


def _lost() -> "QuerySet[Viewer]":
    return Viewer.objects.filter(process__ended_at__isnull=False).select_related("conversation")


_LOST = Select(_lost)
_OF_PROCESS = Select(
    lambda process: (
        Viewer.objects.filter(process=process).order_by().values_list("key", "conversation_id")
    ),
    **fields_of(Viewer, "process"),
)


def end_overdue() -> Notifications:
    """Cancel the turns that nobody has come back to for longer than the policy allows; each is cancelled once."""
    notifications = Notifications()
    if not _FIRST_UNATTENDED.all():
        return notifications
    unattended = _unattended()
    _forget_idle(unattended)
    grace = disconnects.grace_period(disconnects.read())
    if grace is None:
        return notifications
    overdue = unattended.filter(unattended_since__lte=Now() - grace)
    for pk in list(overdue.values_list("pk", flat=True)):
        with suppress(ConversationNotFound), transaction.atomic():
            top = log.locked(pk, waits=False)
            if overdue.filter(pk=pk).exists():  # nobody has come back before the row was ours
                notifications.add(_cancel(top, waits=False))
    return notifications


def _unattended() -> "QuerySet[Conversation]":
    return Conversation.objects.filter(unattended_since__isnull=False)


_FIRST_UNATTENDED = Select(lambda: _unattended().order_by().values_list("pk")[:1])


def _forget_idle(unattended: QuerySet[Conversation]) -> None:
    """Where everything has come to its end meanwhile, nothing is left alone any more."""
    active = Turn.objects.filter(conversation=OuterRef("pk"), status__in=ACTIVE_STATUSES)
    idle = unattended.filter(~Exists(active)).values_list("pk", flat=True)
    for pk in list(idle[:IDLE_AT_ONCE]):
        with suppress(ConversationNotFound), transaction.atomic():
            top = log.locked(pk, waits=False)
            if not _active(tree_of(top.pk)).exists():
                Conversation.objects.filter(pk=pk).update(unattended_since=None)


def _active(family: Collection[UUID]) -> QuerySet[Turn]:
    return Turn.objects.filter(conversation__in=family, status__in=ACTIVE_STATUSES)


def _top_of(conversation: Conversation) -> UUID:
    pk, parent_id = conversation.pk, conversation.parent_id
    while parent_id is not None:
        pk = parent_id
        parent_id = parent_id_of(pk)
    return pk


def _is_left(top: Conversation) -> bool:
    """Note since when a family is unattended, if it has turns that are not over; return whether it is."""
    family = tree_of(top.pk)
    viewers = Viewer.objects.filter(conversation__in=family, process__ended_at=None)
    if viewers.exists() or not _active(family).exists():
        return False
    top.attended_number = top.last_number
    Conversation.objects.filter(pk=top.pk).update(
        unattended_since=Now(), attended_number=top.attended_number
    )
    return True


def _cancel(top: Conversation, *, waits: bool) -> Notifications:
    """Store that what was left behind ends. What was begun later, by a program, never had a viewer and goes on.

    All of it or nothing: raise `ConversationNotFound` if somebody has a part of it locked and we do not wait.
    """
    Conversation.objects.filter(pk=top.pk).update(unattended_since=None)
    family = tree_of(top.pk)
    left = [turn for turn in _active(family).order_by("number") if _had_viewer(turn, top)]
    conversation_ids = {turn.conversation_id for turn in left}
    conversations = [log.locked(pk, waits=waits) for pk in family if pk in conversation_ids]
    return cancel_requests.cancel_turns(left, LEFT, conversations=conversations)


def _had_viewer(turn: Turn, top: Conversation) -> bool:
    """Whether a turn, or the topmost turn that it works for, began before the last viewer left."""
    origin = turn
    while origin.conversation_id != top.pk and origin.parent is not None:
        origin = origin.parent
    return origin.conversation_id != top.pk or origin.number <= top.attended_number
