""" "Running now": the waiting and running turns and calls of all processes, with buttons to act on them."""

from datetime import datetime
from functools import cached_property
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from console import running_results
from console.lists import CappedPaginator, HistoryList, may_view_content, module
from console.page import Page
from console.running_actions import (
    ACTIONS,
    AT_ONCE,
    CANCEL,
    DECIDE,
    KINDS,
    EndOfMany,
    RunningFilter,
    choices,
    filter_labels,
    needs_reason,
)
from console.running_views import Rights, abandoned_calls, calls_at_once_text, views_of
from governance.db_clock import database_now
from governance.durations import time_text
from turns.core.turns import ACTIVE_STATUSES
from turns.exceptions import TurnsError

PER_PAGE = 50
REFRESHES = ("5", "30")  # seconds
REASON_LENGTH = 500


class RunningPage(Page):
    """Waiting and running turns and calls, with a button for each allowed action."""

    template = "console/running.html"

    def __init__(self, model_admin: "RunningTurnAdmin", request: HttpRequest) -> None:
        super().__init__(model_admin, request)
        self._filter = RunningFilter.of(request.GET)
        self._at = database_now()
        self._why = request.POST.get("why", "").strip()[:REASON_LENGTH]

    def may_see(self) -> bool:
        return bool(self.admin.has_view_permission(self.request))

    @cached_property
    def _rights(self) -> Rights:
        user = self.request.user
        return Rights(
            reader=user,
            content=may_view_content(self.request),
            cancel=user.has_perm(CANCEL),
            decide=user.has_perm(DECIDE),
        )

    def act(self) -> HttpResponse:
        posted = self.request.POST
        name = next((name for name in ACTIONS if name in posted), "")
        try:
            if not name:
                return self._end_many(posted.get("all", ""))
            action = ACTIONS[name]
            if not self.request.user.has_perms(action.permissions):
                return self.refuse(_("You do not have permission to do this."))
            if action.needs_reason and not self._why:
                return self.refuse(needs_reason())
            return self._went(action.perform(self.request.user, posted[name], self._why))
        except TurnsError as problem:
            return self.refuse(str(problem))

    def _end_many(self, kind: str) -> HttpResponse:
        """Ask for confirmation with the count. Once confirmed, cancel what was counted, but nothing that came later."""
        if kind not in KINDS:
            return self.back()
        if not self._rights.cancel:
            return self.refuse(_("You do not have permission to do this."))
        counted_at = _parse_time(self.request.POST.get("counted_at", ""))
        many = EndOfMany(self._filter, kind=kind, counted_at=counted_at or self._at)
        if counted_at is None:
            return self._confirm(many)
        if not self._why:
            self.say(needs_reason())
            return self._confirm(many, counted_at)
        return self._went(many.perform(self.request.user, self._why))

    def _confirm(self, many: EndOfMany, counted_at: datetime | None = None) -> HttpResponse:
        return self.render(
            "console/confirm.html",
            title=_("Cancel all of these?"),
            kind=many.kind,
            words=KINDS[many.kind],
            count=many.count,
            at_once=AT_ONCE,
            filter=filter_labels(self._filter),
            counted_at=(counted_at or self._at).isoformat(),
        )

    def _went(self, did: str) -> HttpResponse:
        """Wait briefly for the effect, then redirect to the page with the result."""
        if not did:
            return self.refuse(
                _("No matching turn or call. Nothing was changed; refresh the page.")
            )
        running_results.wait(did, self.request.user)
        return self.back(did=did)

    @property
    def asked(self) -> dict[str, str]:
        return {**self._filter.chosen, **self._view_only}

    @property
    def _view_only(self) -> dict[str, str]:
        query = self.request.GET
        refresh, page = query.get("refresh", ""), query.get("p", "")
        return {
            **({"refresh": refresh} if refresh in REFRESHES else {}),
            **({"p": page} if page.isdigit() and page.isascii() else {}),
        }

    def render(self, template: str, **context: Any) -> HttpResponse:
        shared = {"here": self.address(), "why": self._why, "why_length": REASON_LENGTH}
        return super().render(template, **shared, **context)

    @property
    def context(self) -> dict[str, Any]:
        rows = self._filter.turns().select_related("conversation__owner", "owner")
        paginator = CappedPaginator(rows, PER_PAGE)
        page = paginator.get_page(self._view_only.get("p"))
        user = self.request.user
        ledger, has_more = abandoned_calls(with_input=self._rights.content, reader=user)
        did = self.request.GET.get("did", "")
        return {
            "title": _("Running now, as of %(at)s") % {"at": time_text(self._at)},
            "rights": self._rights,
            "turns": views_of(list(page.object_list), at=self._at, rights=self._rights),
            "page": page,
            "pages": [(number, self.address(p=number)) for number in paginator.page_range],
            "count": paginator.count_text,
            "calls_at_once": calls_at_once_text(),
            "filters": choices(self._filter),
            "chosen": self._filter,
            "is_refused": self.request.method == "POST",
            "result": running_results.read(did, user) if did else None,
            "reload": self.address(did=did),
            "ledger": ledger,
            "has_more": has_more,
            "refresh": self._view_only.get("refresh", ""),
            "refreshes": [(seconds, self.address(refresh=seconds)) for seconds in REFRESHES],
        }


class RunningTurnAdmin(HistoryList):
    """The admin page of the turns that have not ended, oldest first."""

    content_fields = ("user_message", "attachments", "error_detail", "summary")
    is_exported = False  # it shows the current state

    class Media:
        js = [module("refresh.js")]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).filter(status__in=ACTIVE_STATUSES)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow users who may view turns."""
        return request.user.has_perm("turns.view_turn")

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Show the link on the index to users who may view turns."""
        return self.has_view_permission(request)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the page, or perform the action of a button."""
        return RunningPage(self, request).respond()


def _parse_time(value: str) -> datetime | None:
    """Parse the time of a count; None if it is invalid."""
    try:
        moment = parse_datetime(value)
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None
