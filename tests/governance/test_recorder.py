"""Calls as rows: each status moves once, from where it is allowed, and the first ending wins (invariant 4)."""

import asyncio
from dataclasses import replace
from datetime import datetime
from itertools import product
from operator import attrgetter
from typing import Any

import pytest

from governance import recorder
from governance.core import calls as core_calls
from governance.core.calls import (
    ALLOWED_TRANSITIONS,
    CallStatus,
    Disposition,
    ErrorType,
    LateSettlement,
    ToolOutcome,
)
from governance.core.cancel_reasons import CancelReason, CancelSource
from governance.core.cancellation import Cancellation, CancellationToken
from governance.core.deadline import DeadlineChange
from governance.core.exceptions import IllegalTransition
from governance.core.live_call import LiveCall
from governance.core.policy import Policy, TimeoutSource
from governance.models import ToolCall

HERE: Any = {"group": "turn", "call_id": "a"}
DONE = ToolOutcome(status=CallStatus.SUCCEEDED, result="fine", duration=1.5, queued=0.25)
CANCELLED = ToolOutcome(
    status=CallStatus.CANCELLED,
    result="cancelled",
    is_error=True,
    error_type=ErrorType.CANCELLED,
    disposition=Disposition.INDETERMINATE,
    ended_by=Cancellation(reason=CancelReason.USER, source=CancelSource.BUTTON, by="ann"),
)


def row(**values):
    return ToolCall.objects.get(**(values or HERE))


@pytest.fixture
def proposed(db, probe):
    call = core_calls.ToolCall(
        id="a", tool_name="probe", input={"text": "hi"}, scope="conversation"
    )
    recorder.insert_pending([call], group="turn", step=3)
    return call


def test_a_step_is_proposed_in_one_query(db, probe, django_assert_num_queries):
    calls = [
        core_calls.ToolCall(id="a", tool_name="probe", input={"text": "hi"}, scope="conversation"),
        core_calls.ToolCall(id="b", tool_name="unheard_of", scope="conversation", position=1),
    ]
    with django_assert_num_queries(1):
        recorder.insert_pending(calls, group="turn", step=3)
    known, unknown = ToolCall.objects.order_by("position")
    assert (known.status, known.input, known.step, known.scope) == (
        "pending",
        {"text": "hi"},
        3,
        "conversation",
    )
    assert (known.isolation, known.concurrency) == ("thread", "parallel")
    assert unknown.isolation == ""


async def _live(call):
    return LiveCall(call, token=CancellationToken())


@pytest.fixture
def live(proposed):
    live = asyncio.run(_live(proposed))
    live.limits.set_policy(
        Policy(timeout=30.0, timeout_source=TimeoutSource.HINT, idle_timeout=5.0, capped_from=90.0)
    )
    live.queued = 0.5
    return live


def test_a_start_stores_the_limits_and_their_source(live, django_assert_num_queries):
    with django_assert_num_queries(2):
        assert recorder.record_start(live, group="turn")
    stored = row()
    assert stored.status == "running"
    assert stored.started_at is not None
    assert (stored.timeout_ms, stored.timeout_source, stored.asked_timeout_ms) == (
        30_000,
        "hint",
        90_000,
    )
    assert (stored.idle_timeout_ms, stored.queued_ms) == (5_000, 500)


def test_no_limit_is_stored_as_zero(live):
    live.limits.set_policy(Policy(timeout=None, timeout_source=TimeoutSource.TOOL))
    recorder.record_start(live, group="turn")
    assert (row().timeout_ms, row().idle_timeout_ms, row().asked_timeout_ms) == (0, 0, None)


def test_a_call_starts_once_and_never_after_its_end(live):
    assert recorder.record_start(live, group="turn")
    assert not recorder.record_start(live, group="turn")
    assert recorder.record_end({"a": DONE}, group="turn")
    assert not recorder.record_start(live, group="turn")
    assert row().status == "succeeded"


def test_of_two_ends_the_first_wins(live, django_assert_num_queries):
    recorder.record_start(live, group="turn")
    with django_assert_num_queries(2):
        assert recorder.record_end({"a": CANCELLED}, group="turn")
    assert not recorder.record_end({"a": DONE}, group="turn")
    stored = row()
    assert (stored.status, stored.result, stored.error_type) == (
        "cancelled",
        "cancelled",
        "cancelled",
    )
    assert stored.disposition == "indeterminate"
    assert (stored.ended_by_reason, stored.ended_by_source, stored.ended_by_name) == (
        "user",
        "button",
        "ann",
    )


def test_each_of_many_calls_that_start_and_end_together_has_its_own_outcome(
    db, probe, django_assert_num_queries
):
    calls = [core_calls.ToolCall(id=f"c{n}", tool_name="probe", position=n) for n in range(300)]
    recorder.insert_pending(calls, group="turn", step=1)
    live = [asyncio.run(_live(call)) for call in calls]
    with django_assert_num_queries(2):  # with the same limits, they start by one statement
        assert len(recorder.record_start(*live, group="turn")) == 300
    outcomes = {
        call.id: replace(DONE if call.position % 2 else CANCELLED, result=f"of {call.id}")
        for call in calls
    }
    with django_assert_num_queries(301):
        ended = recorder.record_end(outcomes, group="turn")
    assert [row.call_id for row in ended] == [call.id for call in calls]
    for row in ToolCall.objects.all():
        assert row.result == f"of {row.call_id}"
        assert row.status == ("succeeded" if row.position % 2 else "cancelled")
    assert recorder.record_end(outcomes, group="turn") == []


def test_an_end_stores_what_the_outcome_says(live):
    recorder.record_start(live, group="turn")
    recorder.record_end({"a": DONE}, group="turn")
    stored = row()
    assert (stored.duration_ms, stored.queued_ms, stored.is_error) == (1_500, 250, False)
    assert (stored.timeout_ms, stored.timeout_source) == (30_000, "hint")
    assert stored.ended_at is not None


def test_a_call_that_never_ran_has_no_duration(proposed):
    outcome = ToolOutcome(
        status=CallStatus.NOT_STARTED, result="no", disposition=Disposition.NOT_STARTED
    )
    assert recorder.record_end({"a": outcome}, group="turn")
    assert row().duration_ms is None
    assert row().timeout_ms is None


def test_an_end_happens_exactly_where_the_table_of_moves_has_an_arrow(make_call, subtests):
    for before, after in product(CallStatus, filter(attrgetter("is_terminal"), CallStatus)):
        with subtests.test(before=before, after=after):
            call = make_call(status=before)
            outcome = ToolOutcome(status=after, result="")
            moved = recorder.record_end({call.call_id: outcome}, group="turn")
            assert bool(moved) == (after in ALLOWED_TRANSITIONS.get(before, ()))
            call.refresh_from_db()
            assert call.status == (after if moved else before)


def test_an_open_status_is_no_end(proposed):
    with pytest.raises(IllegalTransition):
        recorder.record_end({"a": ToolOutcome(status=CallStatus.RUNNING, result="")}, group="turn")


def test_only_a_running_call_is_cancelling(live):
    assert not recorder.record_cancelling("a", group="turn")
    recorder.record_start(live, group="turn")
    assert recorder.record_cancelling("a", group="turn")
    assert not recorder.record_cancelling("a", group="turn")
    assert row().status == "cancelling"
    recorder.record_end({"a": DONE}, group="turn")
    assert not recorder.record_cancelling("a", group="turn")


def test_progress_is_kept_while_the_call_runs(live):
    progress = recorder.progress_fields(
        core_calls.Progress(message="half", progress=1, total=2, output="ignored")
    )
    assert not recorder.record_progress({("turn", "a"): progress})
    recorder.record_start(live, group="turn")
    assert recorder.record_progress({("turn", "a"): progress})
    recorder.record_end({"a": DONE}, group="turn")
    assert not recorder.record_progress({("turn", "a"): {}})
    assert row().progress == {"message": "half", "progress": 1, "total": 2}
    assert recorder.progress_fields(None) == {}


def test_changes_of_a_limit_are_listed_with_both_values(live, django_assert_num_queries):
    moved = DeadlineChange(
        from_timeout=30,
        to_timeout=60,
        source=TimeoutSource.OVERRIDE,
        by="ada",
        from_idle_timeout=None,
        to_idle_timeout=5,
    )
    assert recorder.record_deadline(moved, **HERE) is None
    recorder.record_start(live, group="turn")
    with django_assert_num_queries(2):
        assert recorder.record_deadline(moved, **HERE) is not None
    assert (row().timeout_ms, row().idle_timeout_ms) == (60_000, 5_000)
    last = replace(moved, to_timeout=None, source=TimeoutSource.MANUAL)
    returned = recorder.record_deadline(last, **HERE)
    stored = row()
    assert returned is not None
    assert returned.deadline_changes == stored.deadline_changes
    first, second = stored.deadline_changes
    assert datetime.fromisoformat(first.pop("at")).tzinfo is not None
    assert first == {
        "from_ms": 30_000,
        "to_ms": 60_000,
        "from_idle_ms": 0,
        "to_idle_ms": 5_000,
        "source": "override",
        "by": "ada",
    }
    assert second["to_ms"] == 0
    assert (stored.timeout_ms, stored.timeout_source) == (0, "manual")


def test_a_late_settlement_is_recorded_once_and_never_becomes_the_result(live):
    late = LateSettlement(kind="returned", text="too late", after=2.5)
    recorder.record_start(live, group="turn")
    assert not recorder.record_late_settlement(**HERE, late=late)
    recorder.record_end({"a": CANCELLED}, group="turn")
    assert recorder.record_late_settlement(**HERE, late=late)
    assert not recorder.record_late_settlement(
        **HERE, late=LateSettlement(kind="raised", text="", after=9)
    )
    stored = row()
    assert (stored.late_kind, stored.late_text, stored.late_after_ms) == (
        "returned",
        "too late",
        2_500,
    )
    assert stored.result == "cancelled"


def test_what_is_open_in_a_group_is_closed_in_call_order(make_call, django_assert_num_queries):
    make_call(call_id="done", status=CallStatus.SUCCEEDED, result="real", position=0)
    make_call(call_id="running", status=CallStatus.RUNNING, position=2)
    make_call(call_id="pending", status=CallStatus.PENDING, position=1)
    make_call(call_id="elsewhere", group="other", status=CallStatus.RUNNING)

    def close(call):
        ran = call.status != CallStatus.PENDING
        return ToolOutcome(
            status=CallStatus.REPAIRED if ran else CallStatus.NOT_STARTED,
            result=f"closed {call.call_id}",
            is_error=True,
            error_type=ErrorType.INTERRUPTED,
            disposition=Disposition.INDETERMINATE if ran else Disposition.NOT_STARTED,
        )

    with django_assert_num_queries(3):
        closed = recorder.close_open(group="turn", close=close)
    assert [(call.call_id, call.status) for call in closed] == [
        ("pending", "not_started"),
        ("running", "repaired"),
    ]
    stored = row(call_id="running")
    assert (stored.result, stored.is_synthetic, stored.error_type) == (
        "closed running",
        True,
        "interrupted",
    )
    assert row(call_id="done").result == "real"
    assert row(call_id="elsewhere").status == "running"
    assert recorder.close_open(group="turn", close=close) == []


def test_closing_with_an_illegal_status_writes_nothing(make_call):
    make_call(call_id="a", status=CallStatus.RUNNING)
    make_call(call_id="b", status=CallStatus.PENDING, position=1)
    with pytest.raises(IllegalTransition):
        recorder.close_open(
            group="turn", close=lambda _: ToolOutcome(status=CallStatus.TIMED_OUT, result="")
        )
    assert set(ToolCall.objects.values_list("status", flat=True)) == {"running", "pending"}


def test_text_that_a_database_would_refuse_is_stored_with_replacements(db, probe):
    bad = "nul \x00, half a pair \ud800"
    call = core_calls.ToolCall(
        id="a", tool_name="x" * 300, input={"text": bad, "n": [float("nan"), 1.5]}
    )
    recorder.insert_pending([call], group="turn", step=0)
    recorder.record_end(
        {"a": ToolOutcome(status=CallStatus.FAILED, result=bad, detail=bad)}, group="turn"
    )
    stored = row()
    assert stored.result == stored.detail == stored.input["text"] == "nul \ufffd, half a pair ?"
    assert stored.input["n"] == ["nan", 1.5]
    assert len(stored.tool_name) == 128
