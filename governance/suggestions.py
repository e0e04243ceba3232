"""What a limit would have done to the last calls of a tool, and which limit their durations suggest."""

from dataclasses import dataclass
from datetime import timedelta

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from governance import statistics
from governance.conf import app_settings
from governance.core.histograms import CallDurations
from governance.durations import UNITS_MS, format_duration, limit_ms

SPAN = timedelta(days=7)
ROOM = 1.5  # a suggested limit is the p99 times this
FEWEST = 20  # calls, below which a p99 says nothing
_STEPS = (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A total limit, or in a sentence why none can be named."""

    limit_ms: int | None = None
    problem: str = ""


def read_last_calls(tool_name: str) -> statistics.LastCalls:
    """Return the calls of a tool on which a suggestion rests."""
    return statistics.read_last(tool_name, SPAN)


def suggest(durations: CallDurations, *, may_cut_successes: bool = False) -> Suggestion:
    """Return the p99 with room, rounded up, and not under the slowest success unless that is asked for."""
    if durations.judged < FEWEST:
        problem = ngettext(
            "No suggestion: %(count)d call in 7 days is too few.",
            "No suggestion: %(count)d calls in 7 days are too few.",
            durations.judged,
        )
        return Suggestion(problem=problem % {"count": durations.judged})
    usual = durations.percentile(99)
    if usual is None:
        return Suggestion(problem=_("No suggestion: the p99 is unknown, it lies among cut calls."))
    wanted = max(round(usual * ROOM), UNITS_MS["s"])
    if not may_cut_successes:
        wanted = max(wanted, durations.slowest_success + 1)
    ceiling = limit_ms(app_settings.TIMEOUT_CEILING)
    if 0 < ceiling < wanted:
        problem = _("No suggestion: %(wanted)s would be above the highest limit of this site.")
        return Suggestion(problem=problem % {"wanted": format_duration(wanted)})
    rounded = round_up(wanted)
    return Suggestion(limit_ms=min(rounded, ceiling) if ceiling else rounded)


def round_up(milliseconds: int) -> int:
    """Return the next duration that people write: 1.5 s, 20 s, 3 min, 45 min."""
    units = (UNITS_MS["s"], UNITS_MS["min"], UNITS_MS["h"])
    for unit in units:
        for step in _STEPS:
            if milliseconds <= step * unit:
                return round(step * unit)
    hours = -(-milliseconds // UNITS_MS["h"])
    return hours * UNITS_MS["h"]


def is_under_the_usual(durations: CallDurations, total_ms: int) -> bool:
    """Whether a limit is under the present p95. Of an unknown p95 it counts what it is at least."""
    usual = durations.percentile(95)
    if usual is None:
        usual = durations.least_percentile(95)
    return usual is not None and 0 < total_ms < usual


def effect_text(last: statistics.LastCalls, total_ms: int) -> str:
    """Return in sentences what a total limit would have done to the last calls."""
    effect = last.durations.effect_of(total_ms)
    if not effect.calls:
        return _("No call ran in the last 7 days.")
    words = _("Would have cut %(cut)d of %(calls)d calls of the last 7 days (%(share).1f %%)")
    told = words % {
        "cut": effect.cut,
        "calls": effect.calls,
        "share": 100 * effect.cut / effect.calls,
    }
    if effect.cut:
        told += _(", %(count)d of which had succeeded") % {"count": effect.succeeded}
    told += "."
    if effect.unknown:
        rest = ngettext(
            " Of %(count)d that ran out of time below this limit it is unknown.",
            " Of %(count)d that ran out of time below this limit it is unknown.",
            effect.unknown,
        )
        told += rest % {"count": effect.unknown}
    return told if last.is_exact else told + _(" Older calls are counted within a sixteenth.")
