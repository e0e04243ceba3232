"""Admin of turns: what ran, how it ended and by whom, and an action that cancels (C2, V4)."""

from collections.abc import Iterable
from typing import Any

from asgiref.sync import async_to_sync
from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from governance import CancelSource
from governance.admin.filters import ConditionFilter, DurationFilter
from governance.admin.formatting import (
    NOTHING,
    format_actor,
    format_span,
)
from governance.admin.links import anchor, anchors, column, reader_of
from governance.admin.search import USERNAME, ExactSearchAdmin
from governance.admin.time_filter import DAY, time_filter
from governance.call_links import Link
from turns import services
from turns.admin import event_log, turn_ending, turn_filters, turn_tables
from turns.admin.overview import VIEW as OVERVIEW
from turns.admin.overview import overview
from turns.admin.rows import link
from turns.admin.running_actions import AT_ONCE, needs_reason
from turns.admin.timeline import timeline
from turns.admin.turn_links import LABELS, links_of_turns
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.models import Repair, Turn
from turns.selectors import translations

TITLE_SHOWN = 40
LINKS: dict[str, Any] = {
    name: column(name, label) for name, label in LABELS.items() if name != "turn"
}


class TurnOutcomeFilter(ConditionFilter):
    """What became of a turn."""

    title = gettext_lazy("what happened")
    parameter_name = "happened"
    conditions = {
        "active": (gettext_lazy("Running or waiting"), Q(status__in=ACTIVE_STATUSES)),
        "stopped": (
            gettext_lazy("Stopped before its end"),
            Q(status__in=(TurnStatus.CANCELLED, TurnStatus.TIMED_OUT, TurnStatus.INTERRUPTED)),
        ),
        "failed": (gettext_lazy("Failed"), Q(status=TurnStatus.FAILED)),
        "replaced": (
            gettext_lazy("Replaced, as its message or one before it was edited"),
            Q(replaced_by__isnull=False),
        ),
        "repaired": (
            gettext_lazy("Its history was repaired"),
            Q(pk__in=Repair.objects.order_by().values("turn")),
        ),
    }


class ReasonForm(ActionForm):
    """Asks, beside the action, why."""

    why = forms.CharField(label=gettext_lazy("Why (needed)"), required=False, max_length=500)


@admin.register(Turn)
class TurnAdmin(ExactSearchAdmin):
    """Every turn, newest first."""

    content_fields = ("title", "user_message", "attachments", "told", "event_log")
    list_display = ["queued_at", "status", "belongs_to", "title", "ended_by", "ran"]
    list_filter = [
        time_filter("queued_at", default=DAY),
        TurnOutcomeFilter,
        "status",
        "ended_by_reason",
        "ended_by_source",
        "source",
        turn_filters.LimitFilter,
        DurationFilter,
        *turn_filters.of_turns(),
    ]
    list_select_related = ["conversation__owner", "owner"]
    id_fields = ("pk", "conversation")
    search_fields = [f"conversation__owner__{USERNAME}"]
    search_help_text = gettext_lazy("A whole id of a turn or a conversation, or a whole user name")
    actions = ["cancel_turns"]
    action_form = ReasonForm
    readonly_fields = [
        "id",
        "why",
        *LINKS.values(),
        "timeline",
        "ran",
        "limit",
        "ended_by",
        "calls",
        "told",
        "worked_for",
        "sub_agents",
        "replacement",
        "decisions",
        "requests",
        "limit_requests",
        "repairs_made",
        "event_log",
        "usage_text",
    ]
    fieldsets = [
        (
            None,
            {
                "fields": [
                    "id",
                    "status",
                    "why",
                    "error_code",
                    "what_failed",
                    LINKS["user"],
                    LINKS["agent"],
                    LINKS["conversation"],
                    LINKS["chat"],
                    LINKS["process"],
                    "user_message",
                ]
            },
        ),
        (gettext_lazy("Time"), {"fields": ["queued_at", "started_at", "ended_at", "ran", "limit"]}),
        (gettext_lazy("Timeline"), {"fields": ["timeline"]}),
        (
            gettext_lazy("Work"),
            {
                "fields": [
                    "steps",
                    "step_limit",
                    "token_limit",
                    "tool_call_count",
                    "usage_text",
                    "calls",
                    "told",
                ]
            },
        ),
        (
            gettext_lazy("Sub-agents"),
            {"fields": ["sub_agents", "worked_for", "depth", "is_detached", "delivered_at"]},
        ),
        (
            gettext_lazy("Audit"),
            {
                "fields": [
                    "replacement",
                    "version",
                    "decisions",
                    "requests",
                    "limit_requests",
                    "repairs_made",
                    "epoch",
                    "source",
                ]
            },
        ),
        (gettext_lazy("Events"), {"classes": ["collapse"], "fields": ["event_log"]}),
    ]

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.overview_view)
        return [path("overview/", view, name=OVERVIEW), *super().get_urls()]

    def overview_view(self, request: HttpRequest) -> HttpResponse:
        """Show what runs, what waits for people, and what is not well."""
        return overview(request, self)

    def prepare_rows(self, request: HttpRequest, rows: Iterable[Any]) -> None:
        """Read what all turns belong to at once."""
        super().prepare_rows(request, rows)
        links = links_of_turns(request.user, rows)
        for turn in rows:
            turn.links = links[str(turn.pk)]
            turn.query = request.GET

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Open the log for whoever pages through it."""
        fieldsets = super().get_fieldsets(request, obj)
        if not event_log.asked(request.GET):
            return fieldsets
        return [
            (title, {**options, "classes": []} if "event_log" in options["fields"] else options)
            for title, options in fieldsets
        ]

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Whether the action is offered at all."""
        return request.user.has_perm("turns.cancel_any")

    @admin.action(
        description=gettext_lazy("Cancel the selected running turns"), permissions=["cancel"]
    )
    def cancel_turns(self, request: HttpRequest, queryset: QuerySet[Turn]) -> HttpResponse | None:
        """Request the end of the chosen turns that still run or wait, by the path that every request takes."""
        note = request.POST.get("why", "").strip()
        if not note:
            return self.refuse_action(request, needs_reason(), field="why")
        running = queryset.filter(status__in=ACTIVE_STATUSES).order_by("-number")
        turn_ids = list(running.values_list("pk", flat=True))
        finished = queryset.exclude(status__in=ACTIVE_STATUSES).count()
        outcomes = [
            async_to_sync(services.request_cancel)(
                turn_id=turn_id, user=request.user, source=CancelSource.ADMIN, note=note
            ).outcome
            for turn_id in turn_ids[:AT_ONCE]
        ]
        accepted = outcomes.count(services.OpOutcome.ACCEPTED)
        if accepted:
            text = ngettext(
                "%(count)d turn is being cancelled.",
                "%(count)d turns are being cancelled.",
                accepted,
            )
            self.message_user(request, text % {"count": accepted}, messages.SUCCESS)
        if finished := finished + len(outcomes) - accepted:
            text = ngettext(
                "%(count)d turn had ended already.", "%(count)d turns had ended already.", finished
            )
            self.message_user(request, text % {"count": finished}, messages.WARNING)
        if left := len(turn_ids[AT_ONCE:]):
            text = ngettext(
                "%(count)d turn was left out: choose the action again for it.",
                "%(count)d turns were left out: choose the action again for them.",
                left,
            )
            self.message_user(request, text % {"count": left}, messages.WARNING)
        return None

    @admin.display(description=gettext_lazy("belongs to"), ordering="conversation__owner")
    def belongs_to(self, obj: Any) -> SafeString | str:
        """Its user, agent and process, in one column: several do not fit a screen."""
        return anchors(obj.links, ("user", "agent", "process"))

    @admin.display(description=gettext_lazy("conversation"), ordering="conversation")
    def title(self, obj: Any) -> SafeString | str:
        """What its conversation is called; Django lets no other column of a related row wrap."""
        title = Truncator(obj.conversation.title).chars(TITLE_SHOWN) or NOTHING
        return anchor(Link(title, obj.links["conversation"].address))

    @admin.display(description=gettext_lazy("ran"), ordering="duration_ms")
    def ran(self, obj: Turn) -> str:
        return format_span(obj.duration_ms)

    @admin.display(description=gettext_lazy("limit"))
    def limit(self, obj: Turn) -> str:
        """The turn's own deadline (T10)."""
        return format_span(obj.turn_timeout_ms) if obj.turn_timeout_ms else _("no limit")

    @admin.display(description=gettext_lazy("ended by"), ordering="ended_by_reason")
    def ended_by(self, obj: Turn) -> str:
        """Who or what ended it before its time."""
        return format_actor(obj)

    @admin.display(description=gettext_lazy("why it ended"))
    def why(self, obj: Turn) -> SafeString | str:
        """Who or what ended it, the note of a request, and the cause of an interruption."""
        return turn_ending.why(obj)

    @admin.display(description=gettext_lazy("what the agent was told"))
    def told(self, obj: Turn) -> SafeString | str:
        """What each stopped call has answered, and what the next turn begins with."""
        return turn_ending.model_texts(obj)

    @admin.display(description=gettext_lazy("error"))
    def what_failed(self, obj: Turn) -> str:
        """The sentence that people were told."""
        return translations.sentence(obj.error_message) or NOTHING

    @admin.display(description=gettext_lazy("what happened when"))
    def timeline(self, obj: Turn) -> SafeString:
        """When it waited, ran, was asked about, cancelled and repaired; its calls with their limits."""
        return timeline(obj)

    @admin.display(description=gettext_lazy("each of its calls"))
    def calls(self, obj: Turn) -> SafeString | str:
        """Its calls in order, each with a link to the whole record."""
        return turn_tables.calls_of(obj)

    @admin.display(description=gettext_lazy("works for"))
    def worked_for(self, obj: Turn) -> SafeString | str:
        """The turn that set it to work, and by which call."""
        if obj.parent is None:
            return NOTHING
        text = f"{obj.parent.agent} · {obj.parent_tool_id}"
        return link("turns_turn", obj.parent.pk, text, reader=reader_of(obj))

    @admin.display(description=gettext_lazy("replaced by"))
    def replacement(self, obj: Turn) -> SafeString | str:
        """The turn whose message has replaced its own, or one before it. It is in no history any more."""
        if obj.replaced_by is None:
            return NOTHING
        number = str(obj.replaced_by.number)
        return link("turns_turn", obj.replaced_by.pk, number, reader=reader_of(obj))

    @admin.display(description=gettext_lazy("sub-agents"))
    def sub_agents(self, obj: Turn) -> SafeString | str:
        """Whom it has set to work, and what became of that."""
        return turn_tables.sub_agents_of(obj)

    @admin.display(description=gettext_lazy("decisions of people"))
    def decisions(self, obj: Turn) -> SafeString | str:
        """Who was asked about its calls, and who decided what when (D4)."""
        return turn_tables.decisions_on(obj)

    @admin.display(description=gettext_lazy("cancel requests"))
    def requests(self, obj: Turn) -> SafeString | str:
        """Who wanted it to end, how, and how long that took."""
        return turn_tables.cancels_of(obj)

    @admin.display(description=gettext_lazy("requests for other limits"))
    def limit_requests(self, obj: Turn) -> SafeString | str:
        """Who wanted another limit for which call, and why (T9)."""
        return turn_tables.limits_of(obj)

    @admin.display(description=gettext_lazy("repairs"))
    def repairs_made(self, obj: Turn) -> SafeString | str:
        """What was put right in its history."""
        return turn_tables.repairs_of(obj)

    @admin.display(description=gettext_lazy("events"))
    def event_log(self, obj: Any) -> SafeString | str:
        return event_log.events_of(obj, obj.query)

    @admin.display(description=gettext_lazy("usage"))
    def usage_text(self, obj: Turn) -> str:
        return ", ".join(f"{name}: {count}" for name, count in obj.usage.items()) or NOTHING
