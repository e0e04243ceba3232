"""Sets the final status of a turn exactly once, in one transaction with everything that belongs to it.

Every ending uses this path, whether by an answer, a cancel, a limit, an error or the owner's death (invariant 4). The
functions use the synchronous ORM.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from governance import (
    CallStatus,
    Cancellation,
    CancelReason,
    CancelSource,
    Decision,
    ToolOutcome,
    Verdict,
    approval_store,
    checkpoint,
    recorder,
    unfinished_outcome,
)
from governance.approval_store import ApprovalRow
from governance.db import atomic
from governance.selectors import CallRow
from turns.calls.serializers import result_events
from turns.cancelling import cancel_requests, descendants
from turns.core.events import TurnEvent
from turns.core.exceptions import Fenced
from turns.core.ports import Answer
from turns.core.repairs import Cause, Repair, RepairKind
from turns.core.runner import in_voice
from turns.core.turns import BY_PEOPLE, DEADLY, LEASE_LOST, TurnEnding, TurnStatus, ending_of
from turns.events import acknowledgements, log
from turns.events.notifications import Notifications
from turns.history import messages
from turns.history.histories import record_repairs
from turns.models import CancelRequest, Turn
from turns.queueing.parking import park_if_deadly
from turns.storage import turn_rows
from turns.storage.turn_rows import lock_ending_turn


def close_calls(
    turn: Turn, ending: TurnEnding, *, outcomes: Mapping[str, ToolOutcome]
) -> list[CallRow]:
    """Close every call without a result, and the open questions; return the calls.

    `outcomes` contains the outcomes that have not been stored yet, by call id. A person's decision applies even if the
    owner had no time to follow it (D3).
    """
    group, by = str(turn.pk), ending.cancellation
    cause = Cause.of_ending(ending).clause if ending.has_lost_owner else ""
    questions: dict[tuple[str, str], ApprovalRow] = {}

    def close(call: CallRow) -> ToolOutcome:
        decision, seconds = None, 0.0
        if call.status == CallStatus.AWAITING_APPROVAL:
            if not questions:
                questions.update(approval_store.questions_by_call([group])[0])
            decision, seconds = _decided(questions.get((call.group, call.call_id)))
        outcome = unfinished_outcome(
            call.tool_name,
            CallStatus(call.status),
            by=by,
            decision=decision,
            waited=seconds,
            lost=cause,
        )
        return in_voice(outcome) if turn.source == CancelSource.VOICE else outcome

    closed_calls = recorder.close_open(group=group, close=close, known_outcomes=outcomes)
    if closed_calls:
        verdict = approval_store.INTERRUPTED if by is None else Verdict.CANCELLED.value
        approval_store.close_open_questions(group=group, decision=verdict)
    return closed_calls


def _decided(question: ApprovalRow | None) -> tuple[Decision | None, float]:
    """Return the decision on a question, and for how many seconds it was open."""
    if question is None:
        return None, 0.0
    duration = (question.expires_at or question.requested_at) - question.requested_at
    return approval_store.decision_of(question), round(duration.total_seconds(), 3)


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
    """End a live turn with its calls, message, requests and events. Return None if it was not live or has another
    owner.

    The epoch increases, so later writes of the turn's runner are refused. A turn that completes stops only the children
    that it waits for; any other ending stops all its descendants (C10). `outcomes` contains the owner's outcomes of
    calls that may not be stored yet, by id. `answer` is the last answer if it has not been stored yet. Without `waits`,
    a locked conversation is skipped, because an owner that hangs in the middle of a write must not block the process
    that detects it.
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
        closed_calls = (
            close_calls(row, ending, outcomes=outcomes or {}) if row.has_open_calls else []
        )
        events = [event for call in closed_calls for event in result_events(call)]
        events += _close_message(row, answer, ending, at=at)
        events += _record_repairs(row, closed_calls, ending, at=at)
        descendant_notifications, cancelled_count = _end_descendants(row, ending)
        # The process was lost with the turn, unless only its database rejected a write.
        if ending.has_lost_owner and ending.error_code in DEADLY:
            events += park_if_deadly(conversation, row, at=at)
        final = turn_rows.write_final(conversation, row, ending, at=at, descendants=cancelled_count)
        if not final:
            raise Fenced(f"turn {turn_id} has changed although its conversation is locked")
        of_calls = {call.call_id: call.status for call in closed_calls}
        cancel_requests.settle(requests, outcome=ending.status.value, at=at, of_calls=of_calls)
        checkpoint("in_end")
        wire_events = log.append(conversation, row.pk, *events, *final, at=at)
        return Notifications(
            [(conversation.pk, wire_events), *descendant_notifications.batches],
            descendant_notifications.requests,
            acknowledgements.due_after(row) if ending.cancellation is not None else [],
            reports_wait=row.reports_wait,
        )


def _close_message(
    turn: Any, answer: Answer | None, ending: TurnEnding, *, at: datetime
) -> list[TurnEvent]:
    """Save the last answer, or close the partial message."""
    is_begun = turn.has_unfinished_message
    if answer is None:
        return messages.close_unfinished(turn, at=at) if is_begun else []
    # A runner that completed its turn leaves the message to the ending. An abandoned one may have stored it concurrently.
    may_be_stored = ending.status is not TurnStatus.COMPLETED
    if may_be_stored and not is_begun and messages.has(turn, step=answer.step):
        return []
    return messages.save(turn, answer, is_begun=is_begun, at=at)


def _end_descendants(turn: Any, ending: TurnEnding) -> tuple[Notifications, int]:
    """Stop the descendants. Return the notifications, and how many were cancelled."""
    if not turn.has_children:
        return Notifications(), 0
    if ending.status is TurnStatus.COMPLETED:
        return descendants.cancel_waited_for(turn.pk), 0
    turns = descendants.below(turn.pk)
    cancellation = ending.cancellation or Cancellation(reason=CancelReason.ERROR)
    notifications = descendants.cancel_all(turns, cancellation)
    return notifications, descendants.reached(turns) if ending.cancellation else 0


def _apply_pending_cancel(
    turn: Turn, ending: TurnEnding, requests: Iterable[CancelRequest]
) -> TurnEnding:
    """Return the requested ending if a cancel was stored before the turn ended by itself (C1).

    This includes turns that ended because the database accepted no more writes, since their owner has ended all calls.
    It also includes turns that ended after their step, if a later cancel asked to end them immediately.
    """
    ended_by_itself = ending.status in (TurnStatus.COMPLETED, TurnStatus.FAILED) or (
        ending.error_code not in ("", LEASE_LOST.error_code)
    )
    ended_by_person = ending.cancellation is not None and ending.cancellation.reason in BY_PEOPLE
    if turn.status != TurnStatus.CANCELLING or not (ended_by_itself or ended_by_person):
        return ending
    requested = cancel_requests.wanted_now(requests)
    return ending if requested is None else ending_of(requested)


def _record_repairs(
    turn: Turn, closed_calls: list[CallRow], ending: TurnEnding, *, at: datetime
) -> list[TurnEvent]:
    """Record a repair for each call that a crash left open, as for a repaired history (H3)."""
    unanswered = [call for call in closed_calls if call.is_synthetic]
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
