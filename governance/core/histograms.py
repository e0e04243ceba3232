"""How long the calls of a tool ran: counted in bins on a logarithmic scale, or by the millisecond."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from governance.core.calls import CallStatus, ErrorType

_BITS = 4  # each doubling of the duration has 16 bins, so none is wider than a sixteenth of what it counts

Spans = Counter[int]  # milliseconds → calls
Bins = dict[str, dict[str, int]]  # how calls ended → number of the bin → calls


class End(StrEnum):
    """How a call that ran has ended, as far as its duration is concerned."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"  # would have run longer
    STOPPED = (
        "stopped"  # cancelled or lost: would have run longer, and no limit of its own is to blame
    )


def end_of(status: str, error_type: str) -> End:
    if status == CallStatus.SUCCEEDED:
        return End.SUCCEEDED
    if error_type == ErrorType.TIMEOUT:
        return End.TIMED_OUT
    return End.FAILED if status == CallStatus.FAILED else End.STOPPED


def bin_of(milliseconds: int) -> int:
    """Return the number of the bin that counts this duration."""
    doublings = max(milliseconds.bit_length() - _BITS - 1, 0)
    return (doublings << _BITS) + (milliseconds >> doublings)


def longest_of(number: int) -> int:
    """Return the longest duration that a bin counts."""
    doublings = max((number >> _BITS) - 1, 0)
    return (((number - (doublings << _BITS)) + 1) << doublings) - 1


def add_up(total: Bins, bins: Mapping[str, Mapping[str, int]]) -> None:
    """Add bins to a total, number by number. Of a month of hours this is a quarter of what durations would cost."""
    for end, counts in bins.items():
        sums = total.setdefault(end, {})
        known = sums.get
        for number, count in counts.items():
            sums[number] = known(number, 0) + count


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitEffect:
    """What a limit would have done to calls. `unknown` ones ran out of time at a lower limit than this one."""

    calls: int
    cut: int
    succeeded: int
    unknown: int


@dataclass(frozen=True, slots=True)
class CallDurations:
    """The durations of calls that ran, by how they ended. What comes from a bin counts as the longest of the bin."""

    spans: Mapping[End, Spans] = field(default_factory=lambda: {end: Counter() for end in End})

    def add(self, end: End, milliseconds: int, count: int = 1) -> None:
        self.spans[end][milliseconds] += count

    def add_bins(self, bins: Mapping[str, Mapping[str, int]]) -> None:
        """Count what `as_bins` has returned."""
        for end, counts in bins.items():
            spans = self.spans[End(end)]
            for number, count in counts.items():
                spans[longest_of(int(number))] += count

    def as_bins(self) -> Bins:
        """Return the durations as JSON keeps them."""
        found: Bins = {}
        for end, spans in self.spans.items():
            for milliseconds, count in spans.items():
                bins, number = found.setdefault(end.value, {}), str(bin_of(milliseconds))
                bins[number] = bins.get(number, 0) + count
        return found

    @property
    def calls(self) -> int:
        return sum(spans.total() for spans in self.spans.values())

    @property
    def timeouts(self) -> int:
        return self.spans[End.TIMED_OUT].total()

    @property
    def slowest_success(self) -> int:
        """The longest time after which a call succeeded; 0 if none did."""
        return max(self.spans[End.SUCCEEDED], default=0)

    @property
    def judged(self) -> int:
        """How many calls tell something about the tool's own time: those that were stopped from outside do not."""
        return self.calls - self.spans[End.STOPPED].total()

    def percentile(self, percent: int) -> int | None:
        """Return the duration within which this share of the calls end; None if it lies among those that were cut.

        A call that ran out of time would have run longer. Nobody knows how long, so it counts as the longest.
        """
        return _nearest_rank(self._finished(), self._rank(percent))

    def least_percentile(self, percent: int) -> int | None:
        """Return what a percentile is at least, where calls that were cut hide how long they would have run."""
        spans = self._finished() + self.spans[End.TIMED_OUT]
        return _nearest_rank(spans, self._rank(percent))

    def effect_of(self, limit_ms: int) -> LimitEffect:
        """Return what a total limit would have done; 0 = no limit."""
        spans, cut = self.spans, Counter[End]()
        if limit_ms:
            for end in End:
                cut[end] = sum(_counts_from(spans[end], limit_ms))
        return LimitEffect(
            calls=self.calls,
            cut=cut.total(),
            succeeded=cut[End.SUCCEEDED],
            unknown=self.timeouts - cut[End.TIMED_OUT],
        )

    def _finished(self) -> Spans:
        return self.spans[End.SUCCEEDED] + self.spans[End.FAILED]

    def _rank(self, percent: int) -> int:
        return -(-self.judged * percent // 100)  # the nearest one, rounded up


def _nearest_rank(spans: Spans, rank: int) -> int | None:
    for milliseconds, count in sorted(spans.items()):
        rank -= count
        if rank <= 0:
            return milliseconds
    return None


def _counts_from(spans: Spans, least: int) -> Iterator[int]:
    return (count for milliseconds, count in spans.items() if milliseconds >= least)
