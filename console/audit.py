"""Admin pages for the audit: cancel requests, cancelled turns with their results, and repairs of histories."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from console import exports, filters, turn_tables
from console.charts import Chart, cancel_latency, repairs_by_day
from console.exports import Columns, Row
from console.filters import DAY, time_filter
from console.formats import NOTHING, Column, note_of, outcome_text, span
from console.links import link_column, links_of_turns, reader_of, turn_link
from console.lists import SearchedList, section
from console.page import Page
from console.sentences import turn_sentence
from governance import OPEN_STATUSES, selectors
from governance.hidden_characters import visible
from governance.labels import call_statuses
from turns.core.turns import ACTIVE_STATUSES
from turns.models import Acknowledgement, CancelRequest, Repair
from turns.models.labels import turn_statuses

_OPEN = {status.value for status in (*OPEN_STATUSES, *ACTIVE_STATUSES)}
_ENDS = {**dict(call_statuses()), **dict(turn_statuses())}
_LINKS = [link_column(name) for name in ("user", "agent", "conversation", "process")]
_CALL_FACTS = (
    "call_id", "tool_name", "step", "status", "disposition", "effects", "duration_ms", "timeout_ms", "timeout_source",
    "idle_timeout_ms", "limit_reached", "ended_by_reason",
)  # fmt: skip

SPANS = {"7d": (_("7 days"), 7), "30d": (_("30 days"), 30), "90d": (_("90 days"), 90)}
DEFAULT_SPAN = "30d"


class FiguresPage(Page):
    """A page with the charts that `draw` returns for a number of recent days, for users who may see the list."""

    template = "console/figures.html"

    def __init__(
        self,
        model_admin: Any,
        request: HttpRequest,
        title: Any,
        draw: Callable[[int], Sequence[Chart]],
    ) -> None:
        super().__init__(model_admin, request)
        self.title = title
        self._draw = draw

    def may_see(self) -> bool:
        return bool(self.admin.has_view_permission(self.request))

    @property
    def context(self) -> dict[str, Any]:
        selection = self.chosen("span", SPANS, DEFAULT_SPAN)
        spans = {name: words for name, (words, _days) in SPANS.items()}
        charts = self._draw(SPANS[selection][1])
        return {"spans": self.choices("span", spans, selection), "charts": charts}


# Filters by whether a cancel request has taken effect, how fast, and with what outcome.
SettledFilter = filters.choice(
    "settled",
    _("settled"),
    {
        "no": (_("Not yet"), Q(settled_at=None)),
        "fast": (_("Within 1 s"), Q(settled_ms__lt=1000)),
        "slow": (_("After more than 1 s"), Q(settled_ms__gte=1000)),
    },
)
OutcomeFilter = filters.choice(
    "outcome",
    _("outcome"),
    {end: (words, Q(outcome=end)) for end, words in _ENDS.items() if end not in _OPEN},
)


def _whose(request: CancelRequest) -> str:
    """Return who requested a cancel and how, or the reason of an automatic one."""
    if not request.by_name:
        return str(request.get_reason_display())
    return f"{request.by_name}, {request.get_source_display()}"


def _answer(request: CancelRequest) -> str:
    """Return the cancel word and its acknowledgement; a dash if the request was not a cancel word."""
    row = Acknowledgement.objects.filter(request=request).first()
    return f"“{row.said}” → “{row.text}”" if row else NOTHING


def _turn_link(row: Any) -> SafeString | str:
    return turn_link(row.turn, reader=reader_of(row))


class CancelRequestAdmin(SearchedList):
    """The admin list of every cancel request, newest first."""

    content_fields: ClassVar[Any] = ("answer", "note")
    export_columns = [exports.of_turns("turn_id"), exports.ANSWERS]
    list_display = ["requested_at", "what", "whose", "took", "outcome_label", "turn_link"]
    list_select_related = ["turn__conversation__owner"]
    list_filter = [
        time_filter("requested_at", default=DAY), SettledFilter, "reason", "source", OutcomeFilter, "mode",
        *filters.OF_REQUESTS,
    ]  # fmt: skip
    id_fields = ("turn",)
    search_fields = ["by_name", "tool_id"]
    search_help_text = _("Full id of a turn or call, or full user name")
    fields: ClassVar[Any] = [
        "turn_link", "what", "reason", "source", "by_name", "why", "mode", "tools", "requested_at", "settled_at",
        "took", "outcome_label", "answer",
    ]  # fmt: skip

    whose = Column(_("by"), _whose, ordering="by_name")
    outcome_label = Column(_("outcome"), outcome_text, ordering="outcome")
    answer = Column(_("cancel word and answer"), _answer)
    why = Column(_("note"), lambda row: note_of(row, reader_of(row)) or NOTHING)
    what = Column(
        _("target"), lambda request: request.tool_id or str(_("the turn")), ordering="tool_id"
    )
    took = span("settled_ms", _("requested → settled"))
    tools = Column(_("running tools"), lambda request: ", ".join(request.running_tools) or NOTHING)
    turn_link = Column(_("turn"), _turn_link)

    def sentence(self, row: Any) -> str:
        """Return a heading with the turn and the outcome."""
        words = (
            _("Cancel request for a call in %(user)s’s turn #%(number)d: %(outcome)s")
            if row.tool_id
            else _("Cancel request for %(user)s’s turn #%(number)d: %(outcome)s")
        )
        user = visible(row.turn.conversation.owner.get_username())
        return str(words) % {
            "user": user,
            "number": row.turn.number,
            "outcome": outcome_text(row),
        }


def _facts(rows: Sequence[Row], *, name: str, facts: Iterable[str]) -> Iterator[Row]:
    """Return, for each row, the named facts about the calls of its turn."""
    facts_by_turn: dict[str, list[Row]] = {str(row["turn_id"]): [] for row in rows}
    for call in selectors.calls_of_groups(facts_by_turn, with_content=name == "told"):
        facts_by_turn[call.group].append({fact: getattr(call, fact) for fact in facts})
    return ({name: facts_by_turn[str(row["turn_id"])]} for row in rows)


class CancelledTurnAdmin(CancelRequestAdmin):
    """The admin list of every cancelled turn, newest first."""

    content_fields = ("answer", "note", "told")
    export_columns = [
        *CancelRequestAdmin.export_columns,
        Columns(names=("calls",), read=partial(_facts, name="calls", facts=_CALL_FACTS)),
        Columns(
            names=("told",),
            read=partial(_facts, name="told", facts=("call_id", "result")),
            are_content=True,
        ),
    ]
    list_display = ["requested_at", "whose", "why", "took", "tools", "outcome_label", "turn_link"]
    search_fields = ["by_name"]
    search_help_text = _("Full id of a turn, or full user name")
    figures = [(_("Cancel latency"), "turns_cancel_latency")]
    fields = None
    fieldsets = [
        section(None, "turn_link", *_LINKS, "outcome_label"),
        section(_("Who, how and why"), "by_name", "source", "reason", "why", "mode", "answer"),
        section(_("Time"), "requested_at", "settled_at", "took", "afterwards"),
        section(_("Running tools"), "tools", "calls", "requests", "reached"),
        section(_("Messages to the agent"), "told"),
    ]

    calls = Column(_("tool calls"), lambda row: turn_tables.calls_of(row.turn, row.calls_made))
    afterwards = Column(
        _("calls after the cancel"), lambda row: turn_tables.after_the_cancel(row, row.calls_made)
    )
    told = Column(_("results"), lambda row: turn_tables.results_of(row.turn, row.calls_made))
    requests = Column(_("cancel requests"), lambda row: turn_tables.cancels_of(row.turn))
    reached = Column(_("sub-agents"), lambda row: turn_tables.sub_agents_of(row.turn))

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.latency_view)
        return [path("latency/", view, name="turns_cancel_latency"), *super().get_urls()]

    def latency_view(self, request: HttpRequest) -> HttpResponse:
        return FiguresPage(self, request, _("Cancel latency"), cancel_latency).respond()

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("turns.view_cancelrequest")

    def sentence(self, row: Any) -> str:
        return turn_sentence(row.turn, row.calls_made)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Leave out the requests to cancel a single call."""
        return super().get_queryset(request).filter(tool_id="")

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Read the turn's related objects and calls once."""
        row: Any = super().get_object(request, object_id, from_field)
        if row is not None:
            row.links = links_of_turns(request.user, [row.turn])[str(row.turn_id)]
            row.turn.reader = request.user
            row.calls_made = selectors.calls_of_group(str(row.turn_id))
        return row


class RepairAdmin(SearchedList):
    """The admin list of every repair of a history, newest first."""

    export_columns = [exports.of_turns("turn_id")]
    list_display = ["at", "kind", "cause", "turn_link"]
    list_select_related = ["turn__conversation__owner"]
    list_filter = [
        time_filter("at", default=DAY),
        "kind",
        "cause",
        "found_when",
        *filters.OF_ROWS_OF_TURNS,
    ]
    id_fields = ("turn", "conversation")
    search_fields = ["tool_id"]
    search_help_text = _("Full id of a turn, call or conversation")
    figures = [(_("Repairs by day"), "turns_repairs_by_day")]
    fields = ["at", "kind", "cause", "found_when", "tool_id", "text", "turn_link", "conversation"]

    turn_link = Column(_("turn"), _turn_link)

    def sentence(self, row: Repair) -> str:
        return f"{row.get_kind_display()} · {row.get_cause_display()}"

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.by_day_view)
        return [path("days/", view, name="turns_repairs_by_day"), *super().get_urls()]

    def by_day_view(self, request: HttpRequest) -> HttpResponse:
        """Show the number of repairs per day and cause."""
        return FiguresPage(self, request, _("Repairs by day"), repairs_by_day).respond()
