"""The filter on the page of what runs now: by tool, user, agent or process, or by an id."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy

from governance import running_calls
from governance.admin.search import USERNAME, as_id
from governance.sanitize import sanitize_text
from turns.core.turns import ACTIVE_STATUSES
from turns.models import Process, RunningTurn

LABELS = {
    "tool": gettext_lazy("Tool"),
    "user": gettext_lazy("User"),
    "agent": gettext_lazy("Agent"),
    "owner": gettext_lazy("Process"),
}
MOST_CALLS = 1_000  # of one tool that are looked at
_MOST_CHOICES = 500
_LENGTH = 200  # of a value in the address
Choices = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningFilter:
    """What the address of the page asks for; blank = whatever."""

    tool: str = ""
    user: str = ""
    agent: str = ""
    owner: str = ""
    q: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "RunningFilter":
        """Read it from an address, in which anything may stand."""
        values = {
            field.name: sanitize_text(query.get(field.name, "").strip(), limit=_LENGTH)
            for field in fields(cls)
        }
        return cls(**values)

    @property
    def chosen(self) -> dict[str, str]:
        """What is asked for, by parameter."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name))}

    @property
    def query(self) -> str:
        """The same as the query of an address."""
        return urlencode(self.chosen)

    def turns(self, *, until: datetime | None = None) -> QuerySet[RunningTurn]:
        """Return the turns that fit, the oldest first; with a moment those that fitted then and are not over."""
        rows = RunningTurn.objects.filter(status__in=ACTIVE_STATUSES)
        if until is not None:
            rows = rows.filter(queued_at__lte=until)
        if until is not None and self.owner:
            rows = rows.filter(started_at__lte=until)  # what has begun since was nobody's
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
        """Return turn and call id of the tool's calls in these turns that were asked for by then, oldest first."""
        turns = set(self.turns(until=until).values_list("pk", flat=True))
        return [pair for pair in self._calls_of_tool(until) if pair[0] in turns]

    def _calls_of_tool(self, until: datetime | None = None) -> list[tuple[UUID, str]]:
        found = running_calls.of_tool(self.tool, until=until, most=MOST_CALLS)
        pairs = ((as_id(group), call_id) for group, call_id in found)
        return [(turn_id, call_id) for turn_id, call_id in pairs if turn_id is not None]


def choices(chosen: RunningFilter) -> list[dict[str, Any]]:
    """Return the fields of the form: what runs now, and what is chosen, whether it runs or not."""
    facts = ("agent", "owner", f"conversation__owner__{USERNAME}")
    rows = RunningTurn.objects.filter(status__in=ACTIVE_STATUSES).order_by()
    found = list(rows.values_list(*facts).distinct()[:_MOST_CHOICES])
    owners = {str(owner) for _, owner, _ in found if owner} | {chosen.owner} - {""}
    names = Process.objects.filter(pk__in=[pk for pk in map(as_id, owners) if pk])
    processes = {str(process.pk): str(process) for process in names}
    offered = {
        "tool": _plain({*running_calls.tool_names(), chosen.tool}),
        "user": _plain({user for _, _, user in found} | {chosen.user}),
        "agent": _plain({agent for agent, _, _ in found} | {chosen.agent}),
        "owner": sorted(((pk, processes.get(pk, pk)) for pk in owners), key=lambda it: it[1]),
    }
    return [
        {"name": name, "label": label, "value": getattr(chosen, name), "choices": offered[name]}
        for name, label in LABELS.items()
    ]


def filter_labels(chosen: RunningFilter) -> list[tuple[str, str]]:
    """Return what is asked for as label and value, for a person who is about to end all of it."""
    labels = {**LABELS, "q": gettext_lazy("Search")}
    words = dict(chosen.chosen)
    if (owner := as_id(chosen.owner)) and (process := Process.objects.filter(pk=owner).first()):
        words["owner"] = str(process)
    return [(str(labels[name]), value) for name, value in words.items()]


def _found_by(term: str) -> Q:
    wanted = as_id(term)
    if wanted is None:
        return Q(**{f"conversation__owner__{USERNAME}": term})
    return Q(pk=wanted) | Q(conversation=wanted)


def _plain(values: set[str]) -> Choices:
    return [(value, value) for value in sorted(values) if value]
