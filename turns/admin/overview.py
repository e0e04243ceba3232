"""Overview: what runs, what waits for people, what ran out of time or was cancelled today, what is unwell."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from asgiref.sync import async_to_sync
from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from governance import health_checks, selectors, statistics
from governance.admin.formatting import format_span, format_time
from governance.admin.readonly import CappedPaginator, count_text
from governance.admin.time_filter import ANY
from governance.admin.tool_page import address_of
from governance.admin.tool_rows import CHOICES, NEAR, read_rows
from governance.call_links import Link
from turns.core.turns import TurnStatus
from turns.models import CancelRequest, Turn
from turns.processes.process_registry import is_stale
from turns.storage import site_state

VIEW = "turns_overview"
TEMPLATE = "admin/turns/overview.html"
SPAN = "24h"
MOST_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line: what, how much, what else is known, and the address of the list; `is_alert` = worth a look now."""

    label: Any
    value: str
    note: str = ""
    links: tuple[Link, ...] = ()
    address: str = ""
    is_alert: bool = False


class Overview:
    """The figures, read once for one request. Whoever may see turns may see how many; lists have rights of their own."""

    def __init__(self, user: Any) -> None:
        self._user = user
        self.state = site_state.read()

    @property
    def figures(self) -> list[Figure]:
        """Everything, in the order of urgency."""
        return [
            self._running(),
            self._waiting(),
            *self._today(),
            self._tools(),
            self._processes(),
            *self._health(),
            self._servers(),
        ]

    def _running(self) -> Figure:
        queued = self.state.active.get(TurnStatus.QUEUED, 0)
        note = ""
        if queued:
            words = _("%(count)s wait for their turn, the first of them for %(age)s")
            note = words % {
                "count": count_text(queued),
                "age": self._age(self.state.first_queued_at),
            }
        return Figure(
            label=_("Turns that run"),
            value=count_text(sum(self.state.active.values()) - queued),
            note=note,
            address=self._list("turns.view_turn", "turns_runningturn"),
        )

    def _waiting(self) -> Figure:
        count, first = self.state.waiting_approvals, self.state.first_approval_at
        note = _("the oldest for %(age)s") % {"age": self._age(first)} if count else ""
        return Figure(
            label=_("Calls that wait for a person"),
            value=count_text(count),
            note=note,
            address=self._list(
                "governance.view_toolcall", "governance_toolcall", happened="asked", when=ANY
            ),
            is_alert=count > 0,
        )

    def _today(self) -> list[Figure]:
        day = {"when_from": f"{self._midnight:%Y-%m-%d}"}
        turns = Turn.objects.filter(status=TurnStatus.TIMED_OUT, queued_at__gte=self._midnight)
        cancels = CancelRequest.objects.filter(requested_at__gte=self._midnight)
        most = CappedPaginator.most
        return [
            Figure(
                label=_("Calls of today that ran out of time"),
                value=count_text(selectors.count_timeouts(self._midnight, most=most + 1)),
                address=self._list(
                    "governance.view_toolcall", "governance_toolcall", happened="timed_out", **day
                ),
            ),
            Figure(
                label=_("Turns of today that ran out of time"),
                value=_count(turns),
                address=self._list(
                    "turns.view_turn", "turns_turn", status__exact=TurnStatus.TIMED_OUT.value, **day
                ),
            ),
            Figure(
                label=_("Cancels requested today"),
                value=_count(cancels),
                address=self._list("turns.view_cancelrequest", "turns_cancelrequest", **day),
            ),
        ]

    def _tools(self) -> Figure:
        is_near = CHOICES[NEAR][1]
        rows = [row for row in read_rows(statistics.read(statistics.SPANS[SPAN])) if is_near(row)]
        may_see = self._user.has_perm("governance.view_toolpolicy")
        return Figure(
            label=_("Tools near their limit"),
            value=count_text(len(rows)),
            note=_("their p95 was at 80 % of it or more in the last 24 hours") if rows else "",
            links=tuple(
                Link(row.name, address_of(row.name)) for row in rows[:MOST_NAMED] if may_see
            ),
            address=self._list(
                "governance.view_toolpolicy", "governance_toolpolicy", show=NEAR, span=SPAN
            ),
            is_alert=bool(rows),
        )

    def _processes(self) -> Figure:
        processes = self.state.processes
        stale = sum(is_stale(process, self.state.at) for process in processes)
        facts = {
            _("%(count)d do not answer"): stale,
            _("%(count)d are draining"): sum(bool(process.draining_at) for process in processes),
            _("%(count)d bodies of calls are left behind"): sum(
                process.abandoned for process in processes
            ),
        }
        return Figure(
            label=_("Processes"),
            value=count_text(len(processes)),
            note=", ".join(words % {"count": count} for words, count in facts.items() if count),
            address=self._list("turns.view_process", "turns_process"),
            is_alert=stale > 0,
        )

    def _health(self) -> list[Figure]:
        return [
            Figure(
                label=check.label,
                value=_("answers") if answers else _("does not answer in time"),
                address=_address(check.page),
                is_alert=not answers,
            )
            for check, answers in async_to_sync(health_checks.ask_all)()
        ]

    def _servers(self) -> Figure:
        in_use, unwell = selectors.mcp_health()
        return Figure(
            label=_("MCP servers in use"),
            value=count_text(in_use),
            note=_("%(count)d not well") % {"count": unwell} if unwell else "",
            address=self._list("governance.view_mcpserver", "governance_mcpserver"),
            is_alert=unwell > 0,
        )

    @cached_property
    def _midnight(self) -> datetime:
        return localtime(self.state.at).replace(hour=0, minute=0, second=0, microsecond=0)

    def _age(self, since: datetime | None) -> str:
        return format_span(round(self.state.age(since)) * 1_000)

    def _list(self, permission: str, model: str, **query: str) -> str:
        """Return the address of a filtered list; empty for those who may not see it."""
        if not self._user.has_perm(permission):
            return ""
        address = reverse(f"admin:{model}_changelist")
        return f"{address}?{urlencode(query)}" if query else address


def overview(request: HttpRequest, model_admin: "ModelAdmin[Any]") -> HttpResponse:
    """Show the figures to those who may see turns."""
    if not request.user.has_perm("turns.view_turn"):
        raise PermissionDenied
    read = Overview(request.user)
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Overview"),
        "opts": model_admin.opts,
        "media": model_admin.media,
        "at": format_time(read.state.at),
        "figures": read.figures,
    }
    return TemplateResponse(request, TEMPLATE, context)


def _count(rows: QuerySet[Any]) -> str:
    return count_text(rows.order_by()[: CappedPaginator.most + 1].count())


def _address(page: str) -> str:
    try:
        return reverse(page) if page else ""
    except NoReverseMatch:  # a site without that page
        return ""
