"""What owners do with their conversations as a whole: rename, pin, choose who answers, delete."""

from dataclasses import dataclass
from uuid import UUID

from django.utils.translation import gettext as _

from governance import CancelSource
from governance.db import run_in_db_thread
from governance.db_clock import database_now
from governance.sanitize import sanitize_line
from turns.agents.lookup import find_agent
from turns.endings import deletions
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
    """A deleted conversation: how many turns were asked to stop, and whose pages show what is gone."""

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
    """Rename a conversation, pin it, or choose who answers from now on; what is None stays.

    Raises:
        ConversationNotFound, MessageRejected, AgentUnavailable, NotAllowed
    """
    await _edit(conversation_id, user, title=title, is_pinned=is_pinned, agent=agent)
    return await get_conversation(conversation_id=conversation_id, user=user)


@shielded
async def delete_conversation(
    *, conversation_id: UUID, user: User, source: CancelSource
) -> Deleted:
    """Delete a conversation: what runs there is cancelled, nobody sees it any more, and its contents go.

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


_hide = run_in_db_thread(deletions.hide)


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
            raise MessageRejected(_("A title has at least one character."))
    if is_pinned is not None and is_pinned != (row.pinned_at is not None):
        values["pinned_at"] = database_now() if is_pinned else None
    if agent is not None:
        if row.parent_id is not None:
            raise MessageRejected(_("A sub-agent works here. Its agent stays."))
        values["agent"] = find_agent(agent).name
    if values:
        Conversation.objects.filter(pk=row.pk).update(**values, edited_at=database_now())
