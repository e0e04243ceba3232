"""Running now: the turns and calls that wait or run, with their process, their age and what is left; each has a button."""

from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from governance import CancelSource
from governance import selectors as governance_selectors
from governance.admin.formatting import NOTHING
from governance.admin.search import USERNAME, ExactSearchAdmin
from turns import services
from turns.admin.rows import link
from turns.admin.running_turn_view import CALL_MARK, RunningTurnView, button, view_of
from turns.core.turns import ACTIVE_STATUSES
from turns.models import RunningTurn

TITLE_HERE = 24


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
class RunningTurnAdmin(ExactSearchAdmin):
    """The turns that are not over, the oldest first."""

    list_display = ["turn", "who", "state", "age", "left", "process", "calls", "end"]
    list_display_links = None
    list_filter = [RefreshFilter]
    list_select_related = ["conversation__owner", "owner"]
    ordering = ["queued_at"]
    id_fields = ("pk", "conversation")
    search_fields = [f"conversation__owner__{USERNAME}"]
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
        calls = governance_selectors.open_calls_of_groups(str(row.pk) for row in rows)
        at, may_cancel = timezone.now(), self.has_cancel_permission(request)
        for row in rows:
            row.view = RunningTurnView(
                row, calls.get(str(row.pk), []), at=at, may_cancel=may_cancel
            )
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
        return view_of(obj).state

    @admin.display(description=gettext_lazy("age"), ordering="started_at")
    def age(self, obj: RunningTurn) -> str:
        """Since when it runs, or waits."""
        return view_of(obj).age

    @admin.display(description=gettext_lazy("time left"))
    def left(self, obj: RunningTurn) -> str:
        """What is left of its limit."""
        return view_of(obj).left

    @admin.display(description=gettext_lazy("process"), ordering="owner")
    def process(self, obj: RunningTurn) -> str:
        """Where it runs."""
        return str(obj.owner) if obj.owner else NOTHING

    @admin.display(description=gettext_lazy("calls"))
    def calls(self, obj: RunningTurn) -> SafeString | str:
        """Its calls that wait or run, each with its button."""
        return view_of(obj).calls

    @admin.display(description=gettext_lazy("cancel"))
    def end(self, obj: RunningTurn) -> SafeString:
        """The button that ends the turn."""
        return button(str(obj.pk), text=_("Cancel turn"), label=_("Cancel this turn"))

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
