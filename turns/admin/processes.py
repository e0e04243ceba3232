"""Processes: who may own turns, whether it lives, what it runs with, and what it has left behind (B2, B4)."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from governance import selectors
from governance.admin.filters import ConditionFilter
from governance.admin.formatting import NOTHING, format_span, format_time
from governance.admin.links import anchor, may_open, reader_of
from governance.admin.readonly import ReadOnlyAdmin
from governance.admin.time_filter import FROM
from governance.call_links import Link
from governance.db_clock import database_now
from turns.admin.turn_links import turns_address
from turns.conf import app_settings
from turns.core.turns import ACTIVE_STATUSES
from turns.models import Process, Turn
from turns.processes.process_registry import is_stale


class EndedFilter(ConditionFilter):
    """Those that have not ended, unless others are asked for."""

    title = gettext_lazy("state")
    parameter_name = "state"
    conditions = {
        "ended": (gettext_lazy("Ended"), Q(ended_at__isnull=False)),
        "all": (gettext_lazy("All"), Q()),
    }

    def choices(self, changelist: Any) -> Any:
        """Say what no choice means."""
        first, *others = super().choices(changelist)
        return [{**first, "display": _("Not ended")}, *others]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Apply the chosen one, or leave out those that have ended."""
        return super().queryset(
            request, queryset if self.value() else queryset.filter(ended_at=None)
        )


@admin.register(Process)
class ProcessAdmin(ReadOnlyAdmin):
    """The processes of this site, the last one first."""

    is_exported = False  # it shows what is now
    change_list_template = "admin/turns/process/change_list.html"
    list_display = [
        "process",
        "role",
        "state",
        "lease_age",
        "limits",
        "code",
        "live_turns",
        "abandoned",
    ]
    list_filter = [EndedFilter, "role"]
    fields = [
        "process",
        "role",
        "host",
        "pid",
        "state",
        "lease_age",
        "limits",
        "code",
        "turn_limit",
        "live_turns",
        "past_turns",
        "abandoned",
        "has_shared_layer",
        "started",
        "draining",
        "ended",
    ]
    readonly_fields = [
        "process",
        "state",
        "lease_age",
        "limits",
        "code",
        "live_turns",
        "past_turns",
        "started",
        "draining",
        "ended",
    ]

    def prepare_rows(self, request: HttpRequest, rows: Iterable[Any]) -> None:
        """Read once for all rows what each is compared with."""
        super().prepare_rows(request, rows)
        _compare(rows)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Say what a stale process means."""
        ttl = format_span(round(app_settings.LEASE_TTL * 1_000))
        context = {
            "title": _("Processes"),
            "ttl": ttl,
            "version": selectors.policy_version(),
            "is_nav_sidebar_enabled": False,  # the table takes the whole width
        }
        return super().changelist_view(request, {**(extra_context or {}), **context})

    @admin.display(description=gettext_lazy("process"), ordering="name")
    def process(self, obj: Process) -> str:
        return str(obj)

    @admin.display(description=gettext_lazy("state"))
    def state(self, obj: Process) -> str:
        """Whether it works, starts nothing more, does not answer, or has ended."""
        if obj.ended_at is not None:
            return _("ended")
        if is_stale(obj, view_of(obj).now):
            return _("stale: it does not answer")
        return _("draining: it starts no turns") if obj.draining_at else _("alive")

    @admin.display(description=gettext_lazy("lease renewed"), ordering="seen_at")
    def lease_age(self, obj: Process) -> str:
        """How long ago it was heard of."""
        if obj.ended_at is not None or obj.seen_at is None:
            return NOTHING
        age = max((view_of(obj).now - obj.seen_at).total_seconds(), 0)
        return _("%(age)s ago") % {"age": format_span(round(age * 1_000))}

    @admin.display(description=gettext_lazy("limits"), ordering="policy_version")
    def limits(self, obj: Process) -> str:
        """Which version of the limits it runs with, and whether that is the last one."""
        if obj.ended_at is not None or obj.policy_version == view_of(obj).version:
            return _("version %(version)s") % {"version": obj.policy_version}
        return _("version %(version)s, behind") % {"version": obj.policy_version}

    @admin.display(description=gettext_lazy("version of the code"), ordering="code_version")
    def code(self, obj: Process) -> str:
        """Which version of the package it runs; not known where that runs from its sources."""
        return obj.code_version or NOTHING

    @admin.display(description=gettext_lazy("live turns"))
    def live_turns(self, obj: Process) -> SafeString | str:
        running = f"{reverse('admin:turns_runningturn_changelist')}?owner={obj.pk}"
        may_see = may_open(reader_of(obj), "turns_turn")
        return anchor(Link(str(view_of(obj).live), running if may_see else ""))

    @admin.display(description=gettext_lazy("past turns"))
    def past_turns(self, obj: Process) -> SafeString | str:
        """The turns that it has had. None that came days before it: the list reads what lies between."""
        since = {FROM: localtime(obj.started_at).date()}
        address = turns_address(reader_of(obj), process=obj.pk, **since)
        return anchor(Link(_("All turns of this process"), address)) if address else NOTHING

    @admin.display(description=gettext_lazy("started"), ordering="started_at")
    def started(self, obj: Process) -> Any:
        return format_time(obj.started_at)

    @admin.display(description=gettext_lazy("draining since"))
    def draining(self, obj: Process) -> Any:
        """Since when it starts no turns any more."""
        return format_time(obj.draining_at)

    @admin.display(description=gettext_lazy("ended"))
    def ended(self, obj: Process) -> Any:
        return format_time(obj.ended_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """What a row is compared with at one moment: the clock, the version of the limits, the live turns."""

    now: datetime
    version: int
    live: int


def view_of(process: Process) -> _View:
    """Return what the page has read for a process."""
    view: _View = process.view  # type: ignore[attr-defined]  # set by `_compare`
    return view


def _compare(processes: Iterable[Any]) -> None:
    now, version = database_now(), selectors.policy_version()
    live_turns = Turn.objects.filter(ended_at=None, status__in=ACTIVE_STATUSES).order_by()
    live = dict(live_turns.exclude(owner=None).values_list("owner").annotate(Count("pk")))
    for process in processes:
        process.view = _View(now=now, version=version, live=live.get(process.pk, 0))
