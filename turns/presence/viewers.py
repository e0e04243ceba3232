"""The viewers of conversations, and the turns without viewers (C11).

A conversation and those of its sub-agents are one family; a viewer of one is a viewer of all. The root's row is locked
first, so that a returning viewer and the end of the grace period cannot overlap. `PresenceTracker` keeps the viewers of
this process; the functions below read and write the rows of all processes, with the synchronous ORM.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db.models import Exists, OuterRef, QuerySet
from django.db.models.functions import Now

from governance import Cancellation, CancelReason, CancelSource
from governance.db import atomic, run_in_db_thread
from turns.cancelling import cancel_requests
from turns.core.turns import ACTIVE_STATUSES
from turns.events import log
from turns.events.notifications import Notifications, NotifyOwner, notify
from turns.exceptions import ConversationNotFound
from turns.models import Conversation, Process, Turn, Viewer
from turns.presence import disconnects
from turns.queueing.turn_tree import parent_id_of, tree_of

logger = logging.getLogger(__name__)

IDLE_BATCH = 100
DISCONNECTED = Cancellation(reason=CancelReason.DISCONNECT, source=CancelSource.POLICY)
SWEEP_INTERVAL = 2.0  # seconds


@dataclass(frozen=True, slots=True)
class Presence:
    """An open socket on which the owner views a conversation."""

    key: str
    conversation_id: UUID


class PresenceTracker:
    """Stores the open sockets of one process as rows, so that every process knows the viewers in all tabs.

    `notify_owner` notifies the process that owns a turn.
    """

    def __init__(self, process: Process, *, notify_owner: NotifyOwner) -> None:
        self._process = process
        self._notify_owner = notify_owner
        self._present: dict[str, UUID] = {}
        self._lock = asyncio.Lock()  # held so that the list in memory and the rows change together
        self._swept_at = float("-inf")

    def move(self, process: Process) -> None:
        """Store the viewers under this process's new row; the next sweep corrects the rows."""
        self._process = process
        self._swept_at = float("-inf")

    async def join(self, conversation_id: UUID, *, user_id: object) -> Presence | None:
        """Record that a socket shows a conversation; return None if the user is not its owner."""
        presence = Presence(key=uuid4().hex, conversation_id=conversation_id)
        async with self._lock:
            is_owner = await _join(
                self._process, conversation_id, key=presence.key, user_id=user_id
            )
            if is_owner:
                self._present[presence.key] = conversation_id
        return presence if is_owner else None

    async def leave(self, presence: Presence, *, comes_back: bool = False) -> None:
        """Record that a socket was closed, and whether it will reconnect; the next sweep makes up for failed writes."""
        async with self._lock:
            self._present.pop(presence.key, None)
            try:
                notifications = await _leave(presence.key, comes_back=comes_back)
            except Exception:
                facts = {"conversation_id": str(presence.conversation_id)}
                logger.exception("A viewer who has left is still on the list", extra=facts)
                return
        await notify(notifications, notify_owner=self._notify_owner)

    async def poll(self) -> None:
        """Sweep if `SWEEP_INTERVAL` seconds have passed since the last sweep."""
        if time.monotonic() - self._swept_at >= SWEEP_INTERVAL:
            await self.sweep()

    async def sweep(self) -> None:
        """Correct the rows, and cancel turns that had no viewers for too long."""
        self._swept_at = time.monotonic()
        async with self._lock:
            notifications = await _sweep(self._process, dict(self._present))
        await notify(notifications, notify_owner=self._notify_owner)


def join(
    process: Process, conversation_id: UUID, *, key: str, user_id: Any, waits: bool = True
) -> bool:
    """Record that an open socket shows a conversation to its owner; return False for any other user."""
    with atomic():
        conversation = Conversation.objects.filter(pk=conversation_id, owner_id=user_id).first()
        if conversation is None:
            return False
        root = log.locked(_root_id_of(conversation), waits=waits)
        Viewer.objects.update_or_create(
            key=key, defaults={"process": process, "conversation": conversation, "since": Now()}
        )
        Conversation.objects.filter(pk=root.pk).update(unattended_since=None)
    return True


def leave(key: str, *, comes_back: bool = False, waits: bool = True) -> Notifications:
    """Remove an open socket. Return the notifications if the policy cancels turns immediately."""
    viewer = Viewer.objects.select_related("conversation").filter(key=key).first()
    if viewer is None:
        return Notifications()
    with suppress(ConversationNotFound), atomic():
        root = log.locked(_root_id_of(viewer.conversation), waits=waits)
        viewer.delete()
        if _is_unattended(root):
            grace = disconnects.grace_period(disconnects.read(), is_clean_close=not comes_back)
            if grace == timedelta(0):
                return _cancel(root, waits=waits)
    return Notifications()


def reconcile(process: Process, present: Mapping[str, UUID]) -> Notifications:
    """Make the rows of a process match its open sockets, after lost writes or if other processes considered it dead.

    This and the following functions skip locked conversations, which the next sweep handles.
    """
    pairs = Viewer.objects.filter(process=process).values_list("key", "conversation_id")
    rows = dict(pairs)
    notifications = Notifications()
    for key in rows.keys() - present.keys():
        # Assume that it may reconnect, because the kind of close was lost.
        notifications.add(leave(key, comes_back=True, waits=False))
    for key in present.keys() - rows.keys():
        owners = Conversation.objects.filter(pk=present[key]).values_list("owner_id", flat=True)
        for owner_id in owners:
            with suppress(ConversationNotFound):
                join(process, present[key], key=key, user_id=owner_id, waits=False)
    return notifications


def forget_lost() -> None:
    """Remove the viewers of dead processes. The grace period begins now, because they can reconnect from now on.

    Do this only if a process serves sockets, because viewers cannot reconnect otherwise.
    """
    for conversation in {viewer.conversation for viewer in _lost_viewers()}:
        with suppress(ConversationNotFound), atomic():
            root = log.locked(_root_id_of(conversation), waits=False)
            _lost_viewers().filter(conversation=conversation).delete()
            _is_unattended(root)


def _lost_viewers() -> "QuerySet[Viewer]":
    return Viewer.objects.filter(process__ended_at__isnull=False).select_related("conversation")


def end_overdue() -> Notifications:
    """Cancel the turns that had no viewers for longer than the policy allows. Each turn is cancelled only once."""
    notifications = Notifications()
    unattended = Conversation.objects.filter(unattended_since__isnull=False)
    if not unattended.exists():
        return notifications
    _forget_idle(unattended)
    grace = disconnects.grace_period(disconnects.read())
    if grace is None:
        return notifications
    overdue = unattended.filter(unattended_since__lte=Now() - grace)
    for pk in list(overdue.values_list("pk", flat=True)):
        with suppress(ConversationNotFound), atomic():
            root = log.locked(pk, waits=False)
            if overdue.filter(pk=pk).exists():  # no viewer returned before the lock was acquired
                notifications.add(_cancel(root, waits=False))
    return notifications


def _forget_idle(unattended: QuerySet[Conversation]) -> None:
    """Clear `unattended_since` of families that no longer have active turns."""
    active = Turn.objects.filter(conversation=OuterRef("pk"), status__in=ACTIVE_STATUSES)
    idle = unattended.filter(~Exists(active)).values_list("pk", flat=True)
    for pk in list(idle[:IDLE_BATCH]):
        with suppress(ConversationNotFound), atomic():
            root = log.locked(pk, waits=False)
            if not _active(tree_of(root.pk)).exists():
                Conversation.objects.filter(pk=pk).update(unattended_since=None)


def _active(family: Collection[UUID]) -> QuerySet[Turn]:
    return Turn.objects.filter(conversation__in=family, status__in=ACTIVE_STATUSES)


def _root_id_of(conversation: Conversation) -> UUID:
    pk, parent_id = conversation.pk, conversation.parent_id
    while parent_id is not None:
        pk = parent_id
        parent_id = parent_id_of(pk)
    return pk


def _is_unattended(root: Conversation) -> bool:
    """Return whether a family has active turns but no viewers. If so, record that this is the case from now on."""
    family = tree_of(root.pk)
    viewers = Viewer.objects.filter(conversation__in=family, process__ended_at=None)
    if viewers.exists() or not _active(family).exists():
        return False
    root.attended_number = root.last_number
    Conversation.objects.filter(pk=root.pk).update(
        unattended_since=Now(), attended_number=root.attended_number
    )
    return True


def _cancel(root: Conversation, *, waits: bool) -> Notifications:
    """Store cancels for the turns without viewers. Turns started later by a program never had viewers, and continue.

    Either all of them are stored or none: raise `ConversationNotFound` if a conversation is locked and `waits` is
    False.
    """
    Conversation.objects.filter(pk=root.pk).update(unattended_since=None)
    family = tree_of(root.pk)
    turns = [turn for turn in _active(family).order_by("number") if _had_viewer(turn, root)]
    conversation_ids = {turn.conversation_id for turn in turns}
    conversations = [log.locked(pk, waits=waits) for pk in family if pk in conversation_ids]
    return cancel_requests.cancel_turns(turns, DISCONNECTED, conversations=conversations)


def _had_viewer(turn: Turn, root: Conversation) -> bool:
    """Return whether a turn, or its root turn, was started before the last viewer left."""
    origin = turn
    while origin.conversation_id != root.pk and origin.parent is not None:
        origin = origin.parent
    return origin.conversation_id != root.pk or origin.number <= root.attended_number


_join = run_in_db_thread(join)
_leave = run_in_db_thread(leave)


@run_in_db_thread
def _sweep(process: Process, present: dict[str, UUID]) -> Notifications:
    notifications = Notifications()
    if process.role != "runner":  # a runner serves no sockets
        notifications.add(reconcile(process, present))
        forget_lost()
    notifications.add(end_overdue())
    return notifications
