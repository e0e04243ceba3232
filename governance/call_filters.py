"""Filters of calls by what governance does not know, such as a user, an agent, a process. Apps above add them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import CharField, Exists, F, Func, OuterRef, QuerySet, UUIDField, Value
from django.db.models.functions import Concat

from governance.models import ToolCall

Narrow = Callable[[QuerySet[Any], str], QuerySet[Any]]
"""Returns those rows, each with a `group` and a `scope`, that fit a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFilter:
    """One filter of the lists of calls; without choices, its value is typed, as a whole.

    Only who has the `permission` is offered it: the rows that are left tell what is filtered by.
    """

    name: str
    label: Any
    narrow: Narrow
    choices: Callable[[], Sequence[tuple[str, Any]]] | None = None
    permission: str = ""


_filters: dict[str, CallFilter] = {}


def register(*filters: CallFilter) -> None:
    """Let lists of calls be filtered by these, too; the last one of a name counts."""
    _filters.update({filter_.name: filter_ for filter_ in filters})


def registered(reader: Any) -> list[CallFilter]:
    """Return the filters of apps above that a user may use."""
    return [it for it in _filters.values() if not it.permission or reader.has_perm(it.permission)]


class GroupAsId(Func):
    """A group or scope as the id that it is the text of. One that is none becomes nothing that is found."""

    arity = 1
    output_field = UUIDField()
    template = "REPLACE(%(expressions)s, '-', '')"

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Cast only what is an id: anything else would fail the query."""
        form = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
        template = f"CASE WHEN %(expressions)s ~ '{form}' THEN CAST(%(expressions)s AS uuid) END"
        return self.as_sql(compiler, connection, template=template, **context)


class IdAsGroup(Func):
    """An id as the text that it is as a group."""

    arity = 1
    output_field = CharField()
    template = " || '-' || ".join(
        f"SUBSTR(%(expressions)s, {start}, {length})"
        for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    )

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Add the dashes, in brackets."""
        return self.as_sql(compiler, connection, template=f"({self.template})", **context)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """PostgreSQL writes them itself."""
        template = "CAST(%(expressions)s AS text)"
        return self.as_sql(compiler, connection, template=template, **context)


def has_call(tool_name: str, *, group: str, **conditions: Any) -> Exists:
    """Return the condition that the group has a call of this tool. The outer row's field `group` has its id.

    The calls are found by their group. By the tool's name, they would be all calls of the tool, for each row.
    """
    of_group = ToolCall.objects.filter(group=IdAsGroup(OuterRef(group)), **conditions).order_by()
    named = of_group.annotate(named=Concat(F("tool_name"), Value("")))
    return Exists(named.filter(named=tool_name))
