"""The timeline of a turn, as a chart and as a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _

from console.charts import BOTTOM, RIGHT, TOP, WIDTH, Chart
from console.clocks import ClockPauses, Pauses
from console.formats import NOTHING, call_status, format_span, format_time
from console.links import address_of_row, reader_of
from governance import approval_store, selectors
from governance.db_clock import database_now
from turns.models import Turn

MOST = 100  # rows
LEFT, LINE = 204, 22
_TOOK = 80  # pixels for the last duration
_BREADTH = WIDTH - LEFT - RIGHT - _TOOK
_LABEL_SHOWN = 28
_NARROWEST = 2.0
_MARK_GAP = 4
_TICKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """An activity or, if `is_moment`, a single event. `limit` is the time at which it had to end."""

    kind: str
    label: str
    begin: datetime
    end: datetime | None = None
    is_moment: bool = False
    limit: datetime | None = None
    address: str = ""


def facts_of(turn: Turn) -> list[Fact]:
    """Return the turn's own activities, then all others in chronological order."""
    clocks, at = ClockPauses([turn]), database_now()
    facts = [
        *_waits_of(turn),
        *_calls_of(turn, clocks, at),
        *_requests_of(turn),
        *_repairs_of(turn),
    ]
    if turn.ended_at is not None:
        label = _("settled: %(status)s") % {"status": turn.get_status_display()}
        facts.append(Fact(kind="settled", label=label, begin=turn.ended_at, is_moment=True))
    return [*_own_facts(turn, clocks.of(turn.pk), at), *sorted(facts, key=lambda fact: fact.begin)]


def _own_facts(turn: Turn, pauses: Pauses, at: datetime) -> Iterator[Fact]:
    """Yield the turn's time in the queue and its running time."""
    yield Fact(
        kind="queued",
        label=_("queued"),
        begin=turn.queued_at,
        end=turn.started_at or turn.ended_at,
    )
    if turn.started_at is not None:
        yield Fact(
            kind="ended",
            label=_("running"),
            begin=turn.started_at,
            end=turn.ended_at,
            limit=_after(turn.started_at, turn.turn_timeout_ms, pauses.lasted(at)),
        )


def timeline(turn: Turn) -> SafeString:
    facts = facts_of(turn)
    left_out, facts = max(len(facts) - MOST, 0), facts[:MOST]
    now = database_now()
    last = max(_end(fact, now) for fact in facts)
    axis = _Axis(turn.queued_at, max(last - turn.queued_at, timedelta(milliseconds=1)))
    sentence = _("%(span)s from the message to the last event.") % {
        "span": format_span(_ms(last - turn.queued_at))
    }
    if left_out:
        sentence += " " + _("%(count)d more are not shown.") % {"count": left_out}
    chart = Chart(
        title=_("Timeline"),
        told=sentence,
        heads=(_("Event"), _("Start"), _("End"), _("Duration"), _("Limit at")),
        rows=map(_row, facts),
        role="group",
        height=TOP + LINE * len(facts) + BOTTOM,
        left=LEFT,
    )
    for number in range(_TICKS):  # along the axis, relative to the message
        offset = axis.span * number / _TICKS
        chart.under(axis.x(axis.begin + offset), format_span(_ms(offset)))
    for place, fact in enumerate(facts):
        _draw(chart, axis, TOP + LINE * place, fact, now)
    return chart.__html__()


def _calls_of(turn: Turn, clocks: ClockPauses, at: datetime) -> list[Fact]:
    return [
        Fact(
            kind="ended" if call.started_at and not call.error_type else "cut",
            label=f"{call.tool_name}: {call_status(call)}",
            begin=call.started_at or call.requested_at,
            end=call.ended_at,
            limit=call.started_at
            and _after(
                call.started_at, call.timeout_ms, clocks.of(turn.pk, call.call_id).lasted(at)
            ),
            address=address_of_row(reader_of(turn), "governance_toolcall", call.pk),
        )
        for call in selectors.calls_of_group(str(turn.pk))
    ]


def _waits_of(turn: Turn) -> list[Fact]:
    return [
        Fact(
            kind="waiting",
            label=_("waiting for a person: %(tool)s") % {"tool": question.tool_name},
            begin=question.requested_at,
            end=question.decided_at,
            address=address_of_row(reader_of(turn), "governance_approval", question.pk),
        )
        for question in approval_store.questions_of_group(str(turn.pk))
        if not question.is_late  # a late decision had no effect
    ]


def _requests_of(turn: Turn) -> list[Fact]:
    words = _("cancel requested: %(what)s")
    return [
        Fact(
            kind="waiting",
            label=words % {"what": request.tool_id or _("the turn")},
            begin=request.requested_at,
            end=request.settled_at,
            address=address_of_row(reader_of(turn), "turns_cancelrequest", request.pk),
        )
        for request in turn.cancel_requests.all()
    ]


def _repairs_of(turn: Turn) -> list[Fact]:
    words = _("repaired: %(what)s")
    return [
        Fact(
            kind="settled",
            label=words % {"what": repair.get_kind_display()},
            begin=repair.at,
            is_moment=True,
            address=address_of_row(reader_of(turn), "turns_repair", repair.pk),
        )
        for repair in turn.repairs.all()
    ]


@dataclass(frozen=True, slots=True)
class _Axis:
    begin: datetime
    span: timedelta

    def x(self, at: datetime) -> float:
        """Return the position of a time, kept within the chart."""
        place = LEFT + _BREADTH * ((at - self.begin) / self.span)
        return round(min(max(place, LEFT), WIDTH - RIGHT), 1)


def _draw(chart: Chart, axis: _Axis, top: int, fact: Fact, now: datetime) -> None:
    """Draw one row: label, limit, bar and duration."""
    begin, end = axis.x(fact.begin), axis.x(_end(fact, now))

    def bar(kind: str, until: float, gap: int, **link: str) -> None:
        width = max(round(until - begin, 1), _NARROWEST)
        place = {"x": begin, "y": top + gap, "width": width, "height": LINE - 2 * gap}
        chart.draw("bar", name=kind, **place, **link)

    chart.text(4, top + 15, Truncator(fact.label).chars(_LABEL_SHOWN))
    if fact.limit is not None:
        bar("allowed", axis.x(fact.limit), 2)
    bar(fact.kind, end, 5, address=fact.address, spoken=fact.label)
    if not fact.is_moment:
        chart.text(end + _MARK_GAP, top + 15, _took(fact, now))


def _row(fact: Fact) -> Sequence[Any]:
    label = fact.label
    if fact.address:
        label = format_html('<a href="{}">{}</a>', fact.address, fact.label)
    if fact.is_moment:
        return label, format_time(fact.begin), NOTHING, NOTHING, NOTHING
    until = format_time(fact.end) if fact.end else _("not ended")
    took = format_span(_ms(fact.end - fact.begin)) if fact.end else NOTHING
    return label, format_time(fact.begin), until, took, format_time(fact.limit)


def _end(fact: Fact, now: datetime) -> datetime:
    return fact.begin if fact.is_moment else fact.end or now


def _took(fact: Fact, now: datetime) -> str:
    return format_span(_ms(_end(fact, now) - fact.begin))


def _after(begin: datetime, limit_ms: int | None, waited: timedelta) -> datetime | None:
    """Return when a limit is reached if its clock was paused for `waited`; None if there is no limit."""
    return begin + timedelta(milliseconds=limit_ms) + waited if limit_ms else None


def _ms(span: timedelta) -> int:
    return max(round(span.total_seconds() * 1_000), 0)
