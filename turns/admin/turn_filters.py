"""Filters of the lists of history by what belongs to a turn: its user, agent, process, source and tools.

Each is a condition on the list's own row. So a list is read in its own order, within its time.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils.translation import gettext_lazy as _

from governance.admin.filters import ConditionFilter
from governance.admin.row_filters import RowFilter, row_filter
from governance.admin.search import USERNAME, as_id
from governance.call_filters import CallFilter, GroupAsId, has_call
from turns.core.turns import TurnStatus
from turns.models import Conversation, Process, Turn
from turns.models.labels import message_sources

LABELS = {
    "user": _("user"),
    "agent": _("agent"),
    "process": _("process"),
    "message_source": _("how the message came"),
}
Rows = QuerySet[Any]
Find = Callable[[str], Q | None]
"""Returns the turns that fit a value; None = none can."""


def _owner(name: str) -> Any:
    users = get_user_model()._default_manager.filter(**{USERNAME: name})
    return users.values_list("pk", flat=True).first()


def _of_agent(name: str) -> Q:
    return Q(agent=name)


def _of_source(source: str) -> Q:
    return Q(source=source)


def _of_process(name: str) -> Q | None:
    """A process is found by its name, its id, or host and pid where it has no name."""
    host, _mark, pid = name.rpartition(":")
    named = Q(name=name)
    if (wanted := as_id(name)) is not None:
        named |= Q(pk=wanted)
    if pid.isascii() and pid.isdigit() and len(pid) < 10:
        named |= Q(name="", host=host, pid=int(pid))
    found = list(Process.objects.filter(named).values_list("pk", flat=True)[:1_000])
    return Q(owner__in=found) if found else None


FINDS: dict[str, Find] = {"agent": _of_agent, "process": _of_process, "message_source": _of_source}


def _by_turn(rows: Rows, value: str, *, find: Find, key: Any) -> Rows:
    """Keep the rows whose turn fits; `key` is the turn's id as the row has it."""
    condition = find(value)
    if condition is None:
        return rows.none()
    return rows.filter(Exists(Turn.objects.order_by().filter(condition, pk=key)))


def _by_user(rows: Rows, name: str, *, key: Any) -> Rows:
    """Keep the rows whose conversation is the user's; `key` is its id as the row has it."""
    owner = _owner(name)
    if owner is None:
        return rows.none()
    return rows.filter(Exists(Conversation.objects.order_by().filter(pk=key, owner=owner)))


def _user_of_turn(name: str) -> Q | None:
    owner = _owner(name)
    return None if owner is None else Q(conversation__owner=owner)


def _typed(name: str, narrow: Any) -> type[RowFilter]:
    choices = message_sources if name == "message_source" else None
    return row_filter(name, LABELS[name], narrow, choices=choices)


def of_calls() -> list[CallFilter]:
    """Return the filters for lists of calls, whose groups are turns and whose scopes are conversations."""
    group = GroupAsId(OuterRef("group"))
    narrows = {
        "user": partial(_by_user, key=GroupAsId(OuterRef("scope"))),
        **{name: partial(_by_turn, find=find, key=group) for name, find in FINDS.items()},
    }
    return [
        CallFilter(
            name=name,
            label=LABELS[name],
            narrow=narrow,
            choices=message_sources if name == "message_source" else None,
            permission="turns.view_turn",
        )
        for name, narrow in narrows.items()
    ]


def of_rows_of_turns() -> list[type[RowFilter]]:
    """Return the same for rows with a `turn`."""
    finds = {"user": _user_of_turn, **FINDS}
    narrows = {
        name: partial(_by_turn, find=find, key=OuterRef("turn_id")) for name, find in finds.items()
    }
    return [_typed(name, narrow) for name, narrow in narrows.items()]


def _turns_of_process(rows: Rows, name: str) -> Rows:
    """Not by the index of owners: it would read all turns that a process has had."""
    return _by_turn(rows, name, find=_of_process, key=OuterRef("pk"))


def _turns_of_tool(rows: Rows, name: str) -> Rows:
    return rows.filter(has_call(name, group="pk"))


def of_turns() -> list[type[RowFilter]]:
    return [
        _typed("user", partial(_by_user, key=OuterRef("conversation_id"))),
        _typed("agent", lambda rows, name: rows.filter(_of_agent(name))),
        _typed("process", _turns_of_process),
        row_filter("tool", _("tool"), _turns_of_tool),
    ]


def of_conversations() -> list[type[RowFilter]]:
    def of_user(rows: Rows, name: str) -> Rows:
        owner = _owner(name)
        return rows.none() if owner is None else rows.filter(owner=owner)

    return [
        _typed("user", of_user),
        _typed("agent", lambda rows, name: rows.filter(_of_agent(name))),
    ]


def _requests_of_tool(rows: Rows, name: str) -> Rows:
    return rows.filter(has_call(name, group="turn_id", call_id=OuterRef("tool_id")))


def of_requests() -> list[type[RowFilter]]:
    """Return the same for requests to cancel; of a tool are those that meant one call of it."""
    return [*of_rows_of_turns(), row_filter("tool", _("tool of the call"), _requests_of_tool)]


class LimitFilter(ConditionFilter):
    """Which limit of a turn ran out."""

    title = _("limit that ran out")
    parameter_name = "ran_out"
    conditions = {
        "time": (_("The turn's limit"), Q(status=TurnStatus.TIMED_OUT)),
        "steps": (_("The limit of steps"), Q(error_code="step_limit")),
        "tokens": (_("The limit of tokens"), Q(error_code="token_limit")),
    }
