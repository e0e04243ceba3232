"""Calls as rows: each status moves once, from where it is allowed, and the first ending wins (invariant 4)."""

import asyncio
from dataclasses import replace
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


def test_many_calls_start_and_end_with_as_few_queries_as_one(db, probe, django_assert_num_queries):
    calls = [core_calls.ToolCall(id=f"c{n}", tool_name="probe", position=n) for n in range(300)]
    recorder.insert_pending(calls, group="turn", step=1)
    live = [asyncio.run(_live(call)) for call in calls]
    with django_assert_num_queries(2):
        assert len(recorder.record_start(*live, group="turn")) == 300
    outcomes = {
        call.id: replace(DONE if call.position % 2 else CANCELLED, result=f"of {call.id}")
        for call in calls
    }
    with django_assert_num_queries(2):
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


@pytest.mark.parametrize("before", list(CallStatus))
@pytest.mark.parametrize("after", [status for status in CallStatus if status.is_terminal])
def test_an_end_happens_exactly_where_the_table_of_moves_has_an_arrow(make_call, before, after):
    make_call(call_id="a", status=before)
    moved = recorder.record_end({"a": ToolOutcome(status=after, result="")}, group="turn")
    assert bool(moved) == (after in ALLOWED_TRANSITIONS.get(before, ()))
    assert row().status == (after if moved else before)


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
    change = {
        "at": "2030-01-01T00:00:00+00:00",
        "from_ms": 30_000,
        "to_ms": 60_000,
        "source": "override",
        "by": "",
    }
    moved: Any = {
        "change": change,
        "timeout_ms": 60_000,
        "timeout_source": "override",
        "idle_timeout_ms": 5_000,
    }
    assert not recorder.record_deadline(**HERE, **moved)
    recorder.record_start(live, group="turn")
    with django_assert_num_queries(2):
        assert recorder.record_deadline(**HERE, **moved)
    assert row().idle_timeout_ms == 5_000
    last = {"change": change | {"to_ms": 0}, "timeout_ms": 0, "timeout_source": "manual"}
    assert recorder.record_deadline(**HERE, **(moved | last))
    stored = row()
    assert [c["to_ms"] for c in stored.deadline_changes] == [60_000, 0]
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


def test_what_is_open_in_a_group_is_closed_in_two_queries(make_call, django_assert_num_queries):
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

    with django_assert_num_queries(2):
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


@pytest.mark.parametrize("closed", [False, True])
def test_calls_whose_rows_are_held_start_and_end_as_those_that_are_read(db, probe, closed):
    """`closed`: one of them was ended by somebody else meanwhile."""
    stored, told = [], []
    for group in ("read", "held"):
        calls = [
            core_calls.ToolCall(id=name, tool_name="probe", position=n)
            for n, name in enumerate("abc")
        ]
        rows = {row.call_id: row for row in recorder.insert_pending(calls, group=group, step=1)}
        held = rows if group == "held" else None
        if closed:
            ToolCall.objects.filter(group=group, call_id="b").update(status="cancelled")
        live = [asyncio.run(_live(call)) for call in calls]
        started = recorder.record_start(*live, group=group, held=held)
        ended = recorder.record_end({"a": DONE, "b": CANCELLED, "c": DONE}, group=group, held=held)
        told.append([[(it.call_id, it.status, it.result) for it in of] for of in (ended,)])
        told[-1].append([it.call_id for it in started])
        names = [f.attname for f in ToolCall._meta.concrete_fields]
        left_out = {"id", "group", "requested_at", "started_at", "ended_at"}
        values = [name for name in names if name not in left_out]
        stored.append(
            list(ToolCall.objects.filter(group=group).order_by("position").values(*values))
        )
    assert stored[0] == stored[1]
    assert told[0] == told[1]
    assert told[0][1] == (["a", "c"] if closed else ["a", "b", "c"])
