"""Web hosts that a person named or allowed in the conversation behind a turn (sync ORM)."""

import re

from governance import approval_store
from turns.core.turns import SAID_BY_PEOPLE
from turns.models import Turn


def is_known(host: str, *, turn: Turn) -> bool:
    """Whether the person has allowed `host` here, or has named it; for a sub-agent, in the conversation of its root."""
    conversation_id = (turn.root or turn).conversation_id
    scopes = {str(turn.conversation_id), str(conversation_id)}
    if approval_store.has_allowed(host, scopes=scopes):
        return True
    said = Turn.objects.filter(
        conversation_id=conversation_id,
        parent=None,
        source__in=SAID_BY_PEOPLE,
        replaced_by=None,
        user_message__icontains=host,
    )
    return any(names(text, host) for text in said.values_list("user_message", flat=True))


def names(text: str, host: str) -> bool:
    """Whether a text names this very host: not one above or below it, nor one whose name only contains it."""
    wanted = rf"(?<![\w.@-])(?:www\.)?{re.escape(host)}(?![\w-]|\.\w)"
    return re.search(wanted, text, re.IGNORECASE) is not None
