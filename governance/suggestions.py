"""Computes the effect of a limit on a tool's last calls, and suggests a limit from their durations."""

from dataclasses import dataclass, replace
from datetime import timedelta

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from governance import statistics
from governance.conf import app_settings
from governance.core.histograms import TIMEOUTS, CallDurations, End
from governance.durations import UNITS_MS, format_duration, limit_ms
from governance.labels import timeouts

SPAN = timedelta(days=7)
ROOM = 1.5  # a suggested limit is the p99 multiplied by this
WIDE = 20.0  # a limit is wide if limit ÷ p95 is above this
FEWEST = 20  # the smallest number of calls with a meaningful p99
_STEPS = (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A suggested total or idle limit with sentences that give the reasons, or the reasons why there is no suggestion.

    A trial is a longer limit for a day, which shows how long the calls that timed out would have run.
    """

    limit_ms: int | None = None
    idle_ms: int | None = None
    words: str = ""
    is_trial: bool = False


def read_last_calls(tool_name: str) -> statistics.LastCalls:
    """Return the calls of a tool on which a suggestion is based."""
    return statistics.read_last(tool_name, SPAN)


def suggest(
    durations: CallDurations,
    *,
    present_ms: int = 0,
    present_idle_ms: int = 0,
    **options: bool,
) -> Suggestion:
    """Suggest a total limit, or a trial of a longer idle limit if more than 1 % of the calls reach the current idle
    limit.

    A tool's temporary limits all end at the same time, so a trial of an idle limit is combined only with a trial of a
    total limit.
    """
    total = _suggest_total(durations, present_ms=present_ms, **options)
    idle = _idle_trial(durations, present_ms=present_ms, present_idle_ms=present_idle_ms)
    if idle is None or not total.is_trial:
        return idle or total
    return replace(total, idle_ms=idle.idle_ms, words=f"{total.words} {idle.words}")


def _suggest_total(
    durations: CallDurations,
    *,
    present_ms: int,
    may_cut_successes: bool = False,
    may_tighten: bool = True,
) -> Suggestion:
    """Suggest the p99 multiplied by `ROOM` and rounded up.

    The suggested limit is above the slowest success, unless `may_cut_successes` is set. If the current limit cuts off
    more than 1 % of the calls, suggest twice that limit as a trial. Unless `may_tighten` is set, suggest no shorter
    limit in place of a wide or missing one.
    """
    if durations.judged < FEWEST:
        problem = ngettext(
            "No suggestion: %(count)d call in 7 days is too few.",
            "No suggestion: %(count)d calls in 7 days are too few.",
            durations.judged,
        )
        return _unless_other_limits(durations, problem % {"count": durations.judged})
    usual = durations.percentile(99)
    if usual is None:
        return _trial(durations, present_ms)
    if not may_tighten and _is_wide(durations, present_ms):
        return Suggestion(
            words=_("Its limit is wide. Select the tool to get a suggestion for a shorter one.")
        )
    target_ms = max(round(usual * ROOM), UNITS_MS["s"])
    if not may_cut_successes:
        target_ms = max(target_ms, durations.slowest_success + 1)
    ceiling = limit_ms(app_settings.TIMEOUT_CEILING)
    if 0 < ceiling < target_ms:
        problem = _("No suggestion: %(wanted)s would be above the highest limit of this site.")
        return Suggestion(words=problem % {"wanted": format_duration(target_ms)})
    rounded = round_up(target_ms)
    return Suggestion(limit_ms=min(rounded, ceiling) if ceiling else rounded)


def _trial(durations: CallDurations, present_ms: int) -> Suggestion:
    evidence = _what_is_known(durations, present_ms)
    ceiling = limit_ms(app_settings.TIMEOUT_CEILING)
    if not present_ms:
        return Suggestion(words=_("%(known)s No limit applies to them now.") % {"known": evidence})
    if 0 < ceiling <= present_ms:
        words = _("%(known)s This is the highest limit of this site.")
        return Suggestion(words=words % {"known": evidence})
    longer = round_up(2 * present_ms)
    longer = min(longer, ceiling) if ceiling else longer
    words = _("%(known)s Try %(limit)s for a day, then check again.")
    explanation = words % {"known": evidence, "limit": format_duration(longer)}
    return Suggestion(limit_ms=longer, words=explanation, is_trial=True)


def _idle_trial(
    durations: CallDurations, *, present_ms: int, present_idle_ms: int
) -> Suggestion | None:
    """Suggest twice the idle limit as a trial, but not more than the total limit. Return None if the idle limit cuts
    off few calls.
    """
    cut = durations.count(End.IDLE)
    calls = durations.judged + cut
    if not present_idle_ms or calls < FEWEST or 100 * cut <= calls:
        return None
    words = _("The idle limit of %(limit)s cut off %(cut)d of %(calls)d calls (%(share).1f %%).")
    evidence = words % {
        "limit": format_duration(present_idle_ms),
        "cut": cut,
        "calls": calls,
        "share": 100 * cut / calls,
    }
    longer = round_up(2 * present_idle_ms)
    longer = min(longer, present_ms) if present_ms else longer
    if longer <= present_idle_ms:
        words = _("%(known)s It is as long as the total limit.")
        return Suggestion(words=words % {"known": evidence})
    words = _("%(known)s Try an idle limit of %(idle)s for a day, then check again.")
    explanation = words % {"known": evidence, "idle": format_duration(longer)}
    return Suggestion(idle_ms=longer, words=explanation, is_trial=True)


def _what_is_known(durations: CallDurations, present_ms: int) -> str:
    """Return sentences that say how many calls the limit cut off, and how long the others ran."""
    cut = durations.count(End.TIMED_OUT)
    words = _("%(cut)d of %(calls)d calls (%(share).1f %%) were cut off.")
    sentence = words % {
        "cut": cut,
        "calls": durations.judged,
        "share": 100 * cut / durations.judged,
    }
    if present_ms:
        sentence += " " + _("The current limit is %(limit)s.") % {
            "limit": format_duration(present_ms)
        }
    for percent in (95, 90, 75, 50):
        if (span := durations.percentile(percent)) is not None:
            words = _("%(facts)s %(percent)d %% of the calls ended within %(span)s.")
            return words % {"facts": sentence, "percent": percent, "span": format_duration(span)}
    return sentence


def _unless_other_limits(durations: CallDurations, problem: str) -> Suggestion:
    """Return a suggestion with this problem and without a limit. It also states how many calls other limits cut off,
    because a longer total limit does not help these.
    """
    counts = {end: durations.count(end) for end in TIMEOUTS if end is not End.TIMED_OUT}
    words = dict(timeouts())
    listing = ", ".join(f"{count} {words[end]}" for end, count in counts.items() if count)
    if listing:
        problem += " " + _(
            "Other calls were cut off: %(limits)s. A longer total limit does not help these."
        ) % {"limits": listing}
    return Suggestion(words=problem)


def _is_wide(durations: CallDurations, present_ms: int) -> bool:
    usual = durations.percentile(95)
    return not present_ms or (usual is not None and present_ms > WIDE * max(usual, 1))


def round_up(milliseconds: int) -> int:
    """Round up to a duration that people would choose, such as 1.5 s, 20 s, 3 min or 45 min."""
    units = (UNITS_MS["s"], UNITS_MS["min"], UNITS_MS["h"])
    for unit in units:
        for step in _STEPS:
            if milliseconds <= step * unit:
                return round(step * unit)
    hours = -(-milliseconds // UNITS_MS["h"])
    return hours * UNITS_MS["h"]


def is_under_the_usual(durations: CallDurations, total_ms: int) -> bool:
    """Return whether a limit is below the current p95. If the p95 is unknown, its lower bound is used."""
    usual = durations.percentile(95)
    if usual is None:
        usual = durations.least_percentile(95)
    return usual is not None and 0 < total_ms < usual


def effect_text(last: statistics.LastCalls, total_ms: int) -> str:
    """Return sentences that describe the effect that a total limit would have had on the last calls."""
    effect = last.durations.effect_of(total_ms)
    if not effect.calls and not last.durations.calls:
        return _("No call ran in the last 7 days.")
    if not effect.calls:
        return _("Every call of the last 7 days was stopped, or was governed by another limit.")
    words = _("Would have cut off %(cut)d of %(calls)d calls of the last 7 days (%(share).1f %%)")
    sentence = words % {
        "cut": effect.cut,
        "calls": effect.calls,
        "share": 100 * effect.cut / effect.calls,
    }
    if effect.cut:
        sentence += _(", %(count)d of which had succeeded") % {"count": effect.succeeded}
    sentence += "."
    if effect.unknown:
        uncounted = ngettext(
            " Unknown for %(count)d call that timed out below this limit.",
            " Unknown for %(count)d calls that timed out below this limit.",
            effect.unknown,
        )
        sentence += uncounted % {"count": effect.unknown}
    if uncounted_calls := last.durations.calls - effect.calls:
        uncounted = ngettext(
            " Not counted: %(count)d call that was stopped, or that another limit governed.",
            " Not counted: %(count)d calls that were stopped, or that another limit governed.",
            uncounted_calls,
        )
        sentence += uncounted % {"count": uncounted_calls}
    return (
        sentence
        if last.is_exact
        else sentence + _(" The durations of older calls are approximate (within 1/16).")
    )
