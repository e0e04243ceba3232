"""Answers the calls that a turn leaves open when it ends: each gets the one outcome that is true of it (C13; sync ORM)."""

from collections.abc import Mapping
from functools import cached_property

from governance import (
    CallStatus,
    CancelSource,
    Disposition,
    ErrorType,
    ToolOutcome,
    Verdict,
    abandoned_text,
    approval_store,
    denied_text,
    expired_text,
    interrupted_text,
    not_started_text,
    recorder,
)
from governance.approval_store import ApprovalRow
from governance.selectors import CallRow
from turns.core.turns import TurnEnding, TurnStatus
from turns.core.voice import in_voice
from turns.models import Turn


def close_calls(
    turn: Turn, ending: TurnEnding, *, known: Mapping[str, ToolOutcome]
) -> list[CallRow]:
    """Close every call that has no result, and the questions that nobody will answer any more; return the calls.

    `known` has the outcomes, by id, of calls that came to one which is not stored yet.
    """
    return _Closing(turn, ending, known).close()


def owner_died(ending: TurnEnding) -> bool:
    """Whether the turn ended because its process is gone, or could not write on."""
    return ending.status is TurnStatus.INTERRUPTED and ending.cancellation is None


class _Closing:
    def __init__(self, turn: Turn, ending: TurnEnding, known: Mapping[str, ToolOutcome]) -> None:
        self._group = str(turn.pk)
        self._ending = ending
        self._outcomes = known
        self._cause = ending.cancellation
        self._is_voice = turn.source == CancelSource.VOICE
        self._has_asked = False

    def close(self) -> list[CallRow]:
        closed = recorder.close_open(group=self._group, close=self._outcome, known=self._outcomes)
        if self._has_asked:
            decision = (
                approval_store.INTERRUPTED if self._cause is None else Verdict.CANCELLED.value
            )
            approval_store.close_open_questions(group=self._group, decision=decision)
        return closed

    def _outcome(self, call: CallRow) -> ToolOutcome:
        outcome = self._known(call)
        return in_voice(outcome) if self._is_voice else outcome

    def _known(self, call: CallRow) -> ToolOutcome:
        if call.status == CallStatus.AWAITING_APPROVAL:
            return self._undecided(call)
        if call.status in (CallStatus.RUNNING, CallStatus.CANCELLING):
            return self._given_up(call)
        # a start is written down before it happens, so what has none never ran
        return self._never_ran(
            CallStatus.NOT_STARTED,
            ErrorType.NOT_STARTED,
            not_started_text(call.tool_name, self._cause),
        )

    def _undecided(self, call: CallRow) -> ToolOutcome:
        """A person's word that its owner had no time to obey still counts; else nobody decided (D3)."""
        self._has_asked = True
        question = self._questions.get((call.group, call.call_id))
        decision = question.decision if question else ""
        if question is not None and decision == Verdict.DENIED:
            text = denied_text(call.tool_name, reason=question.reason)
            return self._never_ran(CallStatus.DENIED, ErrorType.DENIED, text)
        if question is not None and decision == Verdict.EXPIRED:
            text = expired_text(call.tool_name, seconds=_seconds(question))
            return self._never_ran(CallStatus.EXPIRED, ErrorType.EXPIRED, text)
        text = not_started_text(call.tool_name, self._cause)
        if self._cause is None:
            return self._never_ran(CallStatus.NOT_STARTED, ErrorType.NOT_STARTED, text)
        return self._never_ran(CallStatus.CANCELLED, ErrorType.CANCELLED, text)

    def _given_up(self, call: CallRow) -> ToolOutcome:
        if self._cause is not None:
            status, error_type = CallStatus.ABANDONED, ErrorType.CANCELLED
            text = abandoned_text(call.tool_name, self._cause)
        else:
            status = CallStatus.REPAIRED if owner_died(self._ending) else CallStatus.ABANDONED
            error_type, text = ErrorType.INTERRUPTED, interrupted_text(call.tool_name)
        return self._answer(status, error_type, text, Disposition.INDETERMINATE)

    def _never_ran(self, status: CallStatus, error_type: ErrorType, text: str) -> ToolOutcome:
        return self._answer(status, error_type, text, Disposition.NOT_STARTED)

    def _answer(
        self, status: CallStatus, error_type: ErrorType, text: str, disposition: Disposition
    ) -> ToolOutcome:
        was_decided = status in (CallStatus.DENIED, CallStatus.EXPIRED)
        return ToolOutcome(
            status=status,
            result=text,
            is_error=True,
            error_type=error_type,
            disposition=disposition,
            ended_by=None if was_decided else self._cause,
        )

    @cached_property
    def _questions(self) -> dict[tuple[str, str], ApprovalRow]:
        return approval_store.latest_by_call([self._group])


def _seconds(question: ApprovalRow) -> float:
    if question.expires_at is None:
        return 0.0
    return round((question.expires_at - question.requested_at).total_seconds(), 3)
