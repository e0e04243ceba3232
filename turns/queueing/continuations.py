"""Lets an agent go on after a turn that was interrupted, if a person wants that (H4; sync ORM). A new turn does it, once.

Nothing is run again by itself: chat models and tools have effects.
"""

from uuid import UUID

from django.db import transaction
from django.utils.translation import gettext as _

from turns.core.turns import TurnStatus
from turns.events import log
from turns.exceptions import CannotContinue
from turns.queueing import queue
from turns.storage.access import User, turn_for

SOURCE = "continue"


def continue_turn(turn_id: UUID, user: User) -> queue.Enqueued:
    """Queue the turn that goes on where this one was interrupted; asked again, the same one.

    Raises:
        TurnNotFound: there is no such turn, or it is somebody else's.
        CannotContinue: it was not interrupted, or something was said since.
        ConversationParked, TooManyMessages, QueueIsFull, AgentUnavailable, NotAllowed
    """
    turn = turn_for(user, turn_id)
    client_id = f"{SOURCE}:{turn.pk}"
    with transaction.atomic():
        conversation = log.locked(turn.conversation_id)
        turn.refresh_from_db(fields=["status"])
        is_known = conversation.turns.filter(client_id=client_id).exists()
        is_last = turn.number == conversation.last_number
        if not is_known and not (turn.status == TurnStatus.INTERRUPTED and is_last):
            raise CannotContinue
        return queue.enqueue(
            conversation.pk,
            text=_("Please continue where you were interrupted."),
            source=SOURCE,
            client_id=client_id,
            writer=user,
        )
