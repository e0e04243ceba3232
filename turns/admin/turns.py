"""Admin of turns: what ran, how it ended and by whom, and an action that cancels the ones that run (C2, V4)."""

import json
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from governance import CancelSource, approval_store
from governance import selectors as governance_selectors
from governance.admin.filters import ConditionFilter
from governance.admin.formatting import (
    NOTHING,
    call_status,
    format_actor,
    format_source,
    format_span,
    format_time,
)
from governance.admin.search import USERNAME, ExactSearchAdmin
from governance.admin.time_filter import time_filter
from turns import services
from turns.admin.rows import link, outcome_words, table
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.events import log
from turns.models import Turn

EVENTS_SHOWN = 500
TITLE_SHOWN = 40


class HappeningFilter(ConditionFilter):
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
        "repaired": (gettext_lazy("Its history was repaired"), Q(repairs__isnull=False)),
    }


@admin.register(Turn)
class TurnAdmin(ExactSearchAdmin):
    """Every turn, newest first."""

    list_display = ["queued", "status", "who", "title", "ended_by", "ran"]
    list_filter = [
        time_filter("queued_at"),
        HappeningFilter,
        "status",
        "ended_by_reason",
        "ended_by_source",
        "source",
    ]
    list_select_related = ["conversation__owner"]
    id_fields = ("pk", "conversation")
    search_fields = [f"conversation__owner__{USERNAME}"]
    search_help_text = gettext_lazy("A whole id of a turn or a conversation, or a whole user name")
    actions = ["cancel_turns"]
    readonly_fields = [
        "who",
        "ran",
        "limit",
        "ended_by",
        "calls",
        "worked_for",
        "sub_agents",
        "decisions",
        "requests",
        "repairs_made",
        "event_log",
        "usage_text",
    ]
    fieldsets = [
        (
            None,
            {
                "fields": [
                    "status",
                    "ended_by",
                    "error_code",
                    "error_message",
                    "who",
                    "agent",
                    "conversation",
                    "user_message",
                ]
            },
        ),
        (gettext_lazy("Time"), {"fields": ["queued_at", "started_at", "ended_at", "ran", "limit"]}),
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
                    "decisions",
                    "requests",
                    "repairs_made",
                    "owner",
                    "epoch",
                    "source",
                ]
            },
        ),
        (gettext_lazy("Events"), {"classes": ["collapse"], "fields": ["event_log"]}),
    ]

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Whether the action is offered at all."""
        return request.user.has_perm("turns.cancel_any")

    @admin.action(
        description=gettext_lazy("Cancel the selected running turns"), permissions=["cancel"]
    )
    def cancel_turns(self, request: HttpRequest, queryset: QuerySet[Turn]) -> None:
        """Request the end of the chosen turns that still run or wait, by the path that every request takes."""
        outcomes = [
            async_to_sync(services.request_cancel)(
                turn_id=turn_id, user=request.user, source=CancelSource.ADMIN
            ).outcome
            for turn_id in queryset.order_by("-number").values_list("pk", flat=True)
        ]
        accepted = outcomes.count(services.OpOutcome.ACCEPTED)
        if accepted:
            text = ngettext(
                "%(count)d turn is being cancelled.",
                "%(count)d turns are being cancelled.",
                accepted,
            )
            self.message_user(request, text % {"count": accepted}, messages.SUCCESS)
        if finished := len(outcomes) - accepted:
            text = ngettext(
                "%(count)d turn had ended already.", "%(count)d turns had ended already.", finished
            )
            self.message_user(request, text % {"count": finished}, messages.WARNING)

    @admin.display(description=gettext_lazy("queued at"), ordering="queued_at")
    def queued(self, obj: Turn) -> str:
        """When its message came."""
        return format_time(obj.queued_at)

    @admin.display(description=gettext_lazy("user"), ordering="conversation__owner")
    def who(self, obj: Turn) -> str:
        """Whose turn it is."""
        return str(obj.conversation.owner.get_username())

    @admin.display(description=gettext_lazy("conversation"), ordering="conversation")
    def title(self, obj: Turn) -> str:
        """What its conversation is called; Django lets no other column of a related row wrap."""
        return Truncator(obj.conversation.title).chars(TITLE_SHOWN) or NOTHING

    @admin.display(description=gettext_lazy("ran"), ordering="duration_ms")
    def ran(self, obj: Turn) -> str:
        """How long it ran."""
        return format_span(obj.duration_ms)

    @admin.display(description=gettext_lazy("limit"))
    def limit(self, obj: Turn) -> str:
        """The turn's own deadline (T10)."""
        return format_span(obj.turn_timeout_ms) if obj.turn_timeout_ms else _("no limit")

    @admin.display(description=gettext_lazy("ended by"), ordering="ended_by_reason")
    def ended_by(self, obj: Turn) -> str:
        """Who or what ended it before its time."""
        return format_actor(obj)

    @admin.display(description=gettext_lazy("tool calls"))
    def calls(self, obj: Turn) -> SafeString | str:
        """Its calls in order, each with a link to the whole record."""
        heads = [
            _("step"),
            _("tool"),
            _("status"),
            _("ran"),
            _("limit"),
            _("ended by"),
            _("what is known"),
        ]
        return table(
            heads,
            [
                (
                    call.step,
                    link("governance_toolcall", call.pk, call.tool_name),
                    call_status(call),
                    format_span(call.duration_ms),
                    f"{format_span(call.timeout_ms)} ({format_source(call.timeout_source)})"
                    if call.timeout_ms
                    else _("no limit"),
                    format_actor(call),
                    call.get_disposition_display() or NOTHING,
                )
                for call in governance_selectors.calls_of_group(str(obj.pk))
            ],
        )

    @admin.display(description=gettext_lazy("works for"))
    def worked_for(self, obj: Turn) -> SafeString | str:
        """The turn that set it to work, and by which call."""
        if obj.parent is None:
            return NOTHING
        text = f"{obj.parent.agent} · {obj.parent_tool_id}"
        return link("turns_turn", obj.parent.pk, text)

    @admin.display(description=gettext_lazy("sub-agents"))
    def sub_agents(self, obj: Turn) -> SafeString | str:
        """Whom it has set to work, and what became of that."""
        heads = [
            _("queued at"),
            _("agent"),
            _("status"),
            _("ended by"),
            _("ran"),
            _("delivered at"),
        ]
        return table(
            heads,
            [
                (
                    child.queued_at,
                    link("turns_turn", child.pk, child.agent or child.pk),
                    child.get_status_display(),
                    format_actor(child),
                    format_span(child.duration_ms),
                    (child.delivered_at or _("not yet")) if child.is_detached else NOTHING,
                )
                for child in obj.children.order_by("queued_at")
            ],
        )

    @admin.display(description=gettext_lazy("decisions of people"))
    def decisions(self, obj: Turn) -> SafeString | str:
        """Who was asked about its calls, and who decided what when (D4)."""
        heads = [_("asked at"), _("tool"), _("decision"), _("by"), _("decided at"), _("reason")]
        return table(
            heads,
            [
                (
                    question.requested_at,
                    link("governance_approval", question.pk, question.tool_name),
                    question.get_decision_display() or _("not yet"),
                    question.by_name or NOTHING,
                    question.decided_at or NOTHING,
                    question.reason or NOTHING,
                )
                for question in approval_store.questions_of_group(str(obj.pk))
            ],
        )

    @admin.display(description=gettext_lazy("cancel requests"))
    def requests(self, obj: Turn) -> SafeString | str:
        """Who wanted it to end, how, and how long that took (92)."""
        heads = [
            _("requested at"),
            _("what"),
            _("reason"),
            _("means"),
            _("by"),
            _("took"),
            _("outcome"),
        ]
        return table(
            heads,
            [
                (
                    request.requested_at,
                    request.tool_id or _("the turn"),
                    request.get_reason_display(),
                    request.get_source_display(),
                    request.by_name,
                    format_span(request.settled_ms),
                    outcome_words(request),
                )
                for request in obj.cancel_requests.all()
            ],
        )

    @admin.display(description=gettext_lazy("repairs"))
    def repairs_made(self, obj: Turn) -> SafeString | str:
        """What was put right in its history."""
        rows = [
            (repair.at, repair.tool_id, repair.get_kind_display(), repair.get_cause_display())
            for repair in obj.repairs.all()
        ]
        return table([_("at"), _("tool call"), _("kind"), _("cause")], rows)

    @admin.display(description=gettext_lazy("events"))
    def event_log(self, obj: Turn) -> SafeString | str:
        """The log as clients saw it."""
        events = log.read_turn(obj.pk, after=0, limit=EVENTS_SHOWN)
        named = {"seq", "at", "type", "turn_id"}
        lines = [
            (event["seq"], event["at"], event["type"], _fields(event, without=named))
            for event in events
        ]
        return table([_("number"), _("at"), _("type"), _("fields")], lines)

    @admin.display(description=gettext_lazy("usage"))
    def usage_text(self, obj: Turn) -> str:
        """What it cost."""
        return ", ".join(f"{name}: {count}" for name, count in obj.usage.items()) or NOTHING


def _fields(event: dict[str, Any], *, without: set[str]) -> str:
    text = json.dumps(
        {name: value for name, value in event.items() if name not in without}, ensure_ascii=False
    )
    return text if len(text) <= 500 else f"{text[:500]}…"
