"""Takes turns out of the history, because a message was edited and sent again (H1; sync ORM).

They stay, with their events, calls and decisions. No chat model reads them any more; what their tools have done stays done.
"""

from uuid import UUID

from django.db.models import Q

from governance import approval_store
from turns.core.turns import ACTIVE_STATUSES, SAID_BY_PEOPLE
from turns.exceptions import AlreadyReplaced, CannotReplace, ConversationBusy
from turns.history import reports
from turns.models import Conversation, Turn
from turns.storage import history_version
from turns.storage.conversation_tree import tree_of


def replace(conversation: Conversation, turn_id: UUID, *, by: UUID) -> Turn:
    """Replace a turn of a locked conversation, and all behind it, by the turn that gets the id `by`. Return the first one.

    What a person has allowed for the whole conversation since then lapses.

    Raises:
        CannotReplace: no person has said it, or it was said in another conversation.
        AlreadyReplaced: another message has taken its place.
        ConversationBusy: a turn waits or runs here, or for this conversation.
    """
    first = _replaceable(conversation, turn_id)
    replaced = Turn.objects.filter(conversation=conversation, number__gte=first.number)
    replaced.filter(replaced_by=None).update(replaced_by=by)
    reports.give_back(Turn.objects.filter(replaced_by=by))
    scopes = [str(pk) for pk in tree_of(conversation.pk)]
    approval_store.revoke_remembered(scopes=scopes, since=first.queued_at)
    history_version.renew([conversation.pk])
    return first


def _replaceable(conversation: Conversation, turn_id: UUID) -> Turn:
    turn = Turn.objects.filter(conversation=conversation, pk=turn_id).first()
    if turn is None or turn.source not in SAID_BY_PEOPLE or turn.parent_id is not None:
        raise CannotReplace
    if turn.replaced_by_id is not None:
        raise AlreadyReplaced
    here = Q(conversation=conversation) | Q(root__conversation=conversation)
    if Turn.objects.filter(here, status__in=ACTIVE_STATUSES).exists():
        raise ConversationBusy
    return turn
