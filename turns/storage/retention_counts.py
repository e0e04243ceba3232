"""Counts what belongs to turns, in one query however many there are (sync ORM)."""

from dataclasses import dataclass, fields
from typing import Any

from django.db.models import CharField, Count, Func, Model, OuterRef, QuerySet, Subquery, Sum

from governance import selectors
from turns.models import Attachment, Event, Message, Turn


@dataclass(slots=True)
class ContentCounts:
    """Turns, and what was said and done in them."""

    turns: int = 0
    events: int = 0
    messages: int = 0
    calls: int = 0
    attachments: int = 0

    def add(self, more: "ContentCounts") -> None:
        for field in fields(more):
            setattr(self, field.name, getattr(self, field.name) + getattr(more, field.name))


class _Group(Func):
    """The id of a turn as the group of its calls, which is text."""

    output_field = CharField()
    template = "CAST(%(expressions)s AS varchar)"

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Return the same for ids that are stored without hyphens."""
        places = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
        parts = (f"substr(%(expressions)s, {start}, {length})" for start, length in places)
        template = " || '-' || ".join(parts)
        return self.as_sql(compiler, connection, template=template, **context)


def count_contents(turns: QuerySet[Turn]) -> ContentCounts:
    counted = (
        turns.order_by()
        .annotate(
            events_of=_count_of(Event),
            messages_of=_count_of(Message),
            attachments_of=_count_of(Attachment),
            calls_of=selectors.count_of_group(_Group(OuterRef("pk"))),
        )
        .aggregate(
            turns=Count("pk"),
            events=Sum("events_of"),
            messages=Sum("messages_of"),
            calls=Sum("calls_of"),
            attachments=Sum("attachments_of"),
        )
    )
    return ContentCounts(**{name: count or 0 for name, count in counted.items()})


def _count_of(model: type[Model]) -> Subquery:
    rows = model._default_manager.filter(turn=OuterRef("pk")).order_by().values("turn")
    return Subquery(rows.values(count=Count("pk")))
