"""Running now: the turns and calls that wait or run, with their process, their age and what is left; each has a button."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from governance import CallStatus, CancelSource
from governance import selectors as governance
from governance.admin.cells import NO_BREAK, NOTHING, span
from governance.selectors import CallRow
from turns import services
from turns.admin.rows import link
from turns.admin.search import IdSearchAdmin
from turns.core.turns import ACTIVE_STATUSES
from turns.models import RunningTurn

TITLE_HERE = 24
CALL_MARK = ":"  # between the ids of a turn and of its call, in the value of a button


class RefreshFilter(admin.SimpleListFilter):
    """How often the page asks again by itself: a choice, since what moves by itself cannot be read in peace."""

    title = gettext_lazy("refresh")
    parameter_name = "refresh"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Name the choices beside "by hand"."""
        return [("5", gettext_lazy("Every 5 s")), ("30", gettext_lazy("Every 30 s"))]

    def choices(self, changelist: Any) -> Any:
        """Say what no choice means."""
        first, *others = super().choices(changelist)
        return [{**first, "display": _("By hand")}, *others]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Change nothing of what is shown."""
        return queryset


@admin.register(RunningTurn)
class RunningTurnAdmin(IdSearchAdmin):
    """The turns that are not over, the oldest first."""

    list_display = ["turn", "who", "state", "age", "left", "process", "calls", "end"]
    list_display_links = None
    list_filter = [RefreshFilter]
    list_select_related = ["conversation__owner", "owner"]
    ordering = ["queued_at"]
    id_fields = ("pk", "conversation")
    search_fields = ["conversation__owner__username__exact"]
    search_help_text = gettext_lazy("A whole id of a turn or a conversation, or a whole user name")
    actions = ["cancel_turns"]

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may see turns may see those that run."""
        return request.user.has_perm("turns.view_turn")

    def has_module_permission(self, request: HttpRequest) -> bool:
        """The same for the link on the front page."""
        return self.has_view_permission(request)

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Whether the buttons are there."""
        return request.user.has_perm("turns.cancel_any")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Leave out what is over."""
        return super().get_queryset(request).filter(status__in=ACTIVE_STATUSES)

    def get_list_display(self, request: HttpRequest) -> Any:
        """Without the buttons for those who may only look."""
        shown = super().get_list_display(request)
        may_cancel = self.has_cancel_permission(request)
        return [name for name in shown if may_cancel or name != "end"]

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Read the calls of all turns of the page at once."""
        changelist = super().get_changelist_instance(request)
        rows = list(changelist.result_list)
        calls = governance.open_calls_of_groups(str(row.pk) for row in rows)
        at, may_cancel = timezone.now(), self.has_cancel_permission(request)
        for row in rows:
            row.seen = Seen(row, calls.get(str(row.pk), []), at=at, may_cancel=may_cancel)
        return changelist

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Carry out what a row's button asks for; let the page ask again by itself where that is wanted."""
        if request.method == "POST" and (wanted := request.POST.get("end")):
            return self._end(request, wanted)
        at = f"{localtime(timezone.now()):%H:%M:%S}"
        title = _("Running now, as of %(at)s") % {"at": at}
        answer = super().changelist_view(request, {**(extra_context or {}), "title": title})
        if (seconds := request.GET.get("refresh", "")) in ("5", "30"):
            answer["Refresh"] = seconds
        return answer

    @admin.action(description=gettext_lazy("Cancel the selected turns"), permissions=["cancel"])
    def cancel_turns(self, request: HttpRequest, queryset: QuerySet[RunningTurn]) -> None:
        """Request the end of the chosen turns, by the path that every request takes."""
        outcomes = [
            _cancel(request, str(turn_id)) for turn_id in queryset.values_list("pk", flat=True)
        ]
        for outcome in dict.fromkeys(outcomes):
            self._say(request, outcome, outcomes.count(outcome))

    @admin.display(description=gettext_lazy("turn"), ordering="queued_at")
    def turn(self, obj: RunningTurn) -> SafeString:
        """Its conversation and its agent."""
        title = Truncator(obj.conversation.title).chars(TITLE_HERE) or _("a conversation")
        return format_html("{}<br>{}", link("turns_turn", obj.pk, title), obj.agent or NOTHING)

    @admin.display(description=gettext_lazy("user"), ordering="conversation__owner")
    def who(self, obj: RunningTurn) -> str:
        """Whose turn it is."""
        return str(obj.conversation.owner.get_username())

    @admin.display(description=gettext_lazy("status"), ordering="status")
    def state(self, obj: RunningTurn) -> str:
        """Where it is; a person who is asked is what it waits for."""
        return seen(obj).state

    @admin.display(description=gettext_lazy("age"), ordering="started_at")
    def age(self, obj: RunningTurn) -> str:
        """Since when it runs, or waits."""
        return seen(obj).age

    @admin.display(description=gettext_lazy("time left"))
    def left(self, obj: RunningTurn) -> str:
        """What is left of its limit."""
        return seen(obj).left

    @admin.display(description=gettext_lazy("process"), ordering="owner")
    def process(self, obj: RunningTurn) -> str:
        """Where it runs."""
        return str(obj.owner) if obj.owner else NOTHING

    @admin.display(description=gettext_lazy("calls"))
    def calls(self, obj: RunningTurn) -> SafeString | str:
        """Its calls that wait or run, each with its button."""
        return seen(obj).calls

    @admin.display(description=gettext_lazy("cancel"))
    def end(self, obj: RunningTurn) -> SafeString:
        """The button that ends the turn."""
        return _button(str(obj.pk), text=_("Cancel turn"), label=_("Cancel this turn"))

    def _end(self, request: HttpRequest, wanted: str) -> HttpResponse:
        if self.has_cancel_permission(request):
            self._say(request, _cancel(request, wanted), 1)
        else:
            self.message_user(request, _("You may not cancel turns."), messages.ERROR)
        return HttpResponseRedirect(request.get_full_path())

    def _say(self, request: HttpRequest, outcome: services.OpOutcome, count: int) -> None:
        if outcome is services.OpOutcome.ACCEPTED:
            text = ngettext("%(n)d is being ended.", "%(n)d are being ended.", count)
            level = messages.SUCCESS
        elif outcome is services.OpOutcome.NOT_CANCELLABLE:
            text, level = _("This call cannot be cancelled alone: cancel its turn."), messages.ERROR
        else:
            text = ngettext("%(n)d had ended already.", "%(n)d had ended already.", count)
            level = messages.WARNING
        self.message_user(request, text % {"n": count}, level)


class Seen:
    """One turn as the page shows it, at one moment."""

    def __init__(
        self, turn: RunningTurn, calls: Iterable[CallRow], *, at: datetime, may_cancel: bool
    ) -> None:
        self._turn = turn
        self._open = list(calls)
        self._at = at
        self._may_cancel = may_cancel
        self._is_asking = any(row.status == CallStatus.AWAITING_APPROVAL for row in self._open)

    @property
    def state(self) -> str:
        """Where the turn is, in words."""
        status: str = self._turn.get_status_display()
        return _("waits for a person") if self._is_asking else status

    @property
    def age(self) -> str:
        """Since when it runs; of one that waits, since when."""
        return _since(self._turn.started_at or self._turn.queued_at, self._at)

    @property
    def left(self) -> str:
        """What is left of its limit; its clock stands still while a person is asked."""
        if not self._turn.turn_timeout_ms:
            return _("no limit")
        if self._is_asking:
            return _("stands still")
        return _left(self._turn.turn_timeout_ms, self._turn.started_at, self._at)

    @property
    def calls(self) -> SafeString | str:
        """The calls in lines: tool, state, age, what is left, a button."""
        lines = [(self._line(row),) for row in self._open]
        return format_html_join("", "<div>{}</div>", lines) or NOTHING

    def _line(self, row: CallRow) -> SafeString:
        facts = [str(row.get_status_display())]
        if row.started_at is not None:
            facts.append(_since(row.started_at, self._at))
            if row.timeout_ms:
                left = _left(row.timeout_ms, row.started_at, self._at)
                facts.append(_("%(left)s left") % {"left": left})
        text = format_html(
            "{}: {} ", link("governance_toolcall", row.pk, row.tool_name), ", ".join(facts)
        )
        return text + self._button(row)

    def _button(self, row: CallRow) -> SafeString:
        can_be = row.cancellable or row.status != CallStatus.RUNNING
        if not self._may_cancel or not can_be or row.status == CallStatus.CANCELLING:
            return SafeString("")
        value = f"{self._turn.pk}{CALL_MARK}{row.call_id}"
        label = _("Cancel this call of %(tool)s") % {"tool": row.tool_name}
        return _button(value, text=_("Cancel"), label=label)


def seen(turn: RunningTurn) -> Seen:
    """Return what was read of a row for this page."""
    found: Seen = turn.seen  # type: ignore[attr-defined]  # set by get_changelist_instance
    return found


def _button(value: str, *, text: str, label: str) -> SafeString:
    """A button of the form that Django puts around the list."""
    return format_html(
        '<button class="button" type="submit" name="end" value="{}" aria-label="{}">{}</button>',
        value,
        label,
        text,
    )


def _cancel(request: HttpRequest, wanted: str) -> services.OpOutcome:
    """Request the end of a turn, or of one call of it, by the path that every request takes."""
    turn_id, is_call, tool_id = wanted.partition(CALL_MARK)
    try:
        ids: Any = {"turn_id": UUID(turn_id)}
    except ValueError:
        return services.OpOutcome.NOT_FOUND
    who: Any = {"user": request.user, "source": CancelSource.ADMIN}
    if is_call:
        return async_to_sync(services.request_tool_cancel)(tool_id=tool_id, **ids, **who).outcome
    return async_to_sync(services.request_cancel)(**ids, **who).outcome


def _since(moment: datetime, at: datetime) -> str:
    return _whole(_ms(at - moment))


def _left(limit_ms: int, started_at: datetime | None, at: datetime) -> str:
    passed = _ms(at - started_at) if started_at else 0
    return _whole(limit_ms - passed)


def _whole(milliseconds: int) -> str:
    """A span in whole seconds: it moves while one looks."""
    return span(milliseconds // 1_000 * 1_000) if milliseconds >= 1_000 else f"0{NO_BREAK}s"


def _ms(passed: timedelta) -> int:
    return round(passed.total_seconds() * 1_000)
