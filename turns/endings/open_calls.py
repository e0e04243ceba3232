"""Answers the calls that a turn leaves open when it ends (C13; sync ORM). Each gets the one outcome that is true of it."""

from collections.abc import Mapping

from governance import (
    CallStatus,
    CancelSource,
    Decision,
    ToolOutcome,
    Verdict,
    approval_store,
    recorder,
    unfinished_outcome,
)
from governance.approval_store import ApprovalRow
from governance.selectors import CallRow
from turns.core.repairs import Cause
from turns.core.turns import TurnEnding
from turns.core.voice import in_voice
from turns.models import Turn


def close_calls(
    turn: Turn, ending: TurnEnding, *, known: Mapping[str, ToolOutcome]
) -> list[CallRow]:
    """Close every call that has no result, and the questions that nobody will answer any more; return the calls.

    `known` has the outcomes, by id, of calls that came to one which is not stored yet. A person's word that the owner
    had no time to obey still counts (D3).
    """
    group, by = str(turn.pk), ending.cancellation
    lost = Cause.of_ending(ending).ended if ending.has_lost_owner else ""
    questions: dict[tuple[str, str], ApprovalRow] = {}

    def close(call: CallRow) -> ToolOutcome:
        decision, waited = None, 0.0
        if call.status == CallStatus.AWAITING_APPROVAL:
            if not questions:
                questions.update(approval_store.latest_by_call([group]))
            decision, waited = _decided(questions.get((call.group, call.call_id)))
        outcome = unfinished_outcome(
            call.tool_name,
            CallStatus(call.status),
            by=by,
            decision=decision,
            waited=waited,
            lost=lost,
        )
        return in_voice(outcome) if turn.source == CancelSource.VOICE else outcome

    closed = recorder.close_open(group=group, close=close, known=known)
    if questions:
        verdict = approval_store.INTERRUPTED if by is None else Verdict.CANCELLED.value
        approval_store.close_open_questions(group=group, decision=verdict)
    return closed


def _decided(question: ApprovalRow | None) -> tuple[Decision | None, float]:
    """The decision on a question, and for how many seconds it was open."""
    if question is None:
        return None, 0.0
    waited = (question.expires_at or question.requested_at) - question.requested_at
    return approval_store.decision_of(question), round(waited.total_seconds(), 3)
