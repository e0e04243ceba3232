"""Gives a turn its terminal status, once, with everything that belongs to it in one transaction (sync ORM).

Every ending takes this path (invariant 4): the answer, a cancel, a limit, an error, the owner's death.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from governance import Cancellation, CancelReason, ToolOutcome, checkpoint
from governance.selectors import CallRow
from governance.transactions import atomic
from turns.calls.serializers import result_events
from turns.cancelling import cancel_requests, descendants
from turns.core.events import TurnEvent
from turns.core.exceptions import Fenced
from turns.core.ports import Answer
from turns.core.repairs import Cause, Repair, RepairKind
from turns.core.turns import BY_PEOPLE, TurnEnding, TurnStatus, ending_of
from turns.endings.open_calls import close_calls
from turns.events import acknowledgements, log
from turns.events.notifications import Notifications
from turns.history import messages
from turns.history.histories import record_repairs
from turns.models import CancelRequest, Turn
from turns.queueing.parking import park_if_deadly
from turns.storage import turn_status
from turns.storage.turn_lock import lock_ending_turn


def end_turn(
    turn_id: UUID,
    ending: TurnEnding,
    *,
    epoch: int | None = None,
    steps: int | None = None,
    usage: dict[str, int] | None = None,
    outcomes: Mapping[str, ToolOutcome] | None = None,
    answer: Answer | None = None,
    waits: bool = True,
) -> Notifications | None:
    """End a live turn: its calls, its message, its requests, its events. None if it was not live or not ours any more.

    The epoch grows, so later writes of its runner are refused. A completed turn stops only the children that it waits
    for; any other ending stops all its descendants (C10). `outcomes` holds what the owner knows of its calls, by id,
    and may not have stored yet. `answer` is what it said last, unless that is stored. Without `waits` a locked
    conversation is skipped. An owner that hangs in the middle of a write must not block the process that finds it.
    """
    with atomic():
        row = lock_ending_turn(turn_id, epoch=epoch, waits=waits)
        if row is None:
            return None
        conversation, at = row.conversation, row.read_at
        requests = cancel_requests.open_of(turn_id) if row.has_requests else []
        ending = _apply_pending_cancel(row, ending, requests)
        row.steps = row.steps if steps is None else steps
        row.usage = row.usage if usage is None else usage
        closed = close_calls(row, ending, known=outcomes or {}) if row.has_open_calls else []
        events = [event for call in closed for event in result_events(call)]
        events += _close_message(row, answer, ending, at=at)
        events += _record_repairs(row, closed, ending, at=at)
        below, asked = _end_descendants(row, ending)
        events += park_if_deadly(conversation, row, at=at) if _is_deadly(ending) else []
        final = turn_status.write_final(conversation, row, ending, at=at, descendants=asked)
        if not final:
            raise Fenced(f"turn {turn_id} has changed although its conversation is locked")
        of_calls = {call.call_id: call.status for call in closed}
        cancel_requests.settle(requests, outcome=ending.status.value, at=at, of_calls=of_calls)
        checkpoint("in_end")
        told = log.append(conversation, row.pk, *events, *final, at=at)
        answers = acknowledgements.due_after(row) if ending.cancellation is not None else []
        return Notifications([(conversation.pk, told), *below.batches], below.requests, answers)


def _close_message(
    turn: Any, answer: Answer | None, ending: TurnEnding, *, at: datetime
) -> list[TurnEvent]:
    """Save the last answer, or close the message that was being streamed."""
    is_begun = turn.has_unfinished_message
    if answer is None:
        return messages.close_unfinished(turn, at=at) if is_begun else []
    # A runner that was given up may have stored it meanwhile. One that has completed its turn leaves it to the ending.
    is_given_up = ending.status is not TurnStatus.COMPLETED
    if is_given_up and not is_begun and messages.has(turn, step=answer.step):
        return []
    return messages.save(turn, answer, is_begun=is_begun, at=at)


def _end_descendants(turn: Any, ending: TurnEnding) -> tuple[Notifications, int]:
    """Stop what goes on below. Return what is to be told of that, and how many a cancel has reached."""
    if not turn.has_children:
        return Notifications(), 0
    if ending.status is TurnStatus.COMPLETED:
        return descendants.cancel_waited_for(turn.pk), 0
    found = descendants.below(turn.pk)
    cause = ending.cancellation or Cancellation(reason=CancelReason.ERROR)
    notifications = descendants.cancel_all(found, cause)
    return notifications, descendants.reached(found) if ending.cancellation else 0


def _apply_pending_cancel(
    turn: Turn, ending: TurnEnding, requests: Iterable[CancelRequest]
) -> TurnEnding:
    """Return the ending that was asked for, if the request was stored before the turn ended by itself (C1).

    A turn that ended because the database took no more writes counts, too: its owner has ended all that ran. One that
    ended as a person had wanted after the step counts as well, if somebody has overtaken that.
    """
    ended_by_itself = (
        ending.status in (TurnStatus.COMPLETED, TurnStatus.FAILED) or ending.error_code
    )
    ended_by_person = ending.cancellation is not None and ending.cancellation.reason in BY_PEOPLE
    if turn.status != TurnStatus.CANCELLING or not (ended_by_itself or ended_by_person):
        return ending
    requested = cancel_requests.wanted_now(requests)
    return ending if requested is None else ending_of(requested)


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
