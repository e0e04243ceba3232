"""Admin pages for turns: what ran, how and by whom it was ended, and an action that cancels turns."""

from collections.abc import Iterable
from typing import Any, ClassVar

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

from console import event_log, exports, filters, turn_tables
from console.filters import DAY, time_filter
from console.formats import (
    NOTHING,
    TONES,
    Column,
    Status,
    Tone,
    format_actor,
    format_span,
    span,
)
from console.links import (
    USERNAME,
    Link,
    anchor,
    anchors,
    link,
    link_column,
    links_of_turns,
    reader_of,
)
from console.lists import SearchedList, section
from console.overview import Overview
from console.running_actions import AT_ONCE, needs_reason
from console.sentences import turn_sentence
from console.timeline import timeline
from console.usage_words import usage_words
from governance import CancelSource, selectors
from governance.hidden_characters import visible
from turns import services
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.models import Repair, Turn
from turns.selectors import translations

TITLE_SHOWN = 40
_LINKS = [link_column(name) for name in ("user", "agent", "conversation", "chat", "process")]

TurnOutcomeFilter = filters.choice(
    "happened",
    gettext_lazy("outcome"),
    {
        "active": (gettext_lazy("Running or waiting"), Q(status__in=ACTIVE_STATUSES)),
        "stopped": (
            gettext_lazy("Stopped early"),
            Q(status__in=(TurnStatus.CANCELLED, TurnStatus.TIMED_OUT, TurnStatus.INTERRUPTED)),
        ),
        "failed": (gettext_lazy("Failed"), Q(status=TurnStatus.FAILED)),
        "ended_badly": (
            gettext_lazy("Failed or interrupted"),
            Q(status__in=(TurnStatus.FAILED, TurnStatus.INTERRUPTED)),
        ),
        "replaced": (
            gettext_lazy("Replaced because its message or an earlier one was edited"),
            Q(replaced_by__isnull=False),
        ),
        "repaired": (
            gettext_lazy("History was repaired"),
            Q(pk__in=Repair.objects.order_by().values("turn")),
        ),
    },
)


class ReasonForm(ActionForm):
    """A form that asks for the reason for an action."""

    why = forms.CharField(label=gettext_lazy("Reason (required)"), required=False, max_length=500)


def _title(turn: Any) -> SafeString | str:
    """Return the conversation's title, linked to its page."""
    title = Truncator(turn.conversation.title).chars(TITLE_SHOWN) or NOTHING
    return anchor(Link(title, turn.links["conversation"].address))


def _worked_for(turn: Turn) -> SafeString | str:
    """Return a link to the parent turn, with the call that started this one."""
    if turn.parent is None:
        return NOTHING
    text = f"{turn.parent.agent} · {turn.parent_tool_id}"
    return link("turns_turn", turn.parent.pk, text, reader=reader_of(turn))


def _replacement(turn: Turn) -> SafeString | str:
    """Return a link to the turn that replaced this one after an edit. Replaced turns are left out of the history."""
    if turn.replaced_by is None:
        return NOTHING
    number = str(turn.replaced_by.number)
    return link("turns_turn", turn.replaced_by.pk, number, reader=reader_of(turn))


def _limit(turn: Turn) -> str:
    return format_span(turn.turn_timeout_ms) if turn.turn_timeout_ms else _("no limit")


def _answered_by(turn: Turn) -> str:
    """Return the chat models that answered, under the names that their providers use."""
    answers = turn.messages.filter(usage__model__isnull=False).order_by("position")
    return ", ".join(dict.fromkeys(answers.values_list("usage__model", flat=True))) or NOTHING


_STATUS = Column(
    gettext_lazy("status"),
    lambda turn: Status(turn.get_status_display(), TONES.get(turn.status, Tone.PLAIN)),
    ordering="status",
    name="status",
)


class TurnAdmin(SearchedList):
    """The admin list of every turn, newest first."""

    content_fields = (
        "title", "user_message", "attachments", "told", "event_log", "error_detail", "provider_said",
        "summary",
    )  # fmt: skip
    usual_values: ClassVar[Any] = {"depth": 0, "is_detached": False, "version": 1}
    export_columns = [exports.of_turns("id", ("user", "process"))]
    list_display = ["queued_at", _STATUS, "belongs_to", "title", "ended_by", "ran"]
    list_filter = [
        time_filter("queued_at", default=DAY), TurnOutcomeFilter, "status", "ended_by_reason", "ended_by_source",
        "source", filters.TurnLimitFilter, filters.DurationFilter, *filters.OF_TURNS,
    ]  # fmt: skip
    list_select_related = ["conversation__owner", "owner"]
    id_fields = ("pk", "conversation")
    search_fields = [f"conversation__owner__{USERNAME}"]
    search_help_text = gettext_lazy("Full id of a turn or conversation, or full user name")
    actions = ["cancel_turns"]
    action_form = ReasonForm
    fieldsets = [
        section(None, "id", "status", "why", "error_code", "what_failed", "provider_said", *_LINKS, "user_message"),
        section(gettext_lazy("Time"), "queued_at", "started_at", "ended_at", "ran", "limit"),
        section(gettext_lazy("Timeline"), "timeline"),
        section(
            gettext_lazy("Work"),
            "steps", "step_limit", "token_limit", "tool_call_count", "usage_text", "answered_by", "calls",
            "told", "summary",
        ),
        section(
            gettext_lazy("Sub-agents"),
            "sub_agents", "worked_for", "depth", "is_detached", "delivered_at",
        ),
        section(
            gettext_lazy("Audit"),
            "replacement", "version", "decisions", "requests", "limit_requests", "repairs_made", "source",
        ),
        section(gettext_lazy("Events"), "event_log", classes=["collapse"]),
    ]  # fmt: skip

    belongs_to = Column(  # one column, because several do not fit on a screen
        gettext_lazy("belongs to"),
        lambda turn: anchors(turn.links, ("user", "agent", "process")),
        ordering="conversation__owner",
    )
    title = Column(gettext_lazy("conversation"), _title, ordering="conversation")
    ran = span("duration_ms", gettext_lazy("duration"))
    limit = Column(gettext_lazy("limit"), _limit)
    ended_by = Column(gettext_lazy("ended by"), format_actor, ordering="ended_by_reason")
    why = Column(gettext_lazy("reason for the end"), turn_tables.why)
    told = Column(gettext_lazy("messages to the agent"), turn_tables.told_of)
    what_failed = Column(  # the message shown to people
        gettext_lazy("error"), lambda turn: translations.sentence(turn.error_message) or NOTHING
    )
    provider_said = Column(
        gettext_lazy("provider message"), lambda turn: visible(turn.error_detail) or NOTHING
    )
    timeline = Column(gettext_lazy("timeline"), timeline)
    calls = Column(gettext_lazy("tool calls"), turn_tables.calls_of)
    worked_for = Column(gettext_lazy("parent turn"), _worked_for)
    replacement = Column(gettext_lazy("replaced by"), _replacement)
    sub_agents = Column(gettext_lazy("sub-agents"), turn_tables.sub_agents_of)
    decisions = Column(gettext_lazy("decisions"), turn_tables.decisions_on)
    requests = Column(gettext_lazy("cancel requests"), turn_tables.cancels_of)
    limit_requests = Column(gettext_lazy("limit requests"), turn_tables.limits_of)
    repairs_made = Column(gettext_lazy("repairs"), turn_tables.repairs_of)
    event_log = Column(gettext_lazy("events"), lambda turn: event_log.events_of(turn, turn.query))
    usage_text = Column(gettext_lazy("usage"), lambda turn: usage_words(turn.usage))
    answered_by = Column(gettext_lazy("answered by"), _answered_by)

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.overview_view)
        return [path("overview/", view, name="turns_overview"), *super().get_urls()]

    def overview_view(self, request: HttpRequest) -> HttpResponse:
        """Show the overview."""
        return Overview(self, request).respond()

    def sentence(self, row: Turn) -> str:
        return turn_sentence(row, selectors.calls_of_groups([str(row.pk)], with_content=False))

    def prepare_rows(self, request: HttpRequest, rows: Iterable[Any]) -> None:
        """Read the related objects of all turns in one query."""
        super().prepare_rows(request, rows)
        links = links_of_turns(request.user, rows)
        for turn in rows:
            turn.links = links[str(turn.pk)]
            turn.query = request.GET

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fieldsets. The section with the event log is open while the user pages through it."""
        fieldsets = super().get_fieldsets(request, obj)
        if not event_log.asked(request.GET):
            return fieldsets
        return [
            (title, {**options, "classes": []} if "event_log" in options["fields"] else options)
            for title, options in fieldsets
        ]

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may cancel turns."""
        return request.user.has_perm("turns.cancel_any")

    @admin.action(
        description=gettext_lazy("Cancel the selected running turns"), permissions=["cancel"]
    )
    def cancel_turns(self, request: HttpRequest, queryset: QuerySet[Turn]) -> HttpResponse | None:
        """Cancel the selected turns that have not ended, through the same service as every other client."""
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
                "%(count)d turn had already ended.", "%(count)d turns had already ended.", finished
            )
            self.message_user(request, text % {"count": finished}, messages.WARNING)
        if remainder := len(turn_ids[AT_ONCE:]):
            text = ngettext(
                "%(count)d turn was skipped. Run the action again to cancel it.",
                "%(count)d turns were skipped. Run the action again to cancel them.",
                remainder,
            )
            self.message_user(request, text % {"count": remainder}, messages.WARNING)
        return None
