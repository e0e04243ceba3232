"""Running now: the turns and calls that wait or run, in every process. Buttons say what may be done about them."""

from datetime import datetime
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from governance import approval_store, running_calls
from governance.admin.formatting import format_time
from governance.admin.readonly import CappedPaginator, ReadOnlyAdmin, may_view_content
from governance.db_clock import database_now
from governance.time_formatting import time_text
from turns.admin import abandoned_calls, running_results
from turns.admin.clocks import ClockPauses
from turns.admin.running_actions import (
    ACTIONS,
    AT_ONCE,
    CANCEL,
    DECIDE,
    KINDS,
    EndOfMany,
    needs_reason,
)
from turns.admin.running_filter import RunningFilter, choices, filter_labels
from turns.admin.running_turn_view import CallView, Rights, RunningTurnView
from turns.admin.turn_links import links_of_turns
from turns.core.turns import ACTIVE_STATUSES
from turns.exceptions import TurnsError
from turns.models import RunningTurn

TEMPLATE = "admin/turns/runningturn/change_list.html"
CONFIRM_TEMPLATE = "admin/turns/runningturn/confirm.html"
PER_PAGE = 50
REFRESHES = ("5", "30")  # seconds
REASON_LENGTH = 500


class RunningPage:
    """One request for the page."""

    def __init__(self, model_admin: "RunningTurnAdmin", request: HttpRequest) -> None:
        self._admin = model_admin
        self._request = request
        self._chosen = RunningFilter.of(request.GET)
        self._at = database_now()
        self._why = request.POST.get("why", "").strip()[:REASON_LENGTH]

    @cached_property
    def _rights(self) -> Rights:
        user = self._request.user
        return Rights(
            reader=user,
            content=may_view_content(self._request),
            cancel=user.has_perm(CANCEL),
            decide=user.has_perm(DECIDE),
        )

    def respond(self) -> HttpResponse:
        """Show the page, or carry out what one of its buttons asks for."""
        if self._request.method != "POST":
            return self._show()
        posted = self._request.POST
        name = next((name for name in ACTIONS if name in posted), "")
        try:
            if name:
                return self._act(name, posted[name])
            return self._end_many(posted.get("all", ""))
        except TurnsError as problem:
            return self._refuse(str(problem))

    def _act(self, name: str, value: str) -> HttpResponse:
        action = ACTIONS[name]
        if not self._request.user.has_perms(action.permissions):
            return self._refuse(_("You may not do this."))
        if action.needs_reason and not self._why:
            return self._refuse(needs_reason())
        return self._went(action.perform(self._request.user, value, self._why))

    def _end_many(self, kind: str) -> HttpResponse:
        """Say how many there are. Once that is confirmed, ask for the end of those, and of none that came later."""
        if kind not in KINDS:
            return self._back({})
        if not self._rights.cancel:
            return self._refuse(_("You may not do this."))
        counted_at = _parse_time(self._request.POST.get("counted_at", ""))
        many = EndOfMany(self._chosen, kind=kind, counted_at=counted_at or self._at)
        if counted_at is None:
            return self._confirm(many)
        if not self._why:
            self._say(needs_reason())
            return self._confirm(many, counted_at)
        return self._went(many.perform(self._request.user, self._why))

    def _confirm(self, many: EndOfMany, counted_at: datetime | None = None) -> HttpResponse:
        return self._render(
            CONFIRM_TEMPLATE,
            title=_("Cancel all of these?"),
            kind=many.kind,
            words=KINDS[many.kind],
            count=many.count,
            at_once=AT_ONCE,
            filter=filter_labels(self._chosen),
            counted_at=(counted_at or self._at).isoformat(),
        )

    def _went(self, did: str) -> HttpResponse:
        """Wait a moment until it has come true, then show the page with what became of it."""
        if not did:
            return self._refuse(_("There is nothing like that here: nothing was done."))
        running_results.wait(did, self._request.user)
        return self._back({"did": did})

    def _refuse(self, words: str) -> HttpResponse:
        """Say why nothing was done; what was written stays."""
        self._say(words)
        return self._show()

    def _say(self, words: str) -> None:
        self._admin.message_user(self._request, words, messages.ERROR)

    def _back(self, more: dict[str, str]) -> HttpResponse:
        return HttpResponseRedirect(self._address(**more))

    def _address(self, **more: str) -> str:
        kept = {**self._chosen.chosen, **self._view_only, **more}
        return f"{self._request.path}?{urlencode(kept)}" if kept else self._request.path

    @property
    def _view_only(self) -> dict[str, str]:
        query = self._request.GET
        refresh = query.get("refresh", "")
        page = query.get("p", "")
        return {
            **({"refresh": refresh} if refresh in REFRESHES else {}),
            **({"p": page} if page.isdigit() and page.isascii() else {}),
        }

    def _show(self) -> HttpResponse:
        rows = self._chosen.turns().select_related("conversation__owner", "owner")
        paginator = CappedPaginator(rows, PER_PAGE)
        page = paginator.get_page(self._view_only.get("p"))
        ledger, has_more = abandoned_calls.read(
            with_input=self._rights.content, reader=self._request.user
        )
        did = self._request.GET.get("did", "")
        return self._render(
            TEMPLATE,
            title=_("Running now, as of %(at)s") % {"at": time_text(self._at)},
            rights=self._rights,
            turns=self._views(page.object_list),
            page=page,
            pages=[(number, self._address(p=str(number))) for number in paginator.page_range],
            count=paginator.count_text,
            filters=choices(self._chosen),
            chosen=self._chosen,
            is_refused=self._request.method == "POST",
            result=running_results.read(did, self._request.user) if did else None,
            reload=self._address(did=did),
            ledger=ledger,
            has_more=has_more,
            refresh=self._view_only.get("refresh", ""),
            refreshes=[(seconds, self._address(refresh=seconds)) for seconds in REFRESHES],
            as_of=format_time(self._at),
        )

    def _views(self, turns: Any) -> list[RunningTurnView]:
        turns, rights, at = list(turns), self._rights, self._at
        groups = [str(turn.pk) for turn in turns]
        links = links_of_turns(rights.reader, turns)
        calls = running_calls.of_groups(groups, with_input=rights.content)
        clocks = ClockPauses(turns)
        questions = {(row.group, row.call_id): row for row in approval_store.open_questions(groups)}
        return [
            RunningTurnView(
                turn,
                (
                    CallView(
                        row,
                        questions.get((row.group, row.call_id)),
                        at=at,
                        rights=rights,
                        pauses=clocks.of(turn.pk, row.call_id),
                    )
                    for row in calls.get(str(turn.pk), ())
                ),
                links[str(turn.pk)],
                at=at,
                rights=rights,
                pauses=clocks.of(turn.pk),
            )
            for turn in turns
        ]

    def _render(self, template: str, **context: Any) -> HttpResponse:
        model_admin = self._admin
        return TemplateResponse(
            self._request,
            template,
            {
                **model_admin.admin_site.each_context(self._request),
                "opts": model_admin.opts,
                "media": model_admin.media,
                "here": self._address(),
                "why": self._why,
                "why_length": REASON_LENGTH,
                **context,
            },
        )


@admin.register(RunningTurn)
class RunningTurnAdmin(ReadOnlyAdmin):
    """The turns that are not over, the oldest first."""

    content_fields = ("user_message", "attachments")
    is_exported = False  # it shows what is now

    class Media:
        js = ["governance/refresh.js"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).filter(status__in=ACTIVE_STATUSES)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may see turns may see those that run."""
        return request.user.has_perm("turns.view_turn")

    def has_module_permission(self, request: HttpRequest) -> bool:
        """The same for the link on the front page."""
        return self.has_view_permission(request)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show what runs, or do what is asked about it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return RunningPage(self, request).respond()


def _parse_time(value: str) -> datetime | None:
    """Read the moment of a count; None for anything else."""
    try:
        moment = parse_datetime(value)
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None
