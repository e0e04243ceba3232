"""The version of a history: processes may use their cached copy until it changes.

Changes to content that models have already read are recorded only in this module. The functions here use the
synchronous ORM.
"""

from collections.abc import Collection
from uuid import UUID

from django.db.models import F

from turns.core.prompt_changes import PromptChange
from turns.models import Conversation


def renew(conversation_ids: Collection[UUID], change: PromptChange | None = None) -> None:
    """Invalidate the cached histories of these conversations in every process.

    Pass the `change` if models will read something different from before; the next turn reports and counts it.

    Call this in the transaction of a change to an ended turn's history, with the conversations locked. Such a change
    edits or deletes a message or a result, or leaves the turn out. Appending a message needs no new version.
    """
    values = {"prompt_change": change} if change else {}
    Conversation.objects.filter(pk__in=conversation_ids).update(
        history_version=F("history_version") + 1, valid_position=0, **values
    )
