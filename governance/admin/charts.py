"""Charts as SVG, drawn on the server: no script, and colours from the style sheet. Beside each is a table with the same numbers."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from governance.admin.formatting import format_span
from governance.core.histograms import CallDurations, End, bin_of, longest_of
from governance.durations import format_duration
from governance.statistics import Day

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 22, 26
BINS_OF_A_BAR = 8  # half a doubling
TICKS_MS = (1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000)
_BREADTH, _DEPTH = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
_MARK_GAP = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A moment at which a limit changed, and where that is written down."""

    at: datetime
    label: str
    address: str


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where things stand: places along the axis from `first` to before `last`, counts up to `most`."""

    first: float
    last: float
    most: int

    def x(self, place: float) -> float:
        return round(LEFT + _BREADTH * (place - self.first) / (self.last - self.first), 1)

    def y(self, count: float) -> float:
        return round(TOP + _DEPTH * (1 - count / self.most), 1)


def histogram(durations: CallDurations, *, limit_ms: int) -> SafeString:
    """Draw how long calls ran on a logarithmic axis, with the limit, the p95 and the timeouts."""
    ended, cut = _counts(durations)
    usual = durations.percentile(95)
    bars = sorted(ended.keys() | cut.keys())
    if not bars:
        return format_html("<p>{}</p>", _("No call ran in this time."))
    lines = [("limit", limit_ms, _("limit")), ("usual", usual or 0, "p95")]
    rows = [(_range(bar), ended[bar], cut[bar]) for bar in bars]
    heads = (_("Ran"), _("Ended by themselves"), _("Ran out of time"))
    text = _histogram_text(durations, limit_ms=limit_ms, usual=usual)
    drawn = _drawn_bars(bars, ended, cut, [line for line in lines if line[1]])
    return figure(_("How long calls ran"), text, drawn, heads, rows)


def _drawn_bars(
    bars: Sequence[int],
    ended: Mapping[int, int],
    cut: Mapping[int, int],
    lines: Sequence[tuple[str, int, str]],
) -> list[SafeString]:
    places = [*bars, *(_bar_position(span) for _name, span, _label in lines)]
    scale = _Scale(
        int(min(places)), int(max(places)) + 1, max(ended[bar] + cut[bar] for bar in bars)
    )
    drawn = [*_axis(scale)]
    for bar in bars:
        drawn += _bar(scale, bar, (("ended", ended[bar]), ("cut", cut[bar])))
    drawn += [_line(scale, name, _bar_position(span), label, span) for name, span, label in lines]
    return drawn


def _counts(durations: CallDurations) -> tuple[Counter[int], Counter[int]]:
    """Count by bar the calls that ended by themselves, and those that ran out of time."""
    ended, cut = Counter[int](), Counter[int]()
    for end, spans in durations.spans.items():
        for span, count in spans.items():
            if end is not End.STOPPED:
                counts = cut if end is End.TIMED_OUT else ended
                counts[bin_of(span) // BINS_OF_A_BAR] += count
    return ended, cut


def _histogram_text(durations: CallDurations, *, limit_ms: int, usual: int | None) -> str:
    words = ngettext(
        "%(calls)d call, of which %(cut)d ran out of time. Limit: %(limit)s. p95: %(usual)s.",
        "%(calls)d calls, of which %(cut)d ran out of time. Limit: %(limit)s. p95: %(usual)s.",
        durations.judged,
    )
    return words % {
        "calls": durations.judged,
        "cut": durations.timeouts,
        "limit": format_duration(limit_ms) if limit_ms else _("none"),
        "usual": _("unknown") if usual is None else format_span(usual),
    }


def timeouts_by_day(days: Sequence[Day], marks: Iterable[Mark]) -> SafeString:
    """Return how many calls ran out of time on each day, with a mark where the limit changed."""
    most = max((day.timeouts for day in days), default=0)
    scale = _Scale(0, len(days), max(most, 1))
    places = {day.date: place for place, day in enumerate(days)}
    drawn = [text(4, TOP + 10, str(most))]
    for place, day in enumerate(days):
        drawn += _bar(scale, place, (("cut", day.timeouts),))
        if place % 7 == 0:
            label = f"{day.date:%d %b}".lstrip("0")
            drawn.append(text(scale.x(place), HEIGHT - 8, label))
    for mark in marks:
        if (on := places.get(mark.at.date())) is not None:
            drawn.append(_mark(scale, on, mark))
    rows = [(f"{day.date:%Y-%m-%d}", day.calls, day.timeouts) for day in days]
    told = _("%(cut)d of %(calls)d calls ran out of time in %(days)d days.") % {
        "cut": sum(day.timeouts for day in days),
        "calls": sum(day.calls for day in days),
        "days": len(days),
    }
    heads = (_("Day"), _("Calls"), _("Ran out of time"))
    return figure(_("Timeouts by day"), told, drawn, heads, rows, role="group", is_by_day=True)


def _bar_position(span: float) -> float:
    return bin_of(int(span)) / BINS_OF_A_BAR


def _range(bar: int) -> str:
    longest = longest_of((bar + 1) * BINS_OF_A_BAR - 1)
    return _("up to %(longest)s") % {"longest": format_duration(longest)}


def _axis(scale: _Scale) -> list[SafeString]:
    ticks = [
        (scale.x(_bar_position(span)), format_duration(span))
        for span in TICKS_MS
        if scale.first <= _bar_position(span) <= scale.last
    ]
    return [
        text(4, TOP + 10, str(scale.most)),
        *(text(place, HEIGHT - 8, label) for place, label in ticks),
        *(
            format_html(
                '<line class="tick" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>',
                place, HEIGHT - BOTTOM, HEIGHT - BOTTOM + 5,
            )
            for place, _label in ticks
        ),
    ]  # fmt: skip


def _bar(scale: _Scale, place: int, parts: Iterable[tuple[str, int]]) -> list[SafeString]:
    """One bar, of parts on top of each other."""
    left, breadth = scale.x(place), scale.x(place + 1) - scale.x(place)
    drawn, below = [], 0
    for name, count in parts:
        if count:
            top, bottom = scale.y(below + count), scale.y(below)
            drawn.append(
                format_html(
                    '<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>',
                    name, left + 1, top, max(round(breadth - 2, 1), 1), round(bottom - top, 1), count,
                )
            )  # fmt: skip
            below += count
    return drawn


def _line(scale: _Scale, name: str, place: float, label: str, span: int) -> SafeString:
    """A line across the chart, labelled on the side that has room."""
    left = scale.x(place)
    is_late = left > WIDTH * 0.75
    return format_html(
        '<line class="{}" x1="{}" x2="{}" y1="{}" y2="{}"/><text x="{}" y="{}"{}>{} {}</text>',
        name, left, left, TOP - 8, HEIGHT - BOTTOM,
        left - _MARK_GAP if is_late else left + _MARK_GAP, TOP - 10 if name == "limit" else TOP,
        SafeString(' text-anchor="end"') if is_late else "", label, format_span(span),
    )  # fmt: skip


def _mark(scale: _Scale, place: int, mark: Mark) -> SafeString:
    left = scale.x(place + 0.5)
    return format_html(
        '<a href="{}"><line class="mark" x1="{}" x2="{}" y1="{}" y2="{}"/>'
        '<path class="mark" d="M {} {} l 5 8 l -10 0 z"/><title>{}</title></a>',
        mark.address, left, left, TOP, HEIGHT - BOTTOM, left, TOP - 10, mark.label,
    )  # fmt: skip


def text(x: float, y: float, words: str) -> SafeString:
    """Words that begin at a place."""
    return format_html('<text x="{}" y="{}">{}</text>', x, y, words)


def figure(
    title: str,
    told: str,
    drawn: Iterable[SafeString],
    heads: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    role: str = "img",
    height: int = HEIGHT,
    left: int = LEFT,
    is_by_day: bool = False,
) -> SafeString:
    """The chart, its words, and its table. One with links is a `group`: an image has no parts to reach.

    One by day begins, where it is wider than the screen, with its last day.
    """
    svg = format_html(
        '<svg class="governance-chart" viewBox="0 0 {} {}" role="{}" aria-label="{}. {}">{}'
        '<line class="tick" x1="{}" x2="{}" y1="{}" y2="{}"/></svg>',
        WIDTH, height, role, title, told, format_html_join("", "{}", ((piece,) for piece in drawn)),
        left, WIDTH - RIGHT, height - BOTTOM, height - BOTTOM,
    )  # fmt: skip
    return format_html(
        "<figure{}><figcaption><strong>{}</strong> {}</figcaption>{}<details><summary>{}</summary>"
        "{}</details></figure>",
        SafeString(' class="governance-days"') if is_by_day else "",
        title, told, svg, _("The same as a table"), _table(heads, rows),
    )  # fmt: skip


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> SafeString:
    head = format_html_join("", '<th scope="col">{}</th>', ((text,) for text in heads))
    lines = format_html_join(
        "",
        "<tr>{}</tr>",
        (
            (format_html_join("", '<td class="number">{}</td>', ((cell,) for cell in row)),)
            for row in rows
        ),
    )
    return format_html("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>", head, lines)
