"""Charts as SVG, drawn by a template on the server, without scripts and with the colors of the style sheet.

This module computes positions. Each chart is accompanied by a table with the same numbers.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from typing import Any

from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localdate, localtime, make_aware
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from console.formats import format_span
from console.tool_rows import timeouts_text
from governance.core.histograms import TIMEOUTS, CallDurations, End, bin_of, longest_of
from governance.durations import format_duration
from governance.labels import cancel_sources, label_for, timeouts
from governance.statistics import Day
from turns.models import CancelRequest, Repair
from turns.models.labels import repair_causes

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 22, 26
BINS_OF_A_BAR = 8  # a bar spans half a doubling of the duration
TICKS_MS = (1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000)
_BREADTH, _DEPTH = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
_MARK_GAP = 3
_LABEL_ROOM = 48  # between the starts of two axis labels
_PATTERNS = ("ended", "cut", "other")
PROMISED_MS = 1_000  # the time within which a cancel must take effect
_LABELS = 8  # approximate number of day labels under a chart


@dataclass(kw_only=True)
class Chart:
    """A chart: its texts, and its shapes in drawing order.

    A chart with links has the role `group`, because screen readers cannot reach the parts of an image. If a daily chart
    is wider than the screen, it is scrolled to the last day.
    """

    title: str
    told: str
    heads: Sequence[str]
    rows: Iterable[Sequence[object]]
    role: str = "img"
    height: int = HEIGHT
    left: int = LEFT
    is_by_day: bool = False
    legend: Sequence[tuple[str, Any]] = ()  # the class and text of each kind of shape
    has_lines: bool = False
    shapes: list[dict[str, Any]] = field(default_factory=list)
    width: int = WIDTH
    right: int = WIDTH - RIGHT

    @property
    def floor(self) -> int:
        return self.height - BOTTOM

    def draw(self, kind: str, **shape: Any) -> None:
        self.shapes.append({"kind": kind, **shape})

    def text(self, x: float, y: float, words: str) -> None:
        """Add text that starts at a position."""
        self.draw("text", x=x, y=y, words=words)

    def under(self, x: float, words: str) -> None:
        """Add text below the axis. Near its right end, the text ends where the axis ends, so that the edge cuts nothing off."""
        is_end = x > self.right - _LABEL_ROOM
        place = self.right if is_end else x
        self.draw("text", x=place, y=self.height - 8, words=words, is_end=is_end)

    def stack(
        self, left: float, breadth: float, parts: Iterable[tuple[str, int, Any]], most: int
    ) -> None:
        """Add a stacked bar; each part has a class, a count and text."""
        below, width = 0, max(round(breadth - 2, 1), 1)
        for name, count, words in parts:
            if count:
                top, bottom = _y((below + count) / most), _y(below / most)
                height = round(bottom - top, 1)
                self.draw(
                    "bar", name=name, x=left + 1, y=top, width=width, height=height, words=words
                )
                below += count

    def __str__(self) -> SafeString:
        return render_to_string("console/chart.html", {"chart": self})

    __html__ = __str__


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A time at which a limit changed, with a link to the change."""

    at: datetime
    label: str
    address: str


def _x(share: float) -> float:
    return round(LEFT + _BREADTH * share, 1)


def _y(share: float) -> float:
    return round(TOP + _DEPTH * (1 - share), 1)


def histogram(durations: CallDurations, *, limit_ms: int) -> Chart | SafeString:
    """Return a chart of the durations of calls on a logarithmic axis, with the limit, the p95 and the timeouts."""
    counts = _counts(durations)
    bars = sorted({bar for of_end in counts.values() for bar in of_end})
    if not bars:
        return format_html("<p>{}</p>", _("No calls ran in this time range."))
    usual = durations.percentile(95)
    chart = Chart(
        title=_("Durations of calls"),
        told=_histogram_text(durations, limit_ms=limit_ms, usual=usual),
        heads=(_("Duration"), *map(str, _LEGEND.values())),
        rows=[(_range(bar), *(counts[name][bar] for name in _LEGEND)) for bar in bars],
        legend=[(name, words) for name, words in _LEGEND.items() if counts[name]],
    )
    lines = [("limit", limit_ms, _("limit")), ("usual", usual or 0, "p95")]
    _draw_histogram(chart, bars, counts, [line for line in lines if line[1]])
    return chart


def _draw_histogram(
    chart: Chart,
    bars: Sequence[int],
    counts: Mapping[str, Counter[int]],
    lines: Sequence[tuple[str, int, str]],
) -> None:
    places = [*bars, *(_bar_position(span) for _name, span, _label in lines)]
    first, last = int(min(places)), int(max(places)) + 1
    most = max(sum(of_end[bar] for of_end in counts.values()) for bar in bars)

    def x(place: float) -> float:
        return _x((place - first) / (last - first))

    chart.text(4, TOP + 10, str(most))
    free_from = 0.0
    for span in TICKS_MS:
        if first <= (place := _bar_position(span)) <= last:
            if x(place) >= free_from:
                chart.under(x(place), format_duration(span))
                free_from = x(place) + _LABEL_ROOM
            chart.draw("line", name="tick", x=x(place), y=chart.floor, until=chart.floor + 5)
    for bar in bars:
        parts = [
            (name, counts[name][bar], f"{words}: {counts[name][bar]}")
            for name, words in _LEGEND.items()
        ]
        chart.stack(x(bar), x(bar + 1) - x(bar), parts, most)
    for name, span, label in lines:
        left = x(_bar_position(span))
        is_late = left > WIDTH * 0.75  # so its label is drawn on the left, where there is room
        chart.draw("line", name=name, x=left, y=TOP - 8, until=chart.floor)
        chart.draw(
            "text",
            x=left - _MARK_GAP if is_late else left + _MARK_GAP,
            y=TOP - 10 if name == "limit" else TOP,
            words=f"{label} {format_span(span)}",
            is_end=is_late,
        )


def _counts(durations: CallDurations) -> dict[str, Counter[int]]:
    """Count, per bar, the calls that ended on their own, those cut off by the tool's limit, and those cut off by
    another limit.
    """
    counts = {name: Counter[int]() for name in _LEGEND}
    for end, spans in durations.spans.items():
        if end in (End.STOPPED, End.TURN):
            continue
        name = "ended" if end not in TIMEOUTS else _class_of(end)
        for span, count in spans.items():
            counts[name][bin_of(span) // BINS_OF_A_BAR] += count
    return counts


def _class_of(timeout: End) -> str:
    return "cut" if timeout is End.TIMED_OUT else "other"


def _histogram_text(durations: CallDurations, *, limit_ms: int, usual: int | None) -> str:
    words = ngettext(
        "%(calls)d call, %(cut)s timed out. Limit: %(limit)s. p95: %(usual)s.",
        "%(calls)d calls, %(cut)s timed out. Limit: %(limit)s. p95: %(usual)s.",
        durations.not_stopped,
    )
    by_limit = timeouts_text(durations)
    return words % {
        "calls": durations.not_stopped,
        "cut": f"{durations.timeouts} ({by_limit})" if by_limit else durations.timeouts,
        "limit": format_duration(limit_ms) if limit_ms else _("none"),
        "usual": _("unknown") if usual is None else format_span(usual),
    }


_LEGEND = {  # by the CSS class of the bars
    "ended": gettext_lazy("Ended on their own"),
    "cut": gettext_lazy("Timed out at the tool’s limit"),
    "other": gettext_lazy("Timed out at another limit"),
}


def _bar_position(span: float) -> float:
    return bin_of(int(span)) / BINS_OF_A_BAR


def _range(bar: int) -> str:
    longest = longest_of((bar + 1) * BINS_OF_A_BAR - 1)
    return _("up to %(longest)s") % {"longest": format_duration(longest)}


def timeouts_by_day(days: Sequence[Day], marks: Iterable[Mark]) -> Chart:
    """Return the timeouts per day and limit, with a mark for each change of the limit."""
    words = dict(timeouts())
    ends = [end for end in TIMEOUTS if any(day.ends[end] for day in days)]
    chart = Chart(
        title=_("Timeouts by day"),
        told=_("%(cut)d of %(calls)d calls timed out in %(days)d days.")
        % {
            "cut": sum(day.timeouts for day in days),
            "calls": sum(day.not_stopped for day in days),
            "days": len(days),
        },
        heads=(_("Day"), _("Calls"), _("Timed out"), *(words[end] for end in ends)),
        rows=[
            (
                f"{day.date:%Y-%m-%d}",
                day.not_stopped,
                day.timeouts,
                *(day.ends[end] for end in ends),
            )
            for day in days
        ],
        role="group",
        is_by_day=True,
        legend=[(name, _LEGEND[name]) for name in dict.fromkeys(map(_class_of, ends))],
    )
    most = max((day.timeouts for day in days), default=0)
    chart.text(4, TOP + 10, str(most))
    for place, day in enumerate(days):
        left, right = _x(place / len(days)), _x((place + 1) / len(days))
        parts = [(_class_of(end), day.ends[end], f"{day.ends[end]} {words[end]}") for end in ends]
        chart.stack(left, right - left, parts, max(most, 1))
        if (len(days) - 1 - place) % 7 == 0:  # labels every seventh day, counted back from the last
            chart.under(left, _day(day.date))
    places = {day.date: place for place, day in enumerate(days)}
    for mark in marks:
        if (on := places.get(mark.at.date())) is not None:
            x, until = _x((on + 0.5) / len(days)), chart.floor
            about = {"address": mark.address, "words": mark.label}
            chart.draw("mark", x=x, y=TOP, until=until, top=TOP - 10, **about)
    return chart


def cancel_latency(days: int) -> list[Chart]:
    """Return one chart per source, with the daily median and p99 of the time until a cancel took effect (B5).

    Cancels that take effect only after the current step are left out, because they wait by design.
    """
    dates = _days(days)
    requests = CancelRequest.objects.filter(
        requested_at__gte=_start_of(dates[0]), settled_ms__isnull=False, mode="now"
    ).order_by()
    times: defaultdict[str, defaultdict[date, list[int]]] = defaultdict(lambda: defaultdict(list))
    for source, at, took in requests.values_list("source", "requested_at", "settled_ms").iterator():
        times[source][localtime(at).date()].append(took or 0)
    return [_latency_of(source, times[source], dates) for source in sorted(times)]


def _latency_of(source: str, times: dict[date, list[int]], dates: Sequence[date]) -> Chart:
    medians = [percentile(times.get(day, ()), 50) for day in dates]
    p99s = [percentile(times.get(day, ()), 99) for day in dates]
    everything = [took for of_day in times.values() for took in of_day]
    sentence = ngettext(
        "%(count)d cancel. p50: %(median)s. p99: %(p99)s.",
        "%(count)d cancels. p50: %(median)s. p99: %(p99)s.",
        len(everything),
    )
    chart = Chart(
        title=label_for(source, cancel_sources()),
        told=sentence
        % {
            "count": len(everything),
            "median": format_span(percentile(everything, 50)),
            "p99": format_span(percentile(everything, 99)),
        },
        heads=(_("Day"), _("Cancels"), "p50", "p99"),
        rows=[
            (f"{day:%Y-%m-%d}", len(times.get(day, ())), format_span(median), format_span(p99))
            for day, median, p99 in zip(dates, medians, p99s, strict=True)
        ],
        is_by_day=True,
        has_lines=True,
        legend=[("median", "p50"), ("p99", "p99"), ("limit", _("promised: at most 1 s"))],
    )
    most = max(
        *everything, PROMISED_MS
    )  # all charts have the same scale, unless a cancel took longer than promised
    _draw_days(chart, dates, format_span(most))
    promised = _y(PROMISED_MS / most)
    chart.draw("across", name="limit", y=promised)
    if most != PROMISED_MS:
        chart.text(4, promised, format_span(PROMISED_MS))
    for name, label, values in (("median", "p50", medians), ("p99", "p99", p99s)):
        _draw_line(chart, name, label, values, most)
    return chart


def _draw_line(
    chart: Chart, name: str, label: str, values: Sequence[int | None], most: int
) -> None:
    """Draw a line through the days with a value, with a labeled dot on each."""
    points = [
        (_x((place + 0.5) / len(values)), _y(value / most), value)
        for place, value in enumerate(values)
        if value is not None
    ]
    chart.draw("path", name=name, points=[(x, y) for x, y, _value in points])
    for x, y, value in points:
        chart.draw("dot", name=name, x=x, y=y, words=f"{label} {format_span(value)}")


def repairs_by_day(days: int) -> list[Chart]:
    """Return the number of repairs per day and cause."""
    dates = _days(days)
    counts = _repairs_since(dates[0])
    causes = sorted({cause for of_day in counts.values() for cause in of_day})
    if not causes:
        return []
    words = {cause: label_for(cause, repair_causes()) for cause in causes}
    total = sum(of_day.total() for of_day in counts.values())
    most = max(of_day.total() for of_day in counts.values())
    sentence = ngettext(
        "%(count)d repair in %(days)d days.", "%(count)d repairs in %(days)d days.", total
    )
    chart = Chart(
        title=_("Repairs by day"),
        told=sentence % {"count": total, "days": days},
        heads=(_("Day"), _("Repairs"), *words.values()),
        rows=[
            (f"{day:%Y-%m-%d}", counts[day].total(), *(counts[day][cause] for cause in causes))
            for day in dates
        ],
        is_by_day=True,
        legend=[(_pattern(number), label) for number, label in enumerate(words.values())],
    )
    _draw_days(chart, dates, str(most))
    for place, day in enumerate(dates):
        parts = [
            (
                _pattern(number),
                counts[day][cause],
                f"{label}: {counts[day][cause]}",
            )
            for number, (cause, label) in enumerate(words.items())
        ]
        chart.stack(_x(place / len(dates)), _BREADTH / len(dates), parts, most)
    return [chart]


def _pattern(number: int) -> str:
    return _PATTERNS[number % len(_PATTERNS)]


def _repairs_since(day: date) -> defaultdict[date, Counter[str]]:
    repairs = Repair.objects.filter(at__gte=_start_of(day)).order_by()
    counts: defaultdict[date, Counter[str]] = defaultdict(Counter)
    for at, cause in repairs.values_list("at", "cause").iterator():
        counts[localtime(at).date()][cause] += 1
    return counts


def percentile(values: Sequence[int], percent: int) -> int | None:
    """Return a percentile by the nearest-rank method; None if there are no values."""
    ordered = sorted(values)
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None


def _days(count: int) -> list[date]:
    today = localdate()
    return [today - timedelta(days=ago) for ago in reversed(range(count))]


def _start_of(day: date) -> datetime:
    return make_aware(datetime.combine(day, time.min))


def _draw_days(chart: Chart, days: Sequence[date], most: str) -> None:
    chart.text(4, TOP + 10, most)
    step = max(len(days) // _LABELS, 1)
    for place, day in list(enumerate(days))[::-step]:
        chart.under(_x(place / len(days)), _day(day))


def _day(day: date) -> str:
    return f"{day:%d %b}".lstrip("0")
