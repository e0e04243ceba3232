"""Which conversations belong together: those in which sub-agents work for another one, directly or not (sync ORM)."""

from uuid import UUID

from turns.exceptions import ConversationNotFound
from turns.models import Conversation


def tree_of(top_id: UUID) -> list[UUID]:
    family: list[UUID] = []
    level = [top_id]
    while level:
        family += level
        children = Conversation.objects.filter(parent__in=level).exclude(pk__in=family)
        level = list(children.values_list("pk", flat=True))
    return family


def parent_id_of(conversation_id: UUID) -> UUID | None:
    """Return the conversation that this one works for, if any. Raise `ConversationNotFound`."""
    found = Conversation.objects.filter(pk=conversation_id).values_list("parent_id").first()
    if found is None:
        raise ConversationNotFound
    return found[0]
