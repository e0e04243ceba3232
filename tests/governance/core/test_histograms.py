"""How long calls ran, in bins. No duration is lost, and each figure is the one that a plain recount gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.core.histograms import CallDurations, End, bin_of, end_of, longest_of

SPANS = st.integers(0, 10**12)
JUDGED = (End.SUCCEEDED, End.FAILED, End.TIMED_OUT)  # that the tool's total limit governed
CALLS = st.lists(st.tuples(st.sampled_from(End), st.integers(0, 10_000_000)), max_size=60)


def counted(calls):
    durations = CallDurations()
    for end, span in calls:
        durations.add(end, span)
    return durations


@given(SPANS)
def test_a_bin_holds_its_durations_and_is_a_sixteenth_wide_at_most(span):
    number = bin_of(span)
    longest = longest_of(number)
    assert bin_of(longest) == number
    assert bin_of(longest + 1) == number + 1
    assert 0 <= longest - span <= span / 16


@given(CALLS, st.sampled_from([1, 50, 95, 99, 100]))
def test_a_percentile_is_that_of_the_sorted_calls_with_those_that_were_cut_at_the_end(calls, share):
    judged = sorted(
        (float("inf") if end is End.TIMED_OUT else span) for end, span in calls if end in JUDGED
    )
    at = next((at for at in range(len(judged)) if (at + 1) * 100 >= share * len(judged)), None)
    plain = None if at is None or judged[at] == float("inf") else judged[at]
    assert counted(calls).percentile(share) == plain


@given(CALLS)
def test_bins_keep_every_call_and_say_the_same_within_a_bin(calls):
    exact, binned = counted(calls), CallDurations()
    binned.add_bins(exact.as_bins())
    assert (binned.calls, binned.timeouts, binned.judged) == (
        exact.calls,
        exact.timeouts,
        exact.judged,
    )
    assert bin_of(binned.slowest_success) == bin_of(exact.slowest_success)
    for share in (50, 95, 99):
        one, other = binned.percentile(share), exact.percentile(share)
        assert (one is None) == (other is None)
        assert one is None or bin_of(one) == bin_of(other)


@given(CALLS, st.integers(0, 10_000_000))
def test_the_effect_of_a_limit_is_that_of_a_plain_recount(calls, limit):
    effect = counted(calls).effect_of(limit)
    judged = [(end, span) for end, span in calls if end in JUDGED]
    cut = [end for end, span in judged if limit and span >= limit]
    timed_out = [span for end, span in calls if end is End.TIMED_OUT]
    assert effect.calls == len(judged)
    assert effect.cut == len(cut)
    assert effect.succeeded == cut.count(End.SUCCEEDED)
    assert effect.unknown == len([span for span in timed_out if not limit or span < limit])


@pytest.mark.parametrize(
    ("status", "error_type", "source", "reached", "end"),
    [
        ("timed_out", "timeout", "tool", "total", End.TIMED_OUT),
        ("abandoned", "timeout", "override", "total", End.TIMED_OUT),  # a plain function
        ("timed_out", "timeout", "hint", "total", End.HINT),
        ("timed_out", "timeout", "argument", "total", End.HINT),
        ("timed_out", "timeout", "manual", "total", End.MANUAL),
        ("timed_out", "timeout", "hint", "idle", End.IDLE),
        ("cancelled", "cancelled", "tool", "turn", End.TURN),
        ("cancelled", "cancelled", "tool", "", End.STOPPED),
        ("repaired", "interrupted", "tool", "", End.STOPPED),
        ("succeeded", "", "hint", "", End.OTHER_LIMIT),
        ("failed", "execution_error", "manual", "", End.OTHER_LIMIT),
        ("succeeded", "", "default", "", End.SUCCEEDED),
        ("failed", "execution_error", "", "", End.FAILED),
    ],
)
def test_a_call_ends_by_the_limit_that_cut_it(status, error_type, source, reached, end):
    assert end_of(status, error_type, source, reached) is end


@given(CALLS)
def test_timeouts_are_a_share_of_the_calls_that_nothing_else_stopped(calls):
    durations = counted(calls)
    stopped = [end for end, _span in calls if end in (End.STOPPED, End.TURN)]
    cut = [end for end, _span in calls if end in (End.TIMED_OUT, End.IDLE, End.HINT, End.MANUAL)]
    assert (durations.timeouts, durations.not_stopped) == (len(cut), len(calls) - len(stopped))
