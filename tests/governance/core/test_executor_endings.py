"""Every way in which a call ends, as one table: what ends it, how its body takes that, what is said."""

from dataclasses import dataclass
from typing import Any

import pytest

from governance import (
    CallStatus,
    Cancellation,
    CancellationToken,
    CancelReason,
    Disposition,
    ErrorType,
)
from tests.governance.core.support import (
    BY_USER,
    ExecutorHarness,
    advance,
    on_manual_clock,
    settle,
    started,
)

GRACE = 0.6
BY_CLOCK = Cancellation(reason=CancelReason.TIMEOUT)


def returns(call, turn):
    call.body.release("real")


def raises(call, turn):
    call.body.fail(ValueError("s3cret"))


def runs_out_of_time(call, turn):
    """Its limit is five seconds, and five seconds pass."""


def is_cancelled(call, turn):
    assert call.live.cancel(BY_USER)


def turn_is_cancelled(call, turn):
    turn.cancel(BY_USER)


def turn_runs_out_of_time(call, turn):
    turn.cancel(BY_CLOCK)


def ends(body):
    """Take a request to end as any coroutine does."""


def answers(body):
    body.last_words = "real"


def breaks(body):
    body.last_error = ValueError("while cleaning up")


def goes_on(body):
    body.is_stubborn = True


@dataclass(frozen=True, kw_only=True)
class Said:
    """What an outcome says."""

    status: CallStatus
    error_type: ErrorType | None = None
    disposition: Disposition = Disposition.SETTLED
    reason: CancelReason | None = None
    words: str = ""


SUCCEEDED = Said(status=CallStatus.SUCCEEDED, words="real")
TIMED_OUT = Said(
    status=CallStatus.TIMED_OUT,
    error_type=ErrorType.TIMEOUT,
    reason=CancelReason.TIMEOUT,
    words='[TIMEOUT] Tool "gated" did not respond within 5s.',
)
CANCELLED = Said(
    status=CallStatus.CANCELLED,
    error_type=ErrorType.CANCELLED,
    reason=CancelReason.USER,
    words='[CANCELLED] Tool "gated" was cancelled by the user.',
)
TURN_TIMED_OUT = Said(
    status=CallStatus.CANCELLED,
    error_type=ErrorType.CANCELLED,
    reason=CancelReason.TIMEOUT,
    words="the turn ran out of time",
)


def abandoned(error_type, reason):
    return Said(
        status=CallStatus.ABANDONED,
        error_type=error_type,
        disposition=Disposition.INDETERMINATE,
        reason=reason,
        words="may still be running and may have been applied",
    )


FAILED = Said(status=CallStatus.FAILED, error_type=ErrorType.EXECUTION_ERROR, words="ValueError")
TOTAL, IDLE = {"timeout": 5}, {"timeout": 60, "idle_timeout": 5}
ENDINGS: list[tuple[Any, Any, dict[str, int], Said]] = [
    (returns, ends, TOTAL, SUCCEEDED),
    (raises, ends, TOTAL, FAILED),
    (runs_out_of_time, ends, TOTAL, TIMED_OUT),
    (runs_out_of_time, answers, TOTAL, TIMED_OUT),
    (runs_out_of_time, breaks, TOTAL, TIMED_OUT),
    (runs_out_of_time, goes_on, TOTAL, abandoned(ErrorType.TIMEOUT, CancelReason.TIMEOUT)),
    (runs_out_of_time, ends, IDLE, TIMED_OUT),
    (runs_out_of_time, answers, IDLE, TIMED_OUT),
    (runs_out_of_time, goes_on, IDLE, abandoned(ErrorType.TIMEOUT, CancelReason.TIMEOUT)),
    (is_cancelled, ends, TOTAL, CANCELLED),
    (is_cancelled, answers, TOTAL, SUCCEEDED),
    (is_cancelled, breaks, TOTAL, CANCELLED),
    (is_cancelled, goes_on, TOTAL, abandoned(ErrorType.CANCELLED, CancelReason.USER)),
    (turn_is_cancelled, ends, TOTAL, CANCELLED),
    (turn_is_cancelled, answers, TOTAL, SUCCEEDED),
    (turn_is_cancelled, breaks, TOTAL, CANCELLED),
    (turn_is_cancelled, goes_on, TOTAL, abandoned(ErrorType.CANCELLED, CancelReason.USER)),
    (turn_runs_out_of_time, ends, TOTAL, TURN_TIMED_OUT),
    (turn_runs_out_of_time, breaks, TOTAL, TURN_TIMED_OUT),
    (turn_runs_out_of_time, goes_on, TOTAL, abandoned(ErrorType.CANCELLED, CancelReason.TIMEOUT)),
]


def name_of(value):
    if value is TOTAL or value is IDLE:
        return "idle" if value is IDLE else "total"
    return value.status.value if isinstance(value, Said) else value.__name__


@pytest.mark.parametrize(("cause", "takes_it", "limits", "said"), ENDINGS, ids=name_of)
@on_manual_clock
async def test_a_call_ends_as_the_table_says(cause, takes_it, limits, said):
    harness, turn = ExecutorHarness(), CancellationToken()
    harness.gated(**limits)
    (call,) = await started(harness, "A", token=turn)
    takes_it(call.body)

    cause(call, turn)
    await advance(5 if cause is runs_out_of_time else 0)
    is_waited_for = takes_it is goes_on
    assert call.task.done() is not is_waited_for
    await advance(GRACE)
    assert call.task.done()
    outcome = await call.outcome()

    assert (outcome.status, outcome.error_type) == (said.status, said.error_type)
    assert outcome.disposition is said.disposition
    assert (outcome.ended_by and outcome.ended_by.reason) == said.reason
    assert outcome.is_error is (said.status is not CallStatus.SUCCEEDED)
    assert said.words in outcome.result
    assert ("made no progress" in outcome.result) is (limits is IDLE and cause is runs_out_of_time)
    assert "s3cret" not in outcome.result
    assert call.body.cancels == (0 if cause in {returns, raises} else 1)
    assert harness.observer.names()[0] == "started"
    assert harness.observer.outcomes == [("A", outcome)]
    # The words that came after a limit are kept; after a cancel they are the result itself.
    is_late = takes_it is answers and cause is runs_out_of_time
    assert [(late.kind, late.text) for _, late in harness.observer.late] == [
        ("returned", "real")
    ] * is_late
    assert ("real" in outcome.result) is (said is SUCCEEDED)
    assert harness.executor.abandoned == is_waited_for
    assert harness.executor.limiter.running == 0
    call.body.release()
    await settle()
    assert harness.executor.abandoned == 0
    assert (await call.outcome()) is outcome
