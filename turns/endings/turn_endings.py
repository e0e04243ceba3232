"""Gives a turn its terminal status, once, with everything that belongs to it in one transaction (sync ORM).

Every way to end takes this path: the answer, a cancel, a limit, an error, the death of the owner (invariant 4).
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F

from governance import Cancellation, CancelReason, ToolOutcome, checkpoint
from governance.db_clock import database_now
from governance.selectors import CallRow
from turns.calls.serializers import result_events
from turns.cancelling import cancel_requests, descendants
from turns.core.events import TurnAbort, TurnEnd, TurnError, TurnEvent
from turns.core.repairs import Cause, Repair, RepairKind
from turns.core.turns import LIVE_STATUSES, TurnEnding, TurnStatus, check_transition, ending_of
from turns.endings.open_calls import close_calls
from turns.events import acknowledgements, log, log_lines
from turns.events.notifications import Notifications
from turns.history import messages
from turns.history.histories import record_repairs
from turns.models import Conversation, Turn
from turns.queueing.parking import park_if_deadly


def end_turn(
    turn_id: UUID,
    ending: TurnEnding,
    *,
    epoch: int | None = None,
    steps: int | None = None,
    usage: dict[str, int] | None = None,
    outcomes: Mapping[str, ToolOutcome] | None = None,
    waits: bool = True,
) -> Notifications | None:
    """End a live turn: its calls, its message, its requests, its events. None if it was not live or not ours any more.

    The epoch grows, so later writes of its runner are refused. A completed turn stops only the children that it waits
    for; any other ending stops all its descendants (C10). `outcomes` holds the outcomes of its calls, by id, that the
    owner knows and may not have stored yet. Without `waits` a locked conversation is skipped: an owner that hangs in the
    middle of a write must not block the process that finds it.
    """
    with transaction.atomic():
        conversation = log.locked_of(turn_id, waits=waits)
        at = database_now()
        live = Turn.objects.filter(pk=turn_id, status__in=LIVE_STATUSES)
        row = live.filter(epoch=epoch).first() if epoch is not None else live.first()
        if conversation is None or row is None:
            return None
        ending = _apply_pending_cancel(row, ending)
        check_transition(TurnStatus(row.status), ending.status)
        row.usage = row.usage if usage is None else usage
        closed = close_calls(row, ending, known=outcomes or {})
        events = [event for call in closed for event in result_events(call)]
        events += messages.close_unfinished(row)
        events += _record_repairs(row, closed, ending, at=at)
        cascade = _end_descendants(row, ending)
        events += park_if_deadly(conversation, row, at=at) if _is_deadly(ending) else []
        events += _final_events(row, ending, at=at)
        _write(row, ending, at=at, steps=row.steps if steps is None else steps)
        _log(conversation, row, ending, at=at)
        of_calls = {call.call_id: call.status for call in closed}
        cancel_requests.settle(row.pk, outcome=ending.status.value, at=at, of_calls=of_calls)
        checkpoint("in_end")
        told = log.append(conversation, row.pk, *events, at=at)
        batches = [(conversation.pk, told), *cascade.batches]
        answers = acknowledgements.after(row) if ending.cancellation is not None else []
        return Notifications(batches=batches, owner_ids=cascade.owner_ids, answers=answers)


def _end_descendants(turn: Turn, ending: TurnEnding) -> Notifications:
    if ending.status is TurnStatus.COMPLETED:
        return descendants.cancel_waited_for(turn.pk)
    cause = ending.cancellation or Cancellation(reason=CancelReason.ERROR)
    return descendants.cancel_descendants(turn.pk, cause)


def _apply_pending_cancel(turn: Turn, ending: TurnEnding) -> TurnEnding:
    """Return the ending that was asked for, if that was stored before the turn came to an end by itself (C1, 30).

    One that the database took nothing from any more came to its end so, too: its owner has ended all that ran.
    """
    ended_by_itself = (
        ending.status in (TurnStatus.COMPLETED, TurnStatus.FAILED) or ending.error_code
    )
    if turn.status != TurnStatus.CANCELLING or not ended_by_itself:
        return ending
    wish = cancel_requests.stored(turn)
    return ending if wish is None else ending_of(wish)


def _record_repairs(
    turn: Turn, closed: list[CallRow], ending: TurnEnding, *, at: datetime
) -> list[TurnEvent]:
    """What a crash left open was answered here: that is a repair like those of a history (H3)."""
    unanswered = [call for call in closed if call.is_synthetic]
    if not unanswered or not ending.has_lost_owner:
        return []
    repairs = [
        Repair(
            tool_id=call.call_id,
            kind=RepairKind.MISSING_RESULT,
            cause=Cause.of_ending(ending),
            turn_id=str(turn.pk),
            text=call.result,
        )
        for call in unanswered
    ]
    return [record_repairs(turn.conversation_id, repairs, found_when="recovery", at=at)]


def _is_deadly(ending: TurnEnding) -> bool:
    """Whether the process was lost with the turn; a database that does not take something is no process that dies."""
    return ending.has_lost_owner and not ending.error_code


def _final_events(turn: Turn, ending: TurnEnding, *, at: datetime) -> list[TurnEvent]:
    events: list[TurnEvent] = []
    if ending.error_code:
        events.append(TurnError(code=ending.error_code, message=ending.error_message))
    if ending.cancellation is not None:
        events.append(TurnAbort.of(ending.cancellation, descendants=descendants.reached(turn.pk)))
    end = TurnEnd(
        status=ending.status.value,
        duration_ms=_duration_ms(turn, at=at),
        usage=turn.usage,
        error_code=ending.error_code or None,
    )
    return [*events, end]


def _write(turn: Turn, ending: TurnEnding, *, at: datetime, steps: int) -> None:
    cause = ending.cancellation
    fields: dict[str, Any] = {
        "status": ending.status.value,
        "epoch": F("epoch") + 1,
        "ended_at": at,
        "duration_ms": _duration_ms(turn, at=at),
        "steps": steps,
        "usage": turn.usage,
        "error_code": ending.error_code,
        "error_message": ending.error_message[:500],
        "ended_by_reason": cause.reason.value if cause else "",
        "ended_by_source": cause.source.value if cause else "",
        "ended_by_name": cause.by if cause else "",
    }
    Turn.objects.filter(pk=turn.pk).update(**fields)


def _log(conversation: Conversation, turn: Turn, ending: TurnEnding, *, at: datetime) -> None:
    log_lines.turn_ended(
        conversation,
        turn,
        status=ending.status,
        duration_ms=_duration_ms(turn, at=at),
        reason=ending.cancellation.reason if ending.cancellation else "",
        error_code=ending.error_code,
    )


def _duration_ms(turn: Turn, *, at: datetime) -> int:
    started_at = turn.started_at or at
    return max(round((at - started_at).total_seconds() * 1000), 0)
