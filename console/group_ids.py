"""Joins calls with other tables whose ids are the calls' groups or scopes."""

from typing import Any

from django.db.models import CharField, Exists, F, Func, OuterRef, UUIDField, Value
from django.db.models.functions import Concat

from governance.models import ToolCall


class GroupAsId(Func):
    """A group or scope, converted from text to an id. Text that is not an id matches nothing."""

    arity = 1
    output_field = UUIDField()
    template = "REPLACE(%(expressions)s, '-', '')"

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Cast only valid ids, because any other text would fail the query."""
        form = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
        template = f"CASE WHEN %(expressions)s ~ '{form}' THEN CAST(%(expressions)s AS uuid) END"
        return self.as_sql(compiler, connection, template=template, **context)


class IdAsGroup(Func):
    """An id, converted to the text used as a group."""

    arity = 1
    output_field = CharField()
    template = " || '-' || ".join(
        f"SUBSTR(%(expressions)s, {start}, {length})"
        for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    )

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Add the dashes. The parentheses keep the concatenation together."""
        return self.as_sql(compiler, connection, template=f"({self.template})", **context)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Cast to text; PostgreSQL adds the dashes."""
        template = "CAST(%(expressions)s AS text)"
        return self.as_sql(compiler, connection, template=template, **context)


def has_call(tool_name: str, *, group: str, **conditions: Any) -> Exists:
    """Return the condition that the group has a call of this tool. The outer row's field `group` has the group's id.

    The query must find calls by the index on their group. With the index on the tool's name, it would read all calls of
    the tool for each row, so the name is compared as an expression.
    """
    of_group = ToolCall.objects.filter(group=IdAsGroup(OuterRef(group)), **conditions).order_by()
    with_names = of_group.annotate(named=Concat(F("tool_name"), Value("")))
    return Exists(with_names.filter(named=tool_name))
