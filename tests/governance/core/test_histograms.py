"""How long calls ran, in bins. No duration is lost, and each figure is the one that a plain recount gives."""

from hypothesis import given
from hypothesis import strategies as st

from governance.core.histograms import CallDurations, End, bin_of, longest_of

SPANS = st.integers(0, 10**12)
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
        (float("inf") if end is End.TIMED_OUT else span)
        for end, span in calls
        if end is not End.STOPPED
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
    cut = [end for end, span in calls if limit and span >= limit]
    timed_out = [span for end, span in calls if end is End.TIMED_OUT]
    assert effect.calls == len(calls)
    assert effect.cut == len(cut)
    assert effect.succeeded == cut.count(End.SUCCEEDED)
    assert effect.unknown == len([span for span in timed_out if not limit or span < limit])
