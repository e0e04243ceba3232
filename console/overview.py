"""The overview: running turns, questions to people, failures in the last hour and day, and the state of processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from asgiref.sync import async_to_sync
from django.apps import apps
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from console.filters import ANY
from console.formats import Status, Tone, format_span, format_time
from console.last_day import Series, count_by_hour, total
from console.links import Link, address, address_of_list, address_of_tool
from console.page import Page
from console.processes import lines_of, summary
from console.tool_rows import CHOICES, NEAR, read_rows
from governance import selectors, statistics
from governance.core.calls import Disposition, Effects, ErrorType
from governance.models import Approval, ToolCall
from turns.core.turns import TurnStatus
from turns.models import CancelRequest, Turn
from turns.storage import site_state
from webchat import health

DAY = "24h"
MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """A number with its time span, linked to the list of the counted rows if the reader may see it."""

    value: int
    label: Any
    address: str = ""
    tone: Tone = Tone.PLAIN

    @property
    def text(self) -> str:
        return f"{self.value:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measure: its counts, a chart of the last 24 hours, and further details."""

    name: str
    label: Any
    counts: Sequence[Count]
    series: Series | None = None
    note: str = ""
    links: Sequence[Link] = ()

    @property
    def spoken(self) -> str:
        """Return the chart as text."""
        if self.series is None or not self.series.day:
            return _("none in the last 24 hours")
        return _("%(day)s in the last 24 hours, up to %(most)s in one hour") % {
            "day": self.series.day,
            "most": self.series.most,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A dependency of the site, or advice: name, state, and where to read more."""

    label: Any
    status: Status
    links: Sequence[Link] = ()
    address: str = ""


class Overview(Page):
    """The figures of one request. Users who may view turns see the counts; lists need their own permissions."""

    template = "console/overview.html"
    title = gettext_lazy("Overview")

    def __init__(self, model_admin: Any, request: HttpRequest) -> None:
        super().__init__(model_admin, request)
        self.state = site_state.read()

    def may_see(self) -> bool:
        return self.request.user.has_perm("turns.view_turn")

    @property
    def context(self) -> dict[str, Any]:
        processes = lines_of(self.state.processes, self.state.at, reader=self.request.user)
        return {
            "at": format_time(self.state.at),
            "figures": self.figures,
            "processes": processes,
            "process_words": summary(processes),
            "process_list": self._list("turns_process"),
            "checks": [self._tools(), self._servers(), *self._health()],
            "first_steps": self._first_steps(),
        }

    @cached_property
    def figures(self) -> list[Figure]:
        """Return all figures, those that may need attention first."""
        return [
            self._turns(),
            self._waiting(),
            self._ended_badly(),
            self._timeouts(),
            self._unknown(),
            self._cancels(),
        ]

    @cached_property
    def _by_status(self) -> dict[str, Series]:
        """Count the turns of the last day by status. Naming all statuses lets the database use their index."""
        turns = Turn.objects.filter(status__in=list(TurnStatus))
        return count_by_hour(turns, "queued_at", self.state.at, by="status")

    def _turns(self) -> Figure:
        queued = self.state.active.get(TurnStatus.QUEUED, 0)
        note = ""
        if queued:
            words = ngettext(
                "%(count)s waiting in the queue for %(age)s",
                "%(count)s waiting in the queue, the first for %(age)s",
                queued,
            )
            note = words % {"count": queued, "age": self._age(self.state.first_queued_at)}
        now = Count(
            value=sum(self.state.active.values()),
            label=_("now"),
            address=self._list("turns_runningturn"),
        )
        turns = total(self._by_status.values())
        return Figure(
            name="turns",
            label=_("Turns"),
            counts=[now, *self._hour_and_day(turns, "turns_turn")],
            series=turns,
            note=note,
        )

    def _waiting(self) -> Figure:
        count, first = self.state.waiting_approvals, self.state.first_approval_at
        note = _("the oldest for %(age)s") % {"age": self._age(first)} if count else ""
        address = self._list("governance_approval", decided="open", when=ANY)
        now = Count(
            value=count, label=_("now"), address=address, tone=Tone.LOOK if count else Tone.PLAIN
        )
        questions = count_by_hour(Approval.objects.all(), "requested_at", self.state.at)
        series = total(questions.values())
        return Figure(
            name="waiting",
            label=_("Waiting for people"),
            counts=[now, *self._hour_and_day(series, "governance_approval")],
            series=series,
            note=note,
        )

    def _ended_badly(self) -> Figure:
        words = {TurnStatus.INTERRUPTED: _("interrupted"), TurnStatus.FAILED: _("failed")}
        series = {status: self._by_status.get(status, Series()) for status in words}
        badly = total(series.values())
        return Figure(
            name="badly",
            label=_("Turns that failed or were interrupted"),
            counts=self._hour_and_day(badly, "turns_turn", tone=Tone.BAD, happened="ended_badly"),
            series=badly,
            links=[
                self._part("turns_turn", series[status].day, name, status__exact=status.value)
                for status, name in words.items()
            ],
        )

    def _timeouts(self) -> Figure:
        calls = ToolCall.objects.filter(error_type=ErrorType.TIMEOUT)
        by_tool = count_by_hour(calls, "requested_at", self.state.at, by="tool_name")
        timeouts = total(by_tool.values())
        often = sorted(by_tool.items(), key=lambda item: (-item[1].day, item[0]))
        filters = {"happened": "timed_out"}
        turns = self._by_status.get(TurnStatus.TIMED_OUT, Series()).day
        return Figure(
            name="timeouts",
            label=_("Calls that timed out"),
            counts=self._hour_and_day(timeouts, "governance_toolcall", tone=Tone.LATE, **filters),
            series=timeouts,
            links=[
                *(
                    self._part("governance_toolcall", of_tool.day, tool, tool=tool, **filters)
                    for tool, of_tool in often[:MOST_NAMED]
                ),
                self._part(
                    "turns_turn", turns, _("whole turns"), status__exact=TurnStatus.TIMED_OUT.value
                ),
                *self._top_lists(),
            ],
        )

    def _cancels(self) -> Figure:
        requests = CancelRequest.objects.all()
        cancels = total(count_by_hour(requests, "requested_at", self.state.at).values())
        return Figure(
            name="cancels",
            label=_("Cancels"),
            counts=self._hour_and_day(cancels, "turns_cancelrequest"),
            series=cancels,
            links=self._top_lists(),
        )

    def _top_lists(self) -> list[Link]:
        """Return a link to the page with timeouts and cancels by user, agent and tool, if the reader may see it."""
        if not self._list("governance_toolcall"):
            return []
        page = address(self.request.user, "governance_top_lists")
        return [Link(_("by user, agent and tool"), page)]

    def _unknown(self) -> Figure:
        calls = ToolCall.objects.filter(disposition=Disposition.INDETERMINATE)
        unknown = total(count_by_hour(calls, "requested_at", self.state.at).values())
        filters = {"disposition__exact": Disposition.INDETERMINATE.value}
        cut = ToolCall.objects.filter(effects=Effects.CUT)
        affected = total(count_by_hour(cut, "requested_at", self.state.at).values()).day
        return Figure(
            name="unknown",
            label=_("Calls with an unknown outcome"),
            counts=self._hour_and_day(unknown, "governance_toolcall", tone=Tone.LOOK, **filters),
            series=unknown,
            note=_("They may still run, or may have had an effect.") if unknown.day else "",
            links=[
                self._part(
                    "governance_toolcall",
                    affected,
                    _("stopped midway, with side effects:"),
                    happened="cut",
                )
            ],
        )

    def _hour_and_day(
        self, series: Series, model: str, *, tone: Tone = Tone.PLAIN, **filters: str
    ) -> list[Count]:
        numbers = {"1h": (series.hour, _("last hour")), DAY: (series.day, _("last 24 hours"))}
        return [
            Count(
                value=number,
                label=label,
                address=self._list(model, **filters, when=span),
                tone=tone if number else Tone.PLAIN,
            )
            for span, (number, label) in numbers.items()
        ]

    def _part(self, model: str, count: int, name: str, **filters: str) -> Link:
        """Return a part of a figure in the last 24 hours, linked to its list."""
        address = self._list(model, **filters, when=DAY) if count else ""
        return Link(f"{name} {count:,}", address)

    def _tools(self) -> Check:
        is_near = CHOICES[NEAR][1]
        rows = [row for row in read_rows(statistics.read(statistics.SPANS[DAY])) if is_near(row)]
        may_see = self.request.user.has_perm("governance.view_toolpolicy")
        words = _("%(count)d with p95 at 80 %% of the limit or more in the last 24 hours")
        return Check(
            label=_("Tools near the limit"),
            status=Status(words % {"count": len(rows)}, Tone.LOOK)
            if rows
            else Status(_("none"), Tone.GOOD),
            links=[
                Link(row.name, address_of_tool(self.request.user, row.name))
                for row in rows[:MOST_NAMED]
                if may_see
            ],
            address=self._list("governance_toolpolicy", show=NEAR, span=DAY),
        )

    def _servers(self) -> Check:
        in_use, unwell = selectors.mcp_health()
        words = _("%(count)d in use") % {"count": in_use}
        if unwell:
            words += ", " + _("%(count)d unhealthy") % {"count": unwell}
        tone = Tone.BAD if unwell else Tone.GOOD if in_use else Tone.PLAIN
        return Check(
            label=_("MCP servers"),
            status=Status(words, tone),
            address=self._list("governance_mcpserver"),
        )

    def _health(self) -> list[Check]:
        """Return the checks that the chat page's `/readyz` runs, if the site has it."""
        if not apps.is_installed("webchat"):
            return []
        address = _address("webchat:readyz")
        good, bad = (
            Status(_("responding"), Tone.GOOD),
            Status(_("not responding in time"), Tone.BAD),
        )
        return [
            Check(label=label, status=good if answers else bad, address=address)
            for label, answers in async_to_sync(health.ask_all)()
        ]

    def _first_steps(self) -> list[Link]:
        """Return the first steps for a site without turns; empty for others."""
        if self._by_status or Turn.objects.exists():
            return []
        steps = [
            Link(_("Open the chat and send a message"), _address("webchat:conversations")),
            Link(_("Review the limits of the tools"), self._list("governance_toolpolicy")),
            Link(_("Choose the agents’ model and tools"), self._list("turns_agent")),
            Link(_("Give your colleagues the permissions they need"), self._list("auth_group")),
        ]
        return [step for step in steps if step.address]

    def _age(self, since: datetime | None) -> str:
        return format_span(round(self.state.age(since)) * 1_000)

    def _list(self, model: str, **filters: str) -> str:
        """Return the address of a filtered list; empty if the reader may not see it."""
        return address_of_list(self.request.user, model, **filters)


def _address(name: str) -> str:
    """Return the address of a chat page; empty if the site does not have it."""
    try:
        return reverse(name)
    except NoReverseMatch:
        return ""
