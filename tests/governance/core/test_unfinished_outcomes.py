"""One function says how a call ended that has no result of its own, live or not."""

import pytest

from governance.core.approvals import Decision, Verdict
from governance.core.calls import CallStatus, Disposition, ErrorType
from governance.core.cancellation import Cancelled
from governance.core.exceptions import ApprovalExpired, ToolCallDenied
from governance.core.outcomes import unfinished_outcome
from tests.governance.core.support import BY_USER

OPEN = [CallStatus.PENDING, CallStatus.AWAITING_APPROVAL, CallStatus.RUNNING, CallStatus.CANCELLING]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (CallStatus.PENDING, ("not_started", "not_started", "not_started")),
        (CallStatus.AWAITING_APPROVAL, ("cancelled", "cancelled", "not_started")),
        (CallStatus.RUNNING, ("abandoned", "cancelled", "indeterminate")),
        (CallStatus.CANCELLING, ("abandoned", "cancelled", "indeterminate")),
    ],
)
def test_what_a_request_leaves_unfinished(status, expected):
    outcome = unfinished_outcome("exec", status, by=BY_USER)
    assert (outcome.status, outcome.error_type, outcome.disposition) == expected
    assert "cancelled by the user" in outcome.result
    assert outcome.ended_by is BY_USER
    assert isinstance(outcome.error, Cancelled)


@pytest.mark.parametrize("status", OPEN)
def test_nobody_is_blamed_for_a_lost_process(status):
    outcome = unfinished_outcome("exec", status, lost="the server ended unexpectedly")
    may_have_run = status in (CallStatus.RUNNING, CallStatus.CANCELLING)
    assert outcome.ended_by is None
    assert outcome.status is (CallStatus.REPAIRED if may_have_run else CallStatus.NOT_STARTED)
    assert ("the server ended unexpectedly" in outcome.result) == may_have_run
    assert (outcome.disposition is Disposition.INDETERMINATE) == may_have_run


@pytest.mark.parametrize(
    ("verdict", "error_type", "error", "words"),
    [
        (Verdict.DENIED, ErrorType.DENIED, ToolCallDenied, "The reason given: Not today."),
        (Verdict.EXPIRED, ErrorType.EXPIRED, ApprovalExpired, "no one answered within 30s"),
    ],
)
def test_a_decision_counts_although_a_cancel_came_after_it(verdict, error_type, error, words):
    decision = Decision(verdict=verdict, reason="Not today.")
    outcome = unfinished_outcome(
        "exec", CallStatus.AWAITING_APPROVAL, by=BY_USER, decision=decision, waited=30
    )
    assert (outcome.error_type, outcome.ended_by) == (error_type, None)
    assert outcome.disposition is Disposition.NOT_STARTED
    assert words in outcome.result
    assert isinstance(outcome.error, error)
