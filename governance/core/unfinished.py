"""The outcome of a call without a result of its own. It is used while live, at the end of its turn, and by a repair."""

from governance.core import model_messages
from governance.core.approvals import Decision, Verdict
from governance.core.calls import (
    RUNNING_STATUSES,
    CallStatus,
    Disposition,
    ErrorType,
    ToolOutcome,
)
from governance.core.cancellation import Cancellation, Cancelled
from governance.core.exceptions import ApprovalExpired, ToolCallDenied


def unfinished_outcome(
    tool_name: str,
    status: CallStatus,
    *,
    by: Cancellation | None = None,
    decision: Decision | None = None,
    waited: float = 0.0,
    lost: str = "",
) -> ToolOutcome:
    """Return the outcome of a call that is left in the open `status`.

    `by` is the request that ended it. Without one, `lost` is a clause on how its process was lost; empty = it was
    not. `decision` ends its question, which was open for `waited` seconds.
    """
    if status in RUNNING_STATUSES:
        return cancelled_outcome(tool_name, by) if by else _interrupted(tool_name, lost)
    if decision and decision.verdict is Verdict.DENIED:
        return _denied(tool_name, decision.reason)
    if decision and decision.verdict is Verdict.EXPIRED:
        return _expired(tool_name, waited)
    # a start is written down before it happens, so a call without one never ran
    was_asked = status is CallStatus.AWAITING_APPROVAL and by is not None
    return _never_ran(
        CallStatus.CANCELLED if was_asked else CallStatus.NOT_STARTED,
        ErrorType.CANCELLED if was_asked else ErrorType.NOT_STARTED,
        model_messages.not_started_text(tool_name, by),
        by=by,
        error=Cancelled(by) if by else None,
    )


def _denied(tool_name: str, reason: str) -> ToolOutcome:
    return _never_ran(
        CallStatus.DENIED,
        ErrorType.DENIED,
        model_messages.denied_text(tool_name, reason=reason),
        error=ToolCallDenied(tool_name, reason),
    )


def _expired(tool_name: str, waited: float) -> ToolOutcome:
    return _never_ran(
        CallStatus.EXPIRED,
        ErrorType.EXPIRED,
        model_messages.expired_text(tool_name, seconds=waited),
        error=ApprovalExpired(tool_name, waited),
    )


def cancelled_outcome(
    tool_name: str,
    by: Cancellation,
    *,
    disposition: Disposition = Disposition.INDETERMINATE,
    side_effects: bool = True,
    partial: str = "",
) -> ToolOutcome:
    """Return the outcome of a call that was cancelled after its start was recorded. `disposition` is what is known of it."""
    is_settled = disposition is not Disposition.INDETERMINATE
    text = model_messages.cancelled_text(
        tool_name,
        by,
        is_settled=is_settled,
        side_effects=side_effects,
        partial=partial,
        is_started=disposition is not Disposition.NOT_STARTED,
    )
    return ToolOutcome(
        status=CallStatus.CANCELLED if is_settled else CallStatus.ABANDONED,
        result=text,
        is_error=True,
        error_type=ErrorType.CANCELLED,
        disposition=disposition,
        ended_by=by,
        error=Cancelled(by),
    )


def _interrupted(tool_name: str, lost: str) -> ToolOutcome:
    return ToolOutcome(
        status=CallStatus.REPAIRED if lost else CallStatus.ABANDONED,
        result=model_messages.interrupted_text(tool_name, lost),
        is_error=True,
        error_type=ErrorType.INTERRUPTED,
        disposition=Disposition.INDETERMINATE,
    )


def _never_ran(
    status: CallStatus,
    error_type: ErrorType,
    text: str,
    *,
    by: Cancellation | None = None,
    error: Exception | None,
) -> ToolOutcome:
    return ToolOutcome(
        status=status,
        result=text,
        is_error=True,
        error_type=error_type,
        disposition=Disposition.NOT_STARTED,
        ended_by=by,
        error=error,
    )
