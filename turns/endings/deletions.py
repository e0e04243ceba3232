"""Deletes conversations: hides them immediately, and empties them when everything in them has ended.

The row is authoritative, so any process can continue after a crash. Rows of turns, calls, cancels and decisions are
kept as a record until `prune`.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from django.db.models import Case, Model, QuerySet, Value, When
from django.db.models.functions import Coalesce
from django.utils.translation import gettext as _

from governance import Cancellation, CancelReason, CancelSource, activity, recorder
from governance.db import atomic, on_commit, run_in_db_thread, run_in_query_thread
from governance.db_clock import database_now
from governance.runtime import remove_workspace, workspace_of
from governance.threads import run_in_thread
from turns.attachments import rows as attachments
from turns.attachments.threads import in_storage_thread
from turns.cancelling import cancel_requests
from turns.cancelling.descendants import cancel_descendants, cancel_with_descendants
from turns.core.turns import ACTIVE_STATUSES
from turns.endings import recovery
from turns.events import log
from turns.events.notifications import Notifications, NotifyOwner, notify
from turns.exceptions import ConversationNotFound, MessageRejected
from turns.models import Conversation, ConversationChange, Turn
from turns.queueing.turn_tree import tree_of
from turns.storage import retention
from turns.storage.access import User, conversation_for, reload

logger = logging.getLogger(__name__)

BATCH_SIZE = 100  # conversations emptied per run, and turns whose calls are deleted together


@dataclass(frozen=True, slots=True)
class Hidden:
    """The hidden conversations, with the deleted one first, and the notifications to send."""

    conversation_ids: list[UUID]
    notifications: Notifications


def hide(conversation_id: UUID, user: User, source: CancelSource) -> Hidden:
    """Hide a conversation and those of its sub-agents, and cancel their active turns, in one transaction.

    Raises:
        ConversationNotFound: the conversation does not exist or belongs to another user.
        MessageRejected: a sub-agent works there for another conversation.
    """
    conversation_for(user, conversation_id)
    by = reload(user)
    return hide_as(conversation_id, by_id=by.pk, name=by.get_username()[:150], source=source)


def hide_as(conversation_id: UUID, *, by_id: Any, name: str, source: CancelSource) -> Hidden:
    """Hide a conversation on behalf of a person whose permission has been checked."""
    with atomic():
        conversation = _locked_for_deletion(conversation_id)
        cancellation = Cancellation(reason=CancelReason.USER, source=source, by=name)
        ids = tree_of(conversation_id)
        at = database_now()
        Conversation.objects.filter(pk__in=ids).update(deleted_at=at, edited_at=at)
        change = ConversationChange.objects.create(
            conversation_id=conversation_id, action="delete", by_id=by_id, by_name=name
        )
        activity.record(
            "deletion",
            "delete",
            source=change,
            subject=str(conversation_id),
            by_id=by_id,
            by_name=name,
            at=at,
        )
        notifications = _cancel_all(conversation, cancellation, by_id=by_id)
    return Hidden(conversation_ids=ids, notifications=notifications)


def _locked_for_deletion(conversation_id: UUID) -> Conversation:
    conversation = log.locked(conversation_id)
    if conversation.deleted_at is not None:
        raise ConversationNotFound
    if conversation.parent_id is not None:
        raise MessageRejected(
            _("This conversation belongs to a sub-agent. Delete the main conversation instead.")
        )
    return conversation


def _cancel_all(
    conversation: Conversation, cancellation: Cancellation, *, by_id: Any
) -> Notifications:
    """Cancel the active turns of a locked conversation and their descendants."""
    turns = list(_active([conversation.pk]))
    notifications = cancel_requests.cancel_turns(
        turns, cancellation, conversations=[conversation], by_id=by_id
    )
    for turn in turns:
        notifications.add(cancel_descendants(turn.pk, cancellation, waits=False))
    return notifications


async def finish(*, notify_owner: NotifyOwner) -> None:
    """Empty deleted conversations without active turns; cancel the active turns of the others."""
    emptied = [pk for pk in await _due() if await _remove_contents(pk, notify_owner)]
    if emptied:
        await _remove_files()
    for conversation_id in emptied:
        await _mark_emptied(conversation_id)


async def _remove_contents(conversation_id: UUID, notify_owner: NotifyOwner) -> bool:
    """Remove the contents of a conversation except its attachments. Return whether they are gone."""
    try:
        notifications = await _cancel_rest(conversation_id)
        await notify(notifications, notify_owner=notify_owner)
        if not await _empty(conversation_id):
            return False
        await run_in_thread(remove_workspace, str(conversation_id))
    except Exception:
        logger.exception(
            "A deleted conversation could not be emptied",
            extra={"conversation_id": str(conversation_id)},
        )
        return False
    return True


async def _empty(conversation_id: UUID) -> bool:
    """Delete the contents unless a turn is active; return whether they are gone."""
    ids = await _tree_at_rest(conversation_id)
    pieces = retention.empty_conversations(ids)
    while await _take(pieces):
        pass  # release the database thread between pieces
    return bool(ids)


_marked_for_removal = run_in_query_thread(attachments.marked_for_removal)


async def _remove_files() -> None:
    """Remove all files marked for deletion. A file that the storage fails to remove is retried in the next run."""
    refusals = attachments.Refusals()
    last: UUID | None = None
    while files := await _marked_for_removal(after=last):
        for last, path in files:
            if await in_storage_thread(refusals.remove, path):
                await run_in_db_thread(attachments.delete_removed)([last])
    refusals.log()


def _active(conversation_ids: list[UUID]) -> "QuerySet[Turn]":
    return Turn.objects.filter(
        conversation__in=conversation_ids, status__in=ACTIVE_STATUSES
    ).order_by("queued_at", "pk")


def follow_user(sender: object, *, instance: Model, **_facts: Any) -> None:
    """Delete tool calls, decisions and workspaces before a user's row is deleted, because they have no foreign key to
    that row.
    """
    conversations = Conversation.objects.filter(owner_id=instance.pk)
    _lock(conversations)
    turns = Turn.objects.filter(conversation__in=conversations)
    groups = [str(turn_id) for turn_id in turns.values_list("pk", flat=True)]
    for start in range(0, len(groups), BATCH_SIZE):
        recorder.delete_calls(groups[start : start + BATCH_SIZE], with_decisions=True)
    for conversation_id in conversations.filter(parent=None).values_list("pk", flat=True):
        on_commit(partial(remove_workspace, str(conversation_id)), robust=True)


def _lock(conversations: "QuerySet[Conversation]") -> None:
    """Lock the conversations, parents first, which is the order of all writers. Earlier writers have then finished, and
    later ones find no rows.
    """
    level = conversations.filter(parent=None)
    while list(level.select_for_update().order_by("pk").values_list("pk", flat=True)):
        level = Conversation.objects.filter(parent__in=level)


async def remove_left_behind(turn_id: UUID, workspace: Path) -> None:
    """Remove the files that tools wrote after their turn was deleted with its user. Call this after the turn's end."""
    root = workspace_of("")
    if root is not None and await run_in_query_thread(recovery.find_deleted)([turn_id]):
        scope, *_subfolders = workspace.relative_to(root).parts
        await run_in_thread(remove_workspace, scope)


@run_in_db_thread
def _due() -> list[UUID]:
    """Return some deleted conversations. Some cannot be emptied yet, so each run starts with another one."""
    due = Conversation.objects.filter(deleted_at__isnull=False, emptied_at=None, parent=None)
    start_anywhere = Case(When(pk__gte=uuid4(), then=0), default=1)
    return list(due.order_by(start_anywhere, "pk").values_list("pk", flat=True)[:BATCH_SIZE])


@run_in_db_thread
def _cancel_rest(conversation_id: UUID) -> Notifications:
    """Cancel the turns that were skipped because their conversations were locked."""
    _own, *descendant_ids = tree_of(conversation_id)
    notifications = Notifications()
    parent = Cancellation(reason=CancelReason.PARENT)
    for turn in _active(descendant_ids).exclude(cancel_requests__tool_id=""):
        with atomic():
            notifications.add(cancel_with_descendants(turn, parent))
    return notifications


@run_in_db_thread
def _tree_at_rest(conversation_id: UUID) -> list[UUID]:
    """Return a conversation and its descendants; empty if one of them is active."""
    ids = tree_of(conversation_id)
    return [] if _active(ids).exists() else ids


@run_in_db_thread
def _take(pieces: Iterator[None]) -> bool:
    """Delete the next part of the contents; return whether there was one."""
    return next(pieces, False) is None


@run_in_db_thread
def _mark_emptied(conversation_id: UUID) -> None:
    """Record that a conversation is empty, unless files remain in the storage; the next run then continues."""
    ids = tree_of(conversation_id)
    if not attachments.has_marked(ids):
        at = database_now()
        # Conversations of sub-agents that started concurrently were not hidden with this one.
        Conversation.objects.filter(pk__in=ids, emptied_at=None).update(
            emptied_at=at, deleted_at=Coalesce("deleted_at", Value(at))
        )
