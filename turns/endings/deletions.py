"""Deletions of conversations by their owners: hidden at once, emptied when all that ran there has ended.

The row is the truth: whatever process comes first goes on where another one has died. Rows of turns, calls, cancels and
decisions stay as a record until `prune`.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Case, Model, QuerySet, UUIDField, Value, When
from django.db.models.functions import Coalesce
from django.utils.translation import gettext as _

from governance import Cancellation, CancelReason, CancelSource, recorder
from governance.db import run_in_db_thread, run_in_query_thread
from governance.db_clock import database_now
from governance.prepared_statements import Select
from governance.runtime import remove_workspace, workspace_of
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
from turns.storage import retention
from turns.storage.access import User, conversation_for, reload
from turns.storage.conversation_tree import tree_of

logger = logging.getLogger(__name__)

AT_ONCE = 100  # deleted conversations that one look goes through


@dataclass(frozen=True, slots=True)
class Deleted:
    """The conversations that nobody sees any more, the deleted one first, and what is to be told."""

    conversation_ids: list[UUID]
    notifications: Notifications


def hide(conversation_id: UUID, user: User, source: CancelSource) -> Deleted:
    """Hide a conversation and those of its sub-agents, and cancel what runs there, in one transaction (sync ORM).

    Raises:
        ConversationNotFound: there is none, or it is somebody else's.
        MessageRejected: a sub-agent works there, for another conversation.
    """
    conversation_for(user, conversation_id)
    by = reload(user)
    with transaction.atomic():
        conversation = _locked_for_deletion(conversation_id)
        name = by.get_username()[:150]
        cancellation = Cancellation(reason=CancelReason.USER, source=source, by=name)
        ids = tree_of(conversation_id)
        at = database_now()
        Conversation.objects.filter(pk__in=ids).update(deleted_at=at, edited_at=at)
        ConversationChange.objects.create(
            conversation_id=conversation_id, action="delete", by_id=by.pk, by_name=name
        )
        notifications = _cancel_all(conversation, cancellation, by_id=by.pk)
    return Deleted(conversation_ids=ids, notifications=notifications)


def _locked_for_deletion(conversation_id: UUID) -> Conversation:
    conversation = log.locked(conversation_id)
    if conversation.deleted_at is not None:
        raise ConversationNotFound
    if conversation.parent_id is not None:
        raise MessageRejected(
            _("A sub-agent works here. Delete the conversation that it works for.")
        )
    return conversation


def _cancel_all(
    conversation: Conversation, cancellation: Cancellation, *, by_id: Any
) -> Notifications:
    """Cancel the active turns of a locked conversation and all below them."""
    turns = list(_active([conversation.pk]))
    notifications = cancel_requests.cancel_turns(
        turns, cancellation, conversations=[conversation], by_id=by_id
    )
    for turn in turns:
        notifications.add(cancel_descendants(turn.pk, cancellation, waits=False))
    return notifications


async def finish(*, notify_owner: NotifyOwner) -> None:
    """Empty deleted conversations in which nothing runs any more; where something does, see that it ends."""
    without_contents = [pk for pk in await _due() if await _remove_contents(pk, notify_owner)]
    if without_contents:
        await _remove_files()
    for conversation_id in without_contents:
        await _mark_emptied(conversation_id)


async def _remove_contents(conversation_id: UUID, notify_owner: NotifyOwner) -> bool:
    """Remove all but the files; return whether it is gone."""
    try:
        notifications = await _cancel_rest(conversation_id)
        await notify(notifications, notify_owner=notify_owner)
        if not await _empty(conversation_id):
            return False
        await asyncio.to_thread(remove_workspace, str(conversation_id))
    except Exception:
        logger.exception(
            "A deleted conversation could not be emptied",
            extra={"conversation_id": str(conversation_id)},
        )
        return False
    return True


async def _empty(conversation_id: UUID) -> bool:
    """Delete the contents, unless something still runs; return whether they are gone."""
    ids = await _tree_at_rest(conversation_id)
    pieces = retention.empty_conversations(ids)
    while await _take(pieces):
        pass  # others have the database's thread between two of them
    return bool(ids)


_marked_for_removal = run_in_query_thread(attachments.marked_for_removal)


async def _remove_files() -> None:
    """Remove all files that are marked. One that the storage does not remove is tried again with the next look."""
    refusals = attachments.Refusals()
    last: UUID | None = None
    while found := await _marked_for_removal(behind=last):
        for last, path in found:
            if await in_storage_thread(refusals.remove, path):
                await run_in_db_thread(attachments.delete_removed)([last])
    refusals.log()


def _active(conversation_ids: list[UUID]) -> "QuerySet[Turn]":
    return Turn.objects.filter(
        conversation__in=conversation_ids, status__in=ACTIVE_STATUSES
    ).order_by("queued_at", "pk")


def follow_user(sender: object, *, instance: Model, **_facts: Any) -> None:
    """Delete what no key leads to of a user whose row is about to go: tool calls, decisions and workspaces."""
    conversations = Conversation.objects.filter(owner_id=instance.pk)
    _lock(conversations)
    turns = Turn.objects.filter(conversation__in=conversations)
    groups = [str(turn_id) for turn_id in turns.values_list("pk", flat=True)]
    for start in range(0, len(groups), AT_ONCE):
        recorder.delete_calls(groups[start : start + AT_ONCE], with_decisions=True)
    for conversation_id in conversations.filter(parent=None).values_list("pk", flat=True):
        transaction.on_commit(partial(remove_workspace, str(conversation_id)), robust=True)


def _lock(conversations: "QuerySet[Conversation]") -> None:
    """Lock them all, parents first as everywhere. Whoever is writing ends that first, and finds nothing afterwards."""
    level = conversations.filter(parent=None)
    while list(level.select_for_update().order_by("pk").values_list("pk", flat=True)):
        level = Conversation.objects.filter(parent__in=level)


async def remove_left_behind(turn_id: UUID, workspace: Path) -> None:
    """Remove what tools have written since their turn was deleted with its user; nothing of it runs any more."""
    root = workspace_of("")
    if root is not None and await run_in_query_thread(recovery.find_deleted)([turn_id]):
        scope, *_below = workspace.relative_to(root).parts
        await asyncio.to_thread(remove_workspace, scope)


@run_in_db_thread
def _due() -> list[UUID]:
    """Some deleted conversations. Some cannot be emptied yet, so each look begins with another one."""
    return [pk for (pk,) in _DUE.all(first=uuid4())[:AT_ONCE]]


def _all_due(first: Any, most: int = AT_ONCE) -> "QuerySet[Conversation, Any]":
    due = Conversation.objects.filter(deleted_at__isnull=False, emptied_at=None, parent=None)
    is_behind = Case(When(pk__gte=first, then=0), default=1)
    return due.order_by(is_behind, "pk").values_list("pk")[:most]


_DUE = Select(_all_due, first=UUIDField())


@run_in_db_thread
def _cancel_rest(conversation_id: UUID) -> Notifications:
    """Cancel what was left out, as somebody was writing there: nobody has waited for it."""
    _own, *below = tree_of(conversation_id)
    notifications = Notifications()
    parent = Cancellation(reason=CancelReason.PARENT)
    for turn in _active(below).exclude(cancel_requests__tool_id=""):
        with transaction.atomic():
            notifications.add(cancel_with_descendants(turn, parent))
    return notifications


@run_in_db_thread
def _tree_at_rest(conversation_id: UUID) -> list[UUID]:
    """Return a conversation and those below it; nothing if something still runs there."""
    ids = tree_of(conversation_id)
    return [] if _active(ids).exists() else ids


@run_in_db_thread
def _take(pieces: Iterator[None]) -> bool:
    """Delete the next piece of the contents; return whether there was one."""
    return next(pieces, False) is None


@run_in_db_thread
def _mark_emptied(conversation_id: UUID) -> None:
    """Note that nothing is left, unless the storage still has files of it: then the next look goes on."""
    ids = tree_of(conversation_id)
    if not attachments.has_marked(ids):
        at = database_now()
        # What began below it in that moment was not hidden with it.
        Conversation.objects.filter(pk__in=ids, emptied_at=None).update(
            emptied_at=at, deleted_at=Coalesce("deleted_at", Value(at))
        )
