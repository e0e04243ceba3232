"""The version of a history: what processes keep of it counts until something in it has changed (sync ORM)."""

from collections.abc import Collection
from uuid import UUID

from django.db.models import F

from turns.models import Conversation


def renew(conversation_ids: Collection[UUID]) -> None:
    """Let every process read and check the whole histories again.

    Call it after a change to the history of a turn that is over, in the same transaction. The conversations are
    locked. Such a change edits or deletes a message or a result, or leaves the turn out. A message behind all others
    changes nothing that is kept.
    """
    Conversation.objects.filter(pk__in=conversation_ids).update(
        history_version=F("history_version") + 1, valid_position=0
    )
