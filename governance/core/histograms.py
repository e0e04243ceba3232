"""Histograms of how long the calls of a tool ran, in logarithmic bins or in milliseconds."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from governance.core.calls import CallStatus, ErrorType
from governance.core.deadline import Limit
from governance.core.policy import TimeoutSource

_BITS = 4  # each doubling of the duration has 16 bins, so a bin's width is at most a sixteenth of its durations

Spans = Counter[int]  # milliseconds → calls
Bins = dict[str, dict[str, int]]  # how calls ended → number of the bin → calls


class End(StrEnum):
    """The end of a call, as far as it matters for the evaluation of the call's duration."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"  # cut by the total limit of its tool
    IDLE = "idle"  # cut by the idle limit
    HINT = "hint"  # cut by the limit that the agent requested for this call
    MANUAL = "manual"  # cut by a limit that a person set while it ran
    TURN = "turn"  # cut by the limit of its turn
    OTHER_LIMIT = "other_limit"  # ended by itself, under a limit set for this call alone
    STOPPED = "stopped"  # cancelled or lost


TIMEOUTS = (End.TIMED_OUT, End.IDLE, End.HINT, End.MANUAL)  # a limit of the call ran out
_JUDGED = (End.SUCCEEDED, End.FAILED, End.TIMED_OUT)
_ASKED = (TimeoutSource.HINT, TimeoutSource.ARGUMENT)


def end_of(status: str, error_type: str, timeout_source: str, limit_reached: str) -> End:
    """Return how a call ended.

    Calls for which an individual limit was set are distinguished from calls under their tool's total limit.
    """
    if error_type == ErrorType.TIMEOUT:
        if limit_reached == Limit.IDLE:
            return End.IDLE
        if timeout_source in _ASKED:
            return End.HINT
        return End.MANUAL if timeout_source == TimeoutSource.MANUAL else End.TIMED_OUT
    if status not in (CallStatus.SUCCEEDED, CallStatus.FAILED):
        return End.TURN if limit_reached == Limit.TURN else End.STOPPED
    if is_of_the_call(timeout_source):
        return End.OTHER_LIMIT
    return End.SUCCEEDED if status == CallStatus.SUCCEEDED else End.FAILED


def is_of_the_call(timeout_source: str) -> bool:
    """Return whether the total limit was set for this call alone, instead of the limit of its tool."""
    return timeout_source in (*_ASKED, TimeoutSource.MANUAL)


def bin_of(milliseconds: int) -> int:
    """Return the number of the bin for this duration."""
    doublings = max(milliseconds.bit_length() - _BITS - 1, 0)
    return (doublings << _BITS) + (milliseconds >> doublings)


def longest_of(number: int) -> int:
    """Return the longest duration that falls into a bin, in milliseconds."""
    doublings = max((number >> _BITS) - 1, 0)
    return (((number - (doublings << _BITS)) + 1) << doublings) - 1


def add_up(total: Bins, bins: Mapping[str, Mapping[str, int]]) -> None:
    """Add the counts of `bins` to `total`.

    For a month of hourly bins, this takes a quarter of the time that `CallDurations.add_bins` would take.
    """
    for end, counts in bins.items():
        sums = total.setdefault(end, {})
        get_sum = sums.get
        for number, count in counts.items():
            sums[number] = get_sum(number, 0) + count


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitEffect:
    """The effect that a total limit would have had on past calls.

    `unknown` is the number of calls that timed out at a lower limit than this one.
    """

    calls: int
    cut: int
    succeeded: int
    unknown: int


@dataclass(frozen=True, slots=True)
class CallDurations:
    """The durations of the calls that ran, grouped by how the calls ended.

    A binned duration is treated as the longest duration of its bin. Percentiles are used to judge the total limit of
    the tool, so they include only calls under that limit.
    """

    spans: Mapping[End, Spans] = field(default_factory=lambda: {end: Counter() for end in End})

    def add(self, end: End, milliseconds: int, count: int = 1) -> None:
        self.spans[end][milliseconds] += count

    def add_bins(self, bins: Mapping[str, Mapping[str, int]]) -> None:
        for end, counts in bins.items():
            spans = self.spans[End(end)]
            for number, count in counts.items():
                spans[longest_of(int(number))] += count

    def as_bins(self) -> Bins:
        """Return the number of calls in each bin, grouped by how the calls ended, with keys that JSON accepts."""
        bins_by_end: Bins = {}
        for end, spans in self.spans.items():
            for milliseconds, count in spans.items():
                bins, number = bins_by_end.setdefault(end.value, {}), str(bin_of(milliseconds))
                bins[number] = bins.get(number, 0) + count
        return bins_by_end

    @property
    def calls(self) -> int:
        return sum(spans.total() for spans in self.spans.values())

    @property
    def timeouts(self) -> int:
        """The number of calls that timed out at one of their own limits."""
        return sum(self.count(end) for end in TIMEOUTS)

    @property
    def not_stopped(self) -> int:
        """The number of calls that ended by themselves or at one of their own limits, including `timeouts`."""
        return self.calls - self.count(End.STOPPED) - self.count(End.TURN)

    def count(self, end: End) -> int:
        return self.spans[end].total()

    @property
    def slowest_success(self) -> int:
        """The duration in milliseconds of the slowest call that succeeded, or 0 if no call succeeded."""
        return max(self.spans[End.SUCCEEDED], default=0)

    @property
    def judged(self) -> int:
        """The number of calls that ran under the tool's total limit and that no other limit or cancel ended."""
        return sum(self.count(end) for end in _JUDGED)

    def percentile(self, percent: int) -> int | None:
        """Return the duration within which `percent` % of the calls end, or `None` if it is among those that timed out.

        A call that timed out would have run longer, for an unknown time, so it is ranked last.
        """
        return _nearest_rank(self._finished(), self._rank(percent))

    def least_percentile(self, percent: int) -> int | None:
        """Return a lower bound of a percentile, for data with calls that timed out."""
        spans = self._finished() + self.spans[End.TIMED_OUT]
        return _nearest_rank(spans, self._rank(percent))

    def effect_of(self, limit_ms: int) -> LimitEffect:
        """Return the effect that a total limit would have had on these calls, where 0 means no limit."""
        cut = Counter[End]()
        if limit_ms:
            for end in _JUDGED:
                cut[end] = sum(_counts_from(self.spans[end], limit_ms))
        return LimitEffect(
            calls=self.judged,
            cut=cut.total(),
            succeeded=cut[End.SUCCEEDED],
            unknown=self.count(End.TIMED_OUT) - cut[End.TIMED_OUT],
        )

    def _finished(self) -> Spans:
        return self.spans[End.SUCCEEDED] + self.spans[End.FAILED]

    def _rank(self, percent: int) -> int:
        return -(-self.judged * percent // 100)  # nearest rank, rounded up


def _nearest_rank(spans: Spans, rank: int) -> int | None:
    for milliseconds, count in sorted(spans.items()):
        rank -= count
        if rank <= 0:
            return milliseconds
    return None


def _counts_from(spans: Spans, least: int) -> Iterator[int]:
    return (count for milliseconds, count in spans.items() if milliseconds >= least)
