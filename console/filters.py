"""Filters of the admin lists.

Each filter is a condition on the list's own table, and none scans a table for its choices. The database can
therefore use the list's index for the chosen time range. Typed values must match in full.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import SEARCH_VAR
from django.contrib.auth import get_user_model
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_lazy as _

from console import tools
from console.group_ids import GroupAsId, has_call
from console.links import LABELS, USERNAME
from console.search import as_id
from governance import approval_store, db_clock
from governance.core.calls import OPEN_STATUSES, CallStatus, Effects, ErrorType
from governance.core.deadline import Limit
from governance.recorder import UNWATCHED
from governance.sanitize import sanitize_text
from turns.core.turns import TurnStatus
from turns.models import Conversation, Process, Turn
from turns.models.labels import message_sources

Conditions = Mapping[str, tuple[Any, Q]]
Rows = QuerySet[Any]
Narrow = Callable[[Rows, str], Rows]
"""Returns the rows that match a value."""
Find = Callable[[str], Q | None]
"""Returns the condition for turns that match a value; None if no turn can."""

LONGEST = 200  # characters of a typed value
FROM, UNTIL = "when_from", "when_until"
ANY = "any"
DAY = "24h"
IN_SPANS = {
    "1h": _("in the last hour"),
    "24h": _("in the last 24 hours"),
    "7d": _("in the last 7 days"),
    "30d": _("in the last 30 days"),
}
SPANS = {
    "1h": (_("Last hour"), timedelta(hours=1)),
    "24h": (_("Last 24 hours"), timedelta(hours=24)),
    "7d": (_("Last 7 days"), timedelta(days=7)),
    "30d": (_("Last 30 days"), timedelta(days=30)),
}


class ConditionFilter(admin.SimpleListFilter):
    """A filter that offers named conditions."""

    conditions: Conditions

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(key, words) for key, (words, _condition) in self.conditions.items()]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        """Apply the chosen condition.

        An unknown one matches nothing, because otherwise an export would contain all rows.
        """
        value = self.value()
        if not value:
            return queryset
        entry = self.conditions.get(value)
        return queryset.filter(entry[1]) if entry else queryset.none()


def choice(name: str, title: Any, conditions: Conditions) -> type[ConditionFilter]:
    """Return a filter class that offers these conditions."""
    fields = {"parameter_name": name, "title": title, "conditions": conditions}
    return type("ChoiceFilter", (ConditionFilter,), fields)


CallOutcomeFilter = choice(
    "happened",
    _("outcome"),
    {
        "open": (_("Not ended yet"), Q(status__in=OPEN_STATUSES)),
        "ran": (_("Ran and ended"), ~Q(status__in=OPEN_STATUSES) & Q(duration_ms__isnull=False)),
        "asked": (_("Waiting for a person"), approval_store.waits_for_person()),
        "timed_out": (_("Timed out"), Q(error_type=ErrorType.TIMEOUT)),
        "cancelled": (_("Cancelled"), Q(error_type=ErrorType.CANCELLED)),
        "abandoned": (
            _("Abandoned: may still be running"),
            Q(status=CallStatus.ABANDONED, late_kind=""),
        ),
        "unwatched": (
            _("Abandoned: its end was not observed"),
            Q(status=CallStatus.ABANDONED, late_kind=UNWATCHED),
        ),
        "repaired": (_("Repaired"), Q(status=CallStatus.REPAIRED)),
        "cut": (_("Started, interrupted, had side effects"), Q(effects=Effects.CUT)),
        "late": (_("Settled after its end"), ~Q(late_kind__in=("", UNWATCHED))),
        "moved": (_("Limit changed while running"), ~Q(deadline_changes=[])),
        "capped": (_("Requested more than it was granted"), Q(asked_timeout_ms__isnull=False)),
    },
)
LimitFilter = choice(
    "ran_out",
    _("limit reached"),
    {
        "total": (
            _("The call’s limit"),
            Q(error_type=ErrorType.TIMEOUT, limit_reached=Limit.TOTAL),
        ),
        "idle": (
            _("The call’s idle limit"),
            Q(error_type=ErrorType.TIMEOUT, limit_reached=Limit.IDLE),
        ),
        "turn": (_("The turn’s limit"), Q(limit_reached=Limit.TURN)),
        "approval": (
            _("The time to answer"),
            Q(error_type=ErrorType.EXPIRED, limit_reached=Limit.APPROVAL),
        ),
    },
)
DurationFilter = choice(
    "ran",
    _("duration"),
    {
        "1": (_("Under 1 s"), Q(duration_ms__lt=1_000)),
        "10": (_("1 to 10 s"), Q(duration_ms__gte=1_000, duration_ms__lt=10_000)),
        "30": (_("10 to 30 s"), Q(duration_ms__gte=10_000, duration_ms__lt=30_000)),
        "120": (_("30 s to 2 min"), Q(duration_ms__gte=30_000, duration_ms__lt=120_000)),
        "more": (_("2 min and more"), Q(duration_ms__gte=120_000)),
    },
)
TurnLimitFilter = choice(
    "ran_out",
    _("limit reached"),
    {
        "time": (_("The turn’s limit"), Q(status=TurnStatus.TIMED_OUT)),
        "steps": (_("The step limit"), Q(error_code="step_limit")),
        "tokens": (_("The token limit"), Q(error_code="token_limit")),
    },
)


class KnownFilter(admin.ChoicesFieldListFilter):
    """Filters by the disposition of a call, which is what is known about its work."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = _("known outcome")


class ToolFilter(admin.SimpleListFilter):
    """Filters by the tools that the site offers or has limits for; others can be found by searching for their full
    name.
    """

    title = _("tool")
    parameter_name = "tool"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in tools.known()]

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        return queryset.filter(tool_name=self.value()) if self.value() else queryset


def _kept(request: HttpRequest, *names: Any) -> list[tuple[str, str]]:
    """Return the parameters that a filter's form must resubmit: all except its own and the page number."""
    parameters = request.GET.copy()
    for name in (*names, "p", "e"):
        parameters.pop(str(name), None)
    return [(name, value) for name in parameters for value in parameters.getlist(name)]


class RowFilter(admin.SimpleListFilter):
    """A filter that narrows the list to the rows that match a typed or chosen value."""

    narrow: Narrow
    known: Callable[[], Sequence[tuple[str, Any]]] | None = None
    words_for: Callable[[str], str] = staticmethod(str)  # returns a typed value as headings show it

    def __init__(
        self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any
    ) -> None:
        super().__init__(request, params, model, model_admin)
        self.other_parameters = _kept(request, self.parameter_name)

    def has_output(self) -> bool:
        """Show the filter even if it has no choices."""
        return True

    def value(self) -> str | None:
        """Return the value in a form that databases can compare."""
        value = super().value()
        return sanitize_text(value.strip(), limit=LONGEST) if value else None

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        source, value = type(self).known, self.value()
        if source:
            return list(source())
        return [(value, type(self).words_for(value))] if value else []

    def queryset(self, request: HttpRequest, queryset: Rows) -> Rows:
        return type(self).narrow(queryset, value) if (value := self.value()) else queryset


def row_filter(
    name: str,
    title: Any,
    narrow: Narrow,
    *,
    choices: Callable[[], Sequence[tuple[str, Any]]] | None = None,
    words_for: Callable[[str], str] = str,
) -> type[RowFilter]:
    """Return a filter class that narrows a list with the function `narrow`. Without choices, the user types the value."""
    functions = {"narrow": staticmethod(narrow), "words_for": staticmethod(words_for)}
    fields = {"parameter_name": name, "title": title, **functions}
    more = (
        {"known": staticmethod(choices)} if choices else {"template": "console/typed_filter.html"}
    )
    return type("RowFilter", (RowFilter,), {**fields, **more})


class TimeFilter(admin.SimpleListFilter):
    """A filter by the last hour, day, week or month, or by a range that includes its start and excludes its end.

    A list with a `default` span is long, so the filter warns how slow a wider range is.
    """

    title = _("time")
    parameter_name = "when"
    template = "console/time_filter.html"
    field_name: str
    default: str | None = None

    @classmethod
    def default_of(cls, request: HttpRequest) -> dict[str, str]:
        """Return the default span as a parameter; none if a time is chosen, or for a search, which covers all times."""
        names = (cls.parameter_name, FROM, UNTIL, SEARCH_VAR)
        is_asked = any(request.GET.get(str(name)) for name in names)
        return {} if is_asked or cls.default is None else {str(cls.parameter_name): cls.default}

    def __init__(
        self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any
    ) -> None:
        super().__init__(request, params, model, model_admin)
        for name in (FROM, UNTIL):
            if name in params:
                self.used_parameters[name] = params.pop(name)[-1]
        self._default = self.default_of(request).get(str(self.parameter_name))
        self.other_parameters = _kept(request, *self._names)

    @property
    def range(self) -> tuple[str, str]:
        """Return the ends of the range as typed.

        A date is returned as its midnight, because the fields of the form need a date with a time.
        """
        start, end = (str(self.used_parameters.get(name) or "") for name in (FROM, UNTIL))
        return _with_time(start), _with_time(end)

    @property
    def words(self) -> Any:
        """Return the range as text, for use in a sentence."""
        if any(self.range):
            return _("in the selected time range")
        return IN_SPANS.get(self.value() or "", "")

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(key, words) for key, (words, _span) in SPANS.items()]

    def expected_parameters(self) -> list[str | None]:
        return list(self._names)

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Offer the spans; choosing one clears the range."""
        has_range = any(self.range)
        for key, words in [(None, _("Any time")), *self.lookup_choices]:
            span = key or (ANY if self.default else None)
            parameters = {self.parameter_name: span} if span else {}
            yield {
                "selected": not has_range and self.value() == key,
                "query_string": changelist.get_query_string(parameters, list(self._names)),
                "display": words,
            }

    def value(self) -> str | None:
        """Return the chosen span; None = any time."""
        value = super().value() or self._default
        return None if value == ANY else value

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        start, end = (_parse_time(value) for value in self.range)
        span = self.value()
        if span is not None and span not in SPANS:
            raise IncorrectLookupParameters  # otherwise an export would contain all rows
        if span is not None and start is None and end is None:
            start = db_clock.now() - SPANS[span][1]
        if start is not None:
            queryset = queryset.filter(**{f"{self.field_name}__gte": start})
        if end is not None:
            queryset = queryset.filter(**{f"{self.field_name}__lt": end})
        return queryset

    @property
    def _names(self) -> tuple[str, ...]:
        return str(self.parameter_name), FROM, UNTIL


def time_filter(field: str, *, default: str | None = None) -> type[TimeFilter]:
    """Return the filter class of lists ordered by this field. A long list starts with its `default` span."""
    return type("TimeFilter", (TimeFilter,), {"field_name": field, "default": default})


def _with_time(value: str) -> str:
    return f"{value}T00:00" if 0 < len(value) <= len("2026-01-31") else value


def _parse_time(value: str) -> datetime | None:
    """Parse a time in the site's zone. Raise `IncorrectLookupParameters` for anything else."""
    if not value:
        return None
    try:
        moment = parse_datetime(value)
    except ValueError:  # well-formed, but no such day
        moment = None
    if moment is None:
        raise IncorrectLookupParameters
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment


# Filters by the turn of a row: its user, agent, process, source and tools.


def _owner(name: str) -> Any:
    users = get_user_model()._default_manager.filter(**{USERNAME: name})
    return users.values_list("pk", flat=True).first()


def _of_agent(name: str) -> Q:
    return Q(agent=name)


def _of_source(source: str) -> Q:
    return Q(source=source)


def _of_process(name: str) -> Q | None:
    """Return the condition for the turns of a process, given by its name, its id or, if it has no name, host and pid."""
    host, _mark, pid = name.rpartition(":")
    condition = Q(name=name)
    if (pk := as_id(name)) is not None:
        condition |= Q(pk=pk)
    if pid.isascii() and pid.isdigit() and len(pid) < 10:
        condition |= Q(name="", host=host, pid=int(pid))
    pks = list(Process.objects.filter(condition).values_list("pk", flat=True)[:1_000])
    return Q(owner__in=pks) if pks else None


def _process_words(name: str) -> str:
    """Return the name of the process with this id; if there is none, the text itself."""
    pk = as_id(name)
    process = Process.objects.filter(pk=pk).first() if pk else None
    return str(process) if process else name


FINDS: dict[str, Find] = {"agent": _of_agent, "process": _of_process, "message_source": _of_source}


def _by_turn(rows: Rows, value: str, *, find: Find, key: Any) -> Rows:
    """Keep the rows whose turn matches; `key` is the row's field with the turn's id."""
    condition = find(value)
    if condition is None:
        return rows.none()
    return rows.filter(Exists(Turn.objects.order_by().filter(condition, pk=key)))


def _by_user(rows: Rows, name: str, *, key: Any) -> Rows:
    """Keep the rows of a user's conversations; `key` is the row's field with the conversation's id."""
    owner = _owner(name)
    if owner is None:
        return rows.none()
    return rows.filter(Exists(Conversation.objects.order_by().filter(pk=key, owner=owner)))


def _user_of_turn(name: str) -> Q | None:
    owner = _owner(name)
    return None if owner is None else Q(conversation__owner=owner)


def _typed(name: str, narrow: Narrow) -> type[RowFilter]:
    return row_filter(
        name,
        _("message source") if name == "message_source" else LABELS[name],
        narrow,
        choices=message_sources if name == "message_source" else None,
        words_for=_process_words if name == "process" else str,
    )


def _turns_of_process(rows: Rows, name: str) -> Rows:
    """Keep the turns that a process ran.

    The query avoids the index on owners, with which it would read every turn that the process ever ran.
    """
    return _by_turn(rows, name, find=_of_process, key=OuterRef("pk"))


def _conversations_of_user(rows: Rows, name: str) -> Rows:
    owner = _owner(name)
    return rows.none() if owner is None else rows.filter(owner=owner)


def _by_agent(rows: Rows, name: str) -> Rows:
    return rows.filter(_of_agent(name))


def _turns_of_tool(rows: Rows, name: str) -> Rows:
    return rows.filter(has_call(name, group="pk"))


def _requests_of_tool(rows: Rows, name: str) -> Rows:
    return rows.filter(has_call(name, group="turn_id", call_id=OuterRef("tool_id")))


# For lists of calls: the group of a call is its turn, and its scope is its conversation.
OF_CALLS = [
    _typed("user", partial(_by_user, key=GroupAsId(OuterRef("scope")))),
    *(
        _typed(name, partial(_by_turn, find=find, key=GroupAsId(OuterRef("group"))))
        for name, find in FINDS.items()
    ),
]
OF_ROWS_OF_TURNS = [
    _typed(name, partial(_by_turn, find=find, key=OuterRef("turn_id")))
    for name, find in {"user": _user_of_turn, **FINDS}.items()
]
OF_TURNS = [
    _typed("user", partial(_by_user, key=OuterRef("conversation_id"))),
    _typed("agent", _by_agent),
    _typed("process", _turns_of_process),
    row_filter("tool", _("tool"), _turns_of_tool),
]
OF_CONVERSATIONS = [_typed("user", _conversations_of_user), _typed("agent", _by_agent)]
# A request belongs to a tool if it was about one call of that tool.
OF_REQUESTS = [*OF_ROWS_OF_TURNS, row_filter("tool", _("tool of the call"), _requests_of_tool)]
