"""The buttons and the filter of the "Running now" page.

Each button checks permissions again, records user and reason, and calls the same service as every other client.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console import running_calls, running_results
from console.links import USERNAME
from console.running_views import MARK
from console.search import as_id
from governance import CancelSource
from governance.db_clock import database_now
from governance.sanitize import sanitize_text
from turns import services
from turns.core.turns import ACTIVE_STATUSES
from turns.models import DeadlineOrder, Process, RunningTurn

LABELS = {
    "tool": gettext_lazy("Tool"),
    "user": gettext_lazy("User"),
    "agent": gettext_lazy("Agent"),
    "owner": gettext_lazy("Process"),
}
MOST_CALLS = 1_000  # calls of one tool that are examined
_MOST_CHOICES = 500
_LENGTH = 200  # characters of a value in the address
Choices = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningFilter:
    """The page's filter, read from its address. An empty value matches everything."""

    tool: str = ""
    user: str = ""
    agent: str = ""
    owner: str = ""
    q: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "RunningFilter":
        """Read the filter from an address, which may contain anything."""
        values = {
            field.name: sanitize_text(query.get(field.name, "").strip(), limit=_LENGTH)
            for field in fields(cls)
        }
        return cls(**values)

    @property
    def chosen(self) -> dict[str, str]:
        """Return the filter's non-blank values by parameter."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name))}

    def turns(self, *, until: datetime | None = None) -> QuerySet[RunningTurn]:
        """Return the matching turns, oldest first; with `until`, only those that were queued by then."""
        rows = RunningTurn.objects.filter(status__in=ACTIVE_STATUSES)
        if until is not None:
            rows = rows.filter(queued_at__lte=until)
        if until is not None and self.owner:
            # Turns that the process started later were not counted.
            rows = rows.filter(started_at__lte=until)
        if self.user:
            rows = rows.filter(**{f"conversation__owner__{USERNAME}": self.user})
        if self.agent:
            rows = rows.filter(agent=self.agent)
        if self.owner:
            owner = as_id(self.owner)
            rows = rows.filter(owner=owner) if owner else rows.none()
        if self.q:
            rows = rows.filter(_found_by(self.q))
        if self.tool:
            rows = rows.filter(pk__in=[turn_id for turn_id, _ in self._calls_of_tool(until)])
        return rows.order_by("queued_at", "pk")

    def calls(self, *, until: datetime) -> list[tuple[UUID, str]]:
        """Return the turn and call ids of the tool's calls in these turns that were requested by `until`, oldest first."""
        turns = set(self.turns(until=until).values_list("pk", flat=True))
        return [pair for pair in self._calls_of_tool(until) if pair[0] in turns]

    def _calls_of_tool(self, until: datetime | None = None) -> list[tuple[UUID, str]]:
        calls = running_calls.of_tool(self.tool, until=until, most=MOST_CALLS)
        pairs = ((as_id(group), call_id) for group, call_id in calls)
        return [(turn_id, call_id) for turn_id, call_id in pairs if turn_id is not None]


def choices(selection: RunningFilter) -> list[dict[str, Any]]:
    """Return the fields of the form, each with the values of the active turns and calls, plus the selected value."""
    facts = ("agent", "owner", f"conversation__owner__{USERNAME}")
    rows = RunningTurn.objects.filter(status__in=ACTIVE_STATUSES).order_by()
    combinations = list(rows.values_list(*facts).distinct()[:_MOST_CHOICES])
    owners = {str(owner) for _, owner, _ in combinations if owner} | {selection.owner} - {""}
    names = Process.objects.filter(pk__in=[pk for pk in map(as_id, owners) if pk])
    processes = {str(process.pk): str(process) for process in names}
    options = {
        "tool": _plain({*running_calls.tool_names(), selection.tool}),
        "user": _plain({user for _, _, user in combinations} | {selection.user}),
        "agent": _plain({agent for agent, _, _ in combinations} | {selection.agent}),
        "owner": sorted(((pk, processes.get(pk, pk)) for pk in owners), key=lambda it: it[1]),
    }
    return [
        {"name": name, "label": label, "value": getattr(selection, name), "choices": options[name]}
        for name, label in LABELS.items()
    ]


def filter_labels(selection: RunningFilter) -> list[tuple[str, str]]:
    """Return the filter as labels and values, for the confirmation of a bulk cancel."""
    labels = {**LABELS, "q": gettext_lazy("Search")}
    words = dict(selection.chosen)
    if (owner := as_id(selection.owner)) and (process := Process.objects.filter(pk=owner).first()):
        words["owner"] = str(process)
    return [(str(labels[name]), value) for name, value in words.items()]


def _found_by(term: str) -> Q:
    pk = as_id(term)
    if pk is None:
        return Q(**{f"conversation__owner__{USERNAME}": term})
    return Q(pk=pk) | Q(conversation=pk)


def _plain(values: set[str]) -> Choices:
    return [(value, value) for value in sorted(values) if value]


CANCEL, DECIDE, CONTENT = "turns.cancel_any", "turns.decide_any", "governance.view_content"
EXTENSIONS = (30, 300)  # seconds
AT_ONCE = 200  # turns or calls that are cancelled per confirmation


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One kind of button: the permissions that it needs, and its effect.

    `perform` returns a key for `running_results`, or an empty text if nothing was done.
    """

    permissions: tuple[str, ...]
    needs_reason: bool
    perform: Callable[[Any, str, str], str]


def _cancel(user: Any, key: str, why: str) -> str:
    turn_id, tool_id = _parts(key)
    if turn_id is None:
        return ""
    _request_end(user, turn_id, tool_id, why)
    return f"cancel{MARK}{turn_id}{MARK}{tool_id}"


def _extend(user: Any, value: str, why: str) -> str:
    seconds, _mark, key = value.partition(MARK)
    turn_id, tool_id = _parts(key)
    call = running_calls.find(str(turn_id), tool_id) if turn_id else None
    if turn_id is None or call is None or seconds not in map(str, EXTENSIONS):
        return ""
    receipt = async_to_sync(services.set_deadline)(
        turn_id=turn_id, tool_id=tool_id, user=user, extend_ms=int(seconds) * 1_000, note=why
    )
    if receipt.outcome is not services.OpOutcome.ACCEPTED:
        return f"cancel{MARK}{turn_id}{MARK}{tool_id}"  # its result shows how the call had already ended
    name = user.get_username()[:150]
    orders = DeadlineOrder.objects.filter(turn=turn_id, tool_id=tool_id, by_name=name)
    newest = orders.order_by("-pk").values_list("pk", flat=True).first()
    facts = (newest, len(call.deadline_changes), receipt.timeout_ms or 0)
    return MARK.join(["extend", *map(str, facts)])


def _decide(user: Any, value: str, why: str, *, decision: Any) -> str:
    question, _mark, key = value.partition(MARK)
    turn_id, tool_id = _parts(key)
    if turn_id is None or not question:
        return ""
    async_to_sync(services.decide_tool)(
        turn_id=turn_id,
        tool_id=tool_id,
        user=user,
        decision=decision,
        reason=why,
        question=question,
    )
    return f"decide{MARK}{question}"


ACTIONS: Mapping[str, Action] = {
    # No reason is required, so that an operator can stop a runaway call without typing first. The request is stored with
    # its time and the operator's name in any case.
    "cancel": Action(permissions=(CANCEL,), needs_reason=False, perform=_cancel),
    "extend": Action(permissions=(CANCEL,), needs_reason=False, perform=_extend),
    # A user who cannot see the question cannot allow it.
    "allow": Action(
        permissions=(DECIDE, CONTENT),
        needs_reason=False,
        perform=partial(_decide, decision="approve"),
    ),
    "deny": Action(
        permissions=(DECIDE,), needs_reason=True, perform=partial(_decide, decision="deny")
    ),
}
KINDS = {
    "turns": gettext_lazy("Turns, including queued ones"),
    "calls": gettext_lazy("Calls of this tool; their turns continue"),
}


class EndOfMany:
    """Cancels everything that matched a filter when it was counted."""

    def __init__(self, selection: RunningFilter, *, kind: str, counted_at: datetime) -> None:
        self.kind = kind if selection.tool else "turns"
        if self.kind == "calls":
            self._pairs = selection.calls(until=counted_at)
        else:
            turns = selection.turns(until=counted_at).values_list("pk", flat=True)
            self._pairs = [(turn_id, "") for turn_id in turns]

    @property
    def count(self) -> int:
        return len(self._pairs)

    def perform(self, user: Any, why: str) -> str:
        """Request the cancels of what is oldest, at most `AT_ONCE`; return a key for `running_results`."""
        since = database_now()
        now, later = self._pairs[:AT_ONCE], self._pairs[AT_ONCE:]
        outcomes = [  # newest first, so that no waiting turn or call starts in a slot that another one frees
            _request_end(user, turn_id, tool_id, why) for turn_id, tool_id in reversed(now)
        ]
        accepted = outcomes.count(services.OpOutcome.ACCEPTED)
        within = map(running_results.to_number, (since, database_now()))
        return MARK.join(["all", *map(str, (*within, len(now), accepted, len(later)))])


def _request_end(user: Any, turn_id: UUID, tool_id: str, why: str) -> services.OpOutcome:
    who: Any = {"turn_id": turn_id, "user": user, "source": CancelSource.ADMIN, "note": why}
    if tool_id:
        return async_to_sync(services.request_tool_cancel)(tool_id=tool_id, **who).outcome
    return async_to_sync(services.request_cancel)(**who).outcome


def needs_reason() -> str:
    """Return the error message for a denial or a bulk cancel without a reason."""
    return _("Nothing was done. Enter a reason first.")


def _parts(key: str) -> tuple[UUID | None, str]:
    turn_id, _mark, tool_id = key.partition(MARK)
    return as_id(turn_id), tool_id
