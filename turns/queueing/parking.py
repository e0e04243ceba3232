"""Parks a conversation whose turns keep ending with their process, until a person resumes it (H4).

The conversation's content may crash the process. Without parking, each new attempt would also end other users' turns.
The functions here use the synchronous ORM.
"""

import logging
from datetime import datetime, timedelta
from uuid import UUID

from governance.db import atomic
from turns.conf import app_settings
from turns.core.events import ConversationParked, ConversationResumed, TurnEvent
from turns.core.turns import DEADLY, TurnStatus
from turns.events import log
from turns.models import Conversation, Turn
from turns.queueing.dispatchers import get_dispatcher
from turns.storage.access import User, conversation_for, reload

logger = logging.getLogger(__name__)

OWNER_DEATHS = "owner_deaths"
_LATEST = 50  # maximum number of turns examined


def park_if_deadly(conversation: Conversation, turn: Turn, *, at: datetime) -> list[TurnEvent]:
    """Park a locked conversation if too many of its turns, including `turn`, recently lost their owners."""
    limit = app_settings.PARK_AFTER
    if limit is None or conversation.parked_at is not None:
        return []
    lost_before = Turn.objects.filter(
        conversation=conversation,
        number__gt=turn.number - _LATEST,
        number__lt=turn.number,
        status=TurnStatus.INTERRUPTED,
        ended_by_reason="",
        error_code__in=DEADLY,
        ended_at__gt=at - timedelta(seconds=app_settings.PARK_WINDOW),
    )
    if lost_before.count() + 1 < limit:
        return []
    conversation.parked_at, conversation.parked_reason = at, OWNER_DEATHS
    conversation.save(update_fields=["parked_at", "parked_reason"])
    logger.error("A conversation was parked", extra={"conversation_id": str(conversation.pk)})
    return [ConversationParked(reason=OWNER_DEATHS)]


def resume(conversation_id: UUID, user: User) -> list[log.WireEvent] | None:
    """Resume a parked conversation, for its owner and for staff who may cancel. Return None if it is not parked.

    Raises: ConversationNotFound, NotAllowed
    """
    conversation_for(user, conversation_id, permission="turns.cancel_any")
    by = reload(user).get_username()[:150]
    with atomic():
        conversation = log.locked(conversation_id)
        if conversation.parked_at is None:
            return None
        conversation.parked_at, conversation.parked_reason = None, ""
        conversation.save(update_fields=["parked_at", "parked_reason"])
        turns = conversation.turns.order_by("number")
        waiting = turns.filter(status=TurnStatus.QUEUED).first()
        if waiting is not None:
            get_dispatcher().dispatch(conversation.pk, waiting.pk)
        latest = waiting or turns.last()
        logger.warning(
            "A parked conversation goes on",
            extra={"conversation_id": str(conversation.pk), "by": by},
        )
        if latest is None:
            return []
        return log.append(conversation, latest.pk, ConversationResumed(by=by))
