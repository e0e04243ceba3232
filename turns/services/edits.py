"""Services that rename, pin or delete a conversation, choose its agent, or forget a person."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.utils.translation import gettext as _

from governance import CancelSource
from governance.db import run_in_db_thread
from governance.db_clock import database_now
from governance.sanitize import sanitize_line
from turns.agents.lookup import find_agent
from turns.endings import deletions
from turns.endings.forgetting import Requester, forget
from turns.events.notifications import notify
from turns.exceptions import MessageRejected
from turns.models import Conversation
from turns.processes.background import shielded
from turns.running import runtime
from turns.selectors import ConversationSummary, get_conversation
from turns.storage.access import User, conversation_for

TITLE_LENGTH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """The result of a deletion: the number of cancelled turns, and the conversations whose pages have changed."""

    cancelled: int
    conversation_ids: list[UUID]


async def edit_conversation(
    *,
    conversation_id: UUID,
    user: User,
    title: str | None = None,
    is_pinned: bool | None = None,
    agent: str | None = None,
) -> ConversationSummary:
    """Rename a conversation, pin it, or choose the agent that answers from now on. A value of None changes nothing.

    Raises:
        ConversationNotFound, MessageRejected, AgentUnavailable, NotAllowed
    """
    await _edit(conversation_id, user, title=title, is_pinned=is_pinned, agent=agent)
    return await get_conversation(conversation_id=conversation_id, user=user)


@shielded
async def delete_conversation(
    *, conversation_id: UUID, user: User, source: CancelSource
) -> Deleted:
    """Delete a conversation. Its running turns are cancelled, it disappears from every list, and its contents are deleted.

    Raises:
        ConversationNotFound, MessageRejected, NotAllowed
    """
    running = await runtime.ensure_started()
    deleted = await _hide(conversation_id, user, source)
    await notify(deleted.notifications, notify_owner=runtime.notify_owner)
    running.finish_deletions()
    return Deleted(
        cancelled=deleted.notifications.cancelled, conversation_ids=deleted.conversation_ids
    )


@shielded
async def forget_user(*, user_id: Any, by: AbstractBaseUser, why: str) -> None:
    """Forget a person: remove their content, and replace their name in the remaining records.

    Raises: NotAllowed: `by` may not forget this person.
    """
    running = await runtime.ensure_started()
    notifications = await _forget(user_id, Requester(user=by, why=why))
    await notify(notifications, notify_owner=runtime.notify_owner)
    running.finish_deletions()


_hide = run_in_db_thread(deletions.hide)
_forget = run_in_db_thread(forget)


@run_in_db_thread
def _edit(
    conversation_id: UUID,
    user: User,
    *,
    title: str | None,
    is_pinned: bool | None,
    agent: str | None,
) -> None:
    row = conversation_for(user, conversation_id)
    values: dict[str, object] = {}
    if title is not None:
        values["title"] = sanitize_line(title, limit=TITLE_LENGTH)
        if not values["title"]:
            raise MessageRejected(_("A title must not be empty."))
    if is_pinned is not None and is_pinned != (row.pinned_at is not None):
        values["pinned_at"] = database_now() if is_pinned else None
    if agent is not None:
        if row.parent_id is not None:
            raise MessageRejected(
                _("This conversation belongs to a sub-agent. You cannot change its agent.")
            )
        values["agent"] = find_agent(agent, user_id=row.owner_id).name
    if values:
        Conversation.objects.filter(pk=row.pk).update(**values, edited_at=database_now())
