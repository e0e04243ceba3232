"""Charts of the audit, day by day: how long cancels took, and how many histories were repaired and why."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localdate, localtime, make_aware
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from governance.admin.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, figure, text
from governance.admin.formatting import format_span
from governance.labels import cancel_sources, label_for
from turns.models import CancelRequest, Repair
from turns.models.labels import repair_causes

_BREADTH, _DEPTH = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
_PATTERNS = ("ended", "cut", "other")
_LABELS = 8  # of days under a chart, about
_DOT = 3


def cancel_latency(days: int) -> list[SafeString]:
    """Return a chart for each source: median and p99 of each day. They count from the request to when it had come true (B5).

    A request for an end after the step waits on purpose, and is left out.
    """
    shown = _days(days)
    requests = CancelRequest.objects.filter(
        requested_at__gte=_start_of(shown[0]), settled_ms__isnull=False, mode="now"
    ).order_by()
    times: defaultdict[str, defaultdict[date, list[int]]] = defaultdict(lambda: defaultdict(list))
    for source, at, took in requests.values_list("source", "requested_at", "settled_ms").iterator():
        times[source][localtime(at).date()].append(took or 0)
    return [_latency_of(source, times[source], shown) for source in sorted(times)]


def repairs_by_day(days: int) -> list[SafeString]:
    """Return how many repairs each day had, by cause."""
    shown = _days(days)
    counts = _repairs_since(shown[0])
    causes = sorted({cause for of_day in counts.values() for cause in of_day})
    if not causes:
        return []
    words = {cause: label_for(cause, repair_causes()) for cause in causes}
    most = max(of_day.total() for of_day in counts.values())
    drawn = [*_frame(shown, str(most))]
    for place, day in enumerate(shown):
        drawn += _stack(place / len(shown), _BREADTH / len(shown), counts[day], words, most)
    rows = [
        (f"{day:%Y-%m-%d}", counts[day].total(), *(counts[day][cause] for cause in causes))
        for day in shown
    ]
    total = sum(of_day.total() for of_day in counts.values())
    sentence = ngettext(
        "%(count)d repair in %(days)d days.", "%(count)d repairs in %(days)d days.", total
    )
    told = sentence % {"count": total, "days": days}
    heads = (_("Day"), _("Repairs"), *words.values())
    return [figure(_("Repairs by day"), told, drawn, heads, rows, is_by_day=True)]


def _repairs_since(day: date) -> defaultdict[date, Counter[str]]:
    repairs = Repair.objects.filter(at__gte=_start_of(day)).order_by()
    counts: defaultdict[date, Counter[str]] = defaultdict(Counter)
    for at, cause in repairs.values_list("at", "cause").iterator():
        counts[localtime(at).date()][cause] += 1
    return counts


def percentile(values: Sequence[int], percent: int) -> int | None:
    """Return the value at the nearest rank; None without values."""
    ordered = sorted(values)
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None


def _latency_of(source: str, times: dict[date, list[int]], shown: Sequence[date]) -> SafeString:
    medians = [percentile(times.get(day, ()), 50) for day in shown]
    p99s = [percentile(times.get(day, ()), 99) for day in shown]
    everything = [took for of_day in times.values() for took in of_day]
    most = max(max(everything), 1)
    drawn = [
        *_frame(shown, format_span(most)),
        *_line("median", medians, most),
        *_line("p99", p99s, most),
    ]
    told = ngettext(
        "%(count)d cancel. p50: %(median)s. p99: %(p99)s.",
        "%(count)d cancels. p50: %(median)s. p99: %(p99)s.",
        len(everything),
    ) % {
        "count": len(everything),
        "median": format_span(percentile(everything, 50)),
        "p99": format_span(percentile(everything, 99)),
    }
    rows = [
        (f"{day:%Y-%m-%d}", len(times.get(day, ())), format_span(median), format_span(p99))
        for day, median, p99 in zip(shown, medians, p99s, strict=True)
    ]
    heads = (_("Day"), _("Cancels"), "p50", "p99")
    return figure(label_for(source, cancel_sources()), told, drawn, heads, rows, is_by_day=True)


def _days(count: int) -> list[date]:
    today = localdate()
    return [today - timedelta(days=ago) for ago in reversed(range(count))]


def _start_of(day: date) -> datetime:
    return make_aware(datetime.combine(day, time.min))


def _frame(days: Sequence[date], most: str) -> Iterable[SafeString]:
    yield text(4, TOP + 10, most)
    step = max(len(days) // _LABELS, 1)
    for place, day in list(enumerate(days))[::step]:
        yield text(_x(place / len(days)), HEIGHT - 8, f"{day:%d %b}".lstrip("0"))


def _x(share: float) -> float:
    return round(LEFT + _BREADTH * share, 1)


def _y(share: float) -> float:
    return round(TOP + _DEPTH * (1 - share), 1)


def _line(name: str, values: Sequence[int | None], most: int) -> Iterable[SafeString]:
    """A line through the days that have a value, and a dot on each of them, which says it."""
    points = [
        (_x((place + 0.5) / len(values)), _y(value / most), value)
        for place, value in enumerate(values)
        if value is not None
    ]
    path = " ".join(f"{x},{y}" for x, y, _value in points)
    yield format_html('<polyline class="{}" points="{}"/>', name, path)
    for x, y, value in points:
        yield format_html(
            '<circle class="{}" cx="{}" cy="{}" r="{}"><title>{} {}</title></circle>',
            name, x, y, _DOT, "p50" if name == "median" else name, format_span(value),
        )  # fmt: skip


def _stack(
    share: float, breadth: float, counts: Counter[str], words: dict[str, str], most: int
) -> Iterable[SafeString]:
    below = 0
    for number, (cause, label) in enumerate(words.items()):
        if not counts[cause]:
            continue
        top, bottom = _y((below + counts[cause]) / most), _y(below / most)
        yield format_html(
            '<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}: {}</title></rect>',
            _PATTERNS[number % len(_PATTERNS)], _x(share) + 1, top, max(round(breadth - 2, 1), 1),
            round(bottom - top, 1), label, counts[cause],
        )  # fmt: skip
        below += counts[cause]
