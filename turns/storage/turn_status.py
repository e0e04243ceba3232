"""The final status of a turn: one function writes it, whoever ends the turn (invariant 4; sync ORM)."""

from datetime import datetime

from django.db.models import CharField, F, IntegerField

from governance import shortened
from governance.prepared_statements import Update, fields_of
from turns.core.events import TurnAbort, TurnEnd, TurnError, TurnEvent
from turns.core.turns import TurnEnding, TurnStatus, check_transition
from turns.events import log_lines
from turns.models import Conversation, Turn

_WRITTEN = (
    "status",
    "ended_at",
    "duration_ms",
    "steps",
    "usage",
    "error_code",
    "error_message",
    "ended_by_reason",
    "ended_by_source",
    "ended_by_name",
)
END = Update(
    lambda pk, before, owned, **final: (
        Turn.objects.filter(pk=pk, status=before, epoch=owned),
        {"epoch": F("epoch") + 1, **final},
    ),
    **fields_of(Turn, "pk", *_WRITTEN),
    before=CharField(),
    owned=IntegerField(),
)


def write_final(
    conversation: Conversation,
    turn: Turn,
    ending: TurnEnding,
    *,
    at: datetime,
    descendants: int = 0,
) -> list[TurnEvent]:
    """Give a turn of a locked conversation its final status, and return its last events. Empty if it has changed since.

    Steps and usage are stored as they are on `turn`. The epoch grows, so later writes of its runner are refused.
    `descendants` is how many turns were asked to stop with it.
    """
    check_transition(TurnStatus(turn.status), ending.status)
    cause = ending.cancellation
    duration_ms = max(round((at - (turn.started_at or at)).total_seconds() * 1000), 0)
    if not END.run(
        pk=turn.pk,
        before=turn.status,
        owned=turn.epoch,
        status=ending.status.value,
        ended_at=at,
        duration_ms=duration_ms,
        steps=turn.steps,
        usage=turn.usage,
        error_code=ending.error_code,
        error_message=shortened(ending.error_message, limit=500),
        ended_by_reason=cause.reason.value if cause else "",
        ended_by_source=cause.source.value if cause else "",
        ended_by_name=cause.by if cause else "",
    ):
        return []
    turn.status = ending.status
    log_lines.turn_ended(
        conversation,
        turn,
        status=ending.status,
        duration_ms=duration_ms,
        reason=cause.reason if cause else "",
        error_code=ending.error_code,
    )
    return _events(turn, ending, duration_ms=duration_ms, descendants=descendants)


def _events(
    turn: Turn, ending: TurnEnding, *, duration_ms: int, descendants: int
) -> list[TurnEvent]:
    events: list[TurnEvent] = []
    if ending.error_code:
        events.append(TurnError(code=ending.error_code, message=ending.error_message))
    if ending.cancellation is not None:
        events.append(TurnAbort.of(ending.cancellation, descendants=descendants))
    end = TurnEnd(
        status=ending.status.value,
        duration_ms=duration_ms,
        usage=turn.usage,
        error_code=ending.error_code or None,
    )
    return [*events, end]
