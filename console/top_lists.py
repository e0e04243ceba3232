"""The users, agents and tools with the most timeouts, cancels and tokens: a page linked from the list of calls."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from django.db.models import BigIntegerField, Count, F, OuterRef, QuerySet, Subquery, Sum
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce
from django.utils.translation import gettext_lazy as _

from console.filters import DAY, SPANS
from console.formats import NOTHING
from console.group_ids import GroupAsId
from console.links import USERNAME, Link, address_of_list, anchor
from console.page import Page
from governance import db_clock
from governance.core.calls import ErrorType
from governance.models import ToolCall
from turns.models import CancelRequest, Conversation, Turn

SHOWN = 10
_SPANS = {
    name: SPANS[name] for name in ("1h", "24h", "7d")
}  # not a month, which takes 0.3 s with a million calls
_HAPPENED = {
    ErrorType.TIMEOUT: "timed_out",
    ErrorType.CANCELLED: "cancelled",
}  # the value of the list's filter

_OWNER = Subquery(
    Conversation.objects.order_by()
    .filter(pk=GroupAsId(OuterRef("scope")))
    .values(f"owner__{USERNAME}")[:1]
)
_AGENT = Subquery(
    Turn.objects.order_by().filter(pk=GroupAsId(OuterRef("group"))).values("agent")[:1]
)

_ROWS = Count("pk")
_TIMES = _("times")


def _sum_of(name: str) -> Any:
    return Coalesce(Sum(Cast(KT(f"usage__{name}"), BigIntegerField())), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopList:
    """One table: for each value of the expression `name`, the `measure` of its rows.

    Each name links to the list of `model`, filtered by the name and, for calls, by `error_type`.
    """

    title: Any
    model: Any
    name: Any
    filter: str
    error_type: ErrorType | None = None
    needs: tuple[str, ...]
    time: str = "requested_at"
    measure: Any = _ROWS
    unit: Any = _TIMES

    def lines(self, reader: Any, *, span: str) -> list[tuple[Any, int]]:
        """Return the names with the highest values, linked to their rows, and the values."""
        since = db_clock.now() - _SPANS[span][1]
        rows = self._rows(since).order_by("-total", "name").values_list("name", "total")
        return [(self._link(reader, name, span), total) for name, total in rows[:SHOWN]]

    def _rows(self, since: datetime) -> QuerySet[Any]:
        rows: QuerySet[Any] = self.model.objects.order_by().filter(**{f"{self.time}__gte": since})
        if self.error_type:
            rows = rows.filter(error_type=self.error_type)
        groups = rows.annotate(name=self.name).values("name")
        return cast("QuerySet[Any]", groups.annotate(total=self.measure).filter(total__gt=0))

    def _link(self, reader: Any, name: str, span: str) -> Any:
        if not name:
            return NOTHING
        page = f"{self.model._meta.app_label}_{self.model._meta.model_name}"
        filters = {self.filter: name, "when": span}
        if self.error_type:
            filters["happened"] = _HAPPENED[self.error_type]
        return anchor(Link(name, address_of_list(reader, page, **filters)))


def _calls(title: Any, error_type: ErrorType, filter: str, name: Any, *needs: str) -> TopList:
    return TopList(
        title=title, model=ToolCall, name=name, filter=filter, error_type=error_type, needs=needs
    )


def _requests(title: Any, filter: str, name: Any) -> TopList:
    return TopList(
        title=title,
        model=CancelRequest,
        name=name,
        filter=filter,
        needs=("turns.view_turn", "turns.view_cancelrequest"),
    )


def _tokens(title: Any, filter: str, name: Any) -> TopList:
    return TopList(
        title=title,
        model=Turn,
        name=name,
        filter=filter,
        needs=("turns.view_turn",),
        time="queued_at",
        measure=_sum_of("input_tokens") + _sum_of("output_tokens"),
        unit=_("tokens"),
    )


LISTS = [
    _calls(_("Timeouts by user"), ErrorType.TIMEOUT, "user", _OWNER, "turns.view_turn"),
    _calls(_("Timeouts by agent"), ErrorType.TIMEOUT, "agent", _AGENT, "turns.view_turn"),
    _calls(_("Timeouts by tool"), ErrorType.TIMEOUT, "tool", F("tool_name")),
    _requests(_("Cancels by user"), "user", F(f"turn__conversation__owner__{USERNAME}")),
    _requests(_("Cancels by agent"), "agent", F("turn__agent")),
    _calls(_("Cancelled calls by tool"), ErrorType.CANCELLED, "tool", F("tool_name")),
    _tokens(_("Tokens by user"), "user", F(f"conversation__owner__{USERNAME}")),
    _tokens(_("Tokens by agent"), "agent", F("agent")),
]


class TopPage(Page):
    """The tables that the reader may see, for one time span."""

    template = "console/top_lists.html"
    title = _("Most timeouts, cancels and tokens")

    @property
    def context(self) -> dict[str, Any]:
        span = self.chosen("span", _SPANS, DAY)
        spans = {name: words for name, (words, _span) in _SPANS.items()}
        reader: Any = self.request.user
        tables = [
            (top.title, top.unit, top.lines(reader, span=span))
            for top in LISTS
            if reader.has_perms(top.needs)
        ]
        return {"spans": self.choices("span", spans, span), "tables": tables}
