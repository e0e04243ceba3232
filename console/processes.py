"""Admin pages for processes: state, limits version, turns and abandoned work."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.filters import ANY, ConditionFilter, TimeFilter
from console.formats import NOTHING, Column, Status, Tone, format_span, format_time
from console.links import Link, address_of_list, address_of_row, anchor, reader_of, turns_address
from console.lists import HistoryList
from governance import selectors
from governance.db_clock import database_now
from turns.conf import app_settings
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.models import Process, Turn
from turns.models.processes import LOST, ProcessEnding
from turns.processes.process_registry import is_stale


class EndedFilter(ConditionFilter):
    """A filter by state. It shows the processes that have not ended, unless another choice is made."""

    title = gettext_lazy("state")
    parameter_name = "state"
    conditions = {
        "lost": (gettext_lazy("Died or stopped responding"), Q(ending__in=LOST)),
        "died": (gettext_lazy("Died"), Q(ending=ProcessEnding.DIED)),
        "silent": (gettext_lazy("Stopped responding"), Q(ending=ProcessEnding.SILENT)),
        "stopped": (gettext_lazy("Stopped"), Q(ending=ProcessEnding.STOPPED)),
        "ended": (gettext_lazy("Ended"), Q(ended_at__isnull=False)),
        "all": (gettext_lazy("All"), Q()),
    }

    def choices(self, changelist: Any) -> Any:
        """Return the choices, with a name for the default one."""
        first, *others = super().choices(changelist)
        return [{**first, "display": _("Not ended")}, *others]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Apply the choice; by default, leave out processes that have ended."""
        return super().queryset(
            request, queryset if self.value() else queryset.filter(ended_at=None)
        )


class EndTimeFilter(TimeFilter):
    """A filter by the end time."""

    title = gettext_lazy("end time")
    field_name = "ended_at"


def status_of(process: Process, now: datetime) -> Status:
    """Return whether the process is alive, draining or stale or, if it has ended, how it ended."""
    if process.ended_at is not None:
        tone = Tone.BAD if process.ending in LOST else Tone.QUIET
        return Status(process.get_ending_display() or _("ended"), tone)
    if is_stale(process, now):
        return Status(_("stale: not responding"), Tone.BAD)
    if process.draining_at:
        return Status(_("draining: starts no new turns"), Tone.LOOK)
    return Status(_("alive"), Tone.GOOD)


def _state(process: Any) -> Status:
    return status_of(process, process.view.now)


def _lease_age(process: Any) -> str:
    """Return the time since a process's last heartbeat."""
    if process.ended_at is not None or process.seen_at is None:
        return NOTHING
    age = max((process.view.now - process.seen_at).total_seconds(), 0)
    return _("%(age)s ago") % {"age": format_span(round(age * 1_000))}


def _limits(process: Any) -> str:
    """Return a process's version of the limits, and whether that is the latest."""
    if process.ended_at is not None or process.policy_version == process.view.version:
        return _("version %(version)s") % {"version": process.policy_version}
    return _("version %(version)s, behind") % {"version": process.policy_version}


def _live_turns(process: Any) -> SafeString | str:
    running = address_of_list(reader_of(process), "turns_runningturn", owner=process.pk)
    return anchor(Link(str(process.view.live), running))


def _past_turns(process: Process) -> SafeString | str:
    """Return a link to the turns that a process ran, including those that were queued before it started."""
    any_time = {TimeFilter.parameter_name: ANY}
    address = turns_address(reader_of(process), process=process.pk, **any_time)
    return anchor(Link(_("All turns of this process"), address)) if address else NOTHING


def _lost_turns_link(process: Process, reader: Any) -> Link:
    """Return a link to the turns that the end of a process interrupted."""
    filters = {
        "process": process.pk,
        "status__exact": TurnStatus.INTERRUPTED.value,
        TimeFilter.parameter_name: ANY,
    }
    return Link(str(process.lost_turns), turns_address(reader, **filters))


def _lost_turns(process: Any) -> SafeString | str:
    link = _lost_turns_link(process, reader_of(process))
    return anchor(link) if process.lost_turns else NOTHING


class ProcessAdmin(HistoryList):
    """The admin list of the processes of this site, newest first."""

    is_exported = False  # it shows the current state
    change_list_template = "console/processes.html"
    list_display = [
        "process", "role", "state", "lease_age", "limits", "code", "live_turns", "lost", "abandoned",
    ]  # fmt: skip
    list_filter = [EndedFilter, EndTimeFilter, "role"]
    fields = [
        "process", "role", "host", "pid", "state", "lease_age", "limits", "code", "turn_limit", "live_turns",
        "past_turns", "lost", "abandoned", "has_shared_layer", "started", "draining", "ended",
    ]  # fmt: skip

    process = Column(gettext_lazy("process"), str, ordering="name")
    state = Column(gettext_lazy("state"), _state)
    lease_age = Column(gettext_lazy("lease renewed"), _lease_age, ordering="seen_at")
    limits = Column(gettext_lazy("limits"), _limits, ordering="policy_version")
    code = Column(  # empty if the process runs from a source tree
        gettext_lazy("code version"),
        lambda process: process.code_version or NOTHING,
        ordering="code_version",
    )
    live_turns = Column(gettext_lazy("live turns"), _live_turns)
    lost = Column(gettext_lazy("lost turns"), _lost_turns, ordering="lost_turns")
    past_turns = Column(gettext_lazy("past turns"), _past_turns)
    started = Column(gettext_lazy("started"), lambda process: format_time(process.started_at))
    draining = Column(
        gettext_lazy("draining since"), lambda process: format_time(process.draining_at)
    )
    ended = Column(gettext_lazy("ended"), lambda process: format_time(process.ended_at))

    def prepare_rows(self, request: HttpRequest, rows: Iterable[Any]) -> None:
        """Read the values with which the rows are compared, once for all rows."""
        super().prepare_rows(request, rows)
        _compare(rows)

    def sentence(self, row: Process) -> str:
        return f"{row}, {_state(row).words}"

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the list, with an explanation of what a stale process is."""
        ttl = format_span(round(app_settings.LEASE_TTL * 1_000))
        context = {
            "title": _("Processes"),
            "ttl": ttl,
            "version": selectors.policy_version(),
            "is_nav_sidebar_enabled": False,  # the table needs the full width
        }
        return super().changelist_view(request, {**(extra_context or {}), **context})


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """The values with which the rows are compared: the current time, the version of the limits, the live turns."""

    now: datetime
    version: int
    live: int


def _compare(processes: Iterable[Any]) -> None:
    now, version = database_now(), selectors.policy_version()
    live_turns = Turn.objects.filter(ended_at=None, status__in=ACTIVE_STATUSES).order_by()
    live = dict(live_turns.exclude(owner=None).values_list("owner").annotate(Count("pk")))
    for process in processes:
        process.view = _View(now=now, version=version, live=live.get(process.pk, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLine:
    """One process in the overview: state, last heartbeat and lost turns."""

    process: Link
    status: Status
    seen: SafeString | str
    lost: int
    lost_turns: Link


def lines_of(
    living: Sequence[Process], now: datetime, *, reader: Any, most: int = 20
) -> list[ProcessLine]:
    """Return the processes that are running, and those that died or went stale in the last day; the worst first."""
    recent = Process.objects.filter(ending__in=LOST, ended_at__gte=now - timedelta(hours=24))
    losses = recent.order_by("-ended_at")[:most]
    lines = [_line(process, now, reader) for process in (*losses, *living)]
    order = [Tone.BAD, Tone.LOOK, Tone.GOOD]
    return sorted(lines, key=lambda line: order.index(line.status.tone))


def _line(process: Process, now: datetime, reader: Any) -> ProcessLine:
    process_link = Link(str(process), address_of_row(reader, "turns_process", process.pk))
    return ProcessLine(
        process=process_link,
        status=status_of(process, now),
        seen=format_time(process.seen_at),
        lost=process.lost_turns,
        lost_turns=_lost_turns_link(process, reader),
    )


def summary(lines: Iterable[ProcessLine]) -> str:
    """Return the number of processes in each state."""
    counts = Counter(str(line.status.words).partition(":")[0] for line in lines)
    return ", ".join(f"{count} {words}" for words, count in counts.items()) or _("none")
