"""Formats shared by lists and pages: durations, times, actors, tables, and empty values."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any

from django.db import models
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from governance.audit import describe_value
from governance.core.calls import CallStatus, Disposition, Effects
from governance.core.cancel_reasons import CancelSource
from governance.durations import day_and_clock, format_duration, format_limit
from governance.hidden_characters import visible
from governance.labels import (
    ENDED_SINCE,
    call_statuses,
    cancel_reasons,
    cancel_sources,
    label_for,
    timeout_sources,
)
from governance.model_fields import Duration
from governance.models import ToolCall
from governance.recorder import UNWATCHED
from turns.models import CancelRequest
from turns.models.labels import turn_statuses

NOTHING = "—"
NO_BREAK = "\u00a0"
_TENTH = 100  # ms
_BY_PEOPLE = ("user", "admin")


class Tone(StrEnum):
    """The urgency of a value, as a CSS class. Pages also state it as text."""

    PLAIN = ""
    GOOD = "console-good"
    LOOK = "console-look"
    LATE = "console-late"
    BAD = "console-bad"
    QUIET = "console-quiet"


@dataclass(frozen=True, slots=True)
class Status:
    """A status as text, with its color."""

    words: Any
    tone: Tone = Tone.PLAIN

    def __str__(self) -> SafeString:
        return format_html('<span class="console-status {}">{}</span>', self.tone, self.words)

    __html__ = __str__


TONES: Mapping[str, Tone] = {  # by the status of a turn or call
    "running": Tone.GOOD,
    "awaiting_approval": Tone.LOOK,
    "cancelling": Tone.LOOK,
    "cancelled": Tone.QUIET,
    "failed": Tone.BAD,
    "interrupted": Tone.BAD,
    "abandoned": Tone.LOOK,
    "repaired": Tone.LOOK,
    "timed_out": Tone.LATE,
}


def format_span(milliseconds: int | None) -> str:
    """Return a duration on one line; from one second on, it is rounded to tenths of a second."""
    if milliseconds is None:
        return NOTHING
    duration = milliseconds if milliseconds < 1_000 else round(milliseconds / _TENTH) * _TENTH
    return format_duration(duration).replace(" ", NO_BREAK)


def format_time(at: datetime | None, *, with_milliseconds: bool = False) -> SafeString | str:
    """Return a time with its zone as HTML. The year is shown if it is not the current one; the title is exact."""
    if at is None:
        return NOTHING
    parts = day_and_clock(at, with_milliseconds=with_milliseconds)
    text = " ".join(part.replace(" ", NO_BREAK) for part in parts)
    iso = localtime(at).isoformat()
    return format_html('<time datetime="{}" title="{}">{}</time>', iso, iso, text)


def format_source(timeout_source: str) -> str:
    return label_for(timeout_source, timeout_sources())


def call_status(call: ToolCall) -> str:
    """Return the label of a call's status; for an abandoned call, also whether its end was observed."""
    status: str = call.get_status_display()
    if call.status != CallStatus.ABANDONED or not call.late_kind:
        return status
    return _("abandoned, end not observed") if call.late_kind == UNWATCHED else str(ENDED_SINCE)


def call_disposition(call: ToolCall) -> str:
    """Return the disposition of a call; for an abandoned call, also whether its end was observed."""
    is_unknown = call.disposition == Disposition.INDETERMINATE
    if is_unknown and call.late_kind not in ("", UNWATCHED):
        return _("indeterminate: it has since ended and may have had an effect")
    if call.disposition == Disposition.SETTLED and call.effects == Effects.CUT:
        return str(call.get_effects_display())
    return call.get_disposition_display() or NOTHING


def call_ended_by(call: ToolCall) -> str:
    """Return which limit or actor ended a call."""
    return call.get_limit_reached_display() or format_actor(call)


def format_actor(row: Any) -> str:
    """Return who or what ended a turn or call; for a person, also the channel that they used."""
    reason: str = row.ended_by_reason
    if not reason:
        return NOTHING
    if reason not in _BY_PEOPLE:
        return label_for(reason, cancel_reasons())
    who = row.ended_by_name or label_for(reason, cancel_reasons())
    means = label_for(row.ended_by_source, cancel_sources())
    return ", ".join(part for part in (who, means) if part)


def outcome_text(request: CancelRequest) -> str:
    """Return the outcome of a cancel request: the final status of its turn or call."""
    statuses = [*turn_statuses(), *call_statuses()]
    return label_for(request.outcome, statuses) if request.outcome else _("not yet")


def note_of(row: Any, reader: Any) -> str:
    """Return the note of a request. A user's note is content; the reason of staff is not."""
    is_reason = getattr(row, "source", "") == CancelSource.ADMIN
    note: str = row.note if is_reason or reader.has_perm("governance.view_content") else ""
    return note


def preformatted(value: Any) -> str:
    """Return text unchanged and any other value as JSON, in a `<pre>` element; a dash if it is empty."""
    if not value:
        return NOTHING
    if not isinstance(value, str):
        value = visible(json.dumps(value, indent=2, ensure_ascii=False))
    return format_html("<pre>{}</pre>", value)


def table(heads: Sequence[Any], lines: Iterable[Sequence[Any]]) -> SafeString | str:
    """Return an HTML table with escaped cells; a dash if it has no rows."""
    rows = [
        (format_html_join("", "<td>{}</td>", ((_cell(cell),) for cell in line)),) for line in lines
    ]
    if not rows:
        return NOTHING
    head = format_html_join("", '<th scope="col">{}</th>', ((text,) for text in heads))
    body = format_html_join("", "<tr>{}</tr>", rows)
    return format_html("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>", head, body)


def _cell(value: Any) -> Any:
    return format_time(value) if isinstance(value, datetime) else value


class Column:
    """A list column or page field: a label, and the value that `show` returns for a row."""

    def __init__(
        self, label: Any, show: Callable[[Any], Any], *, ordering: str | None = None, name: str = ""
    ) -> None:
        self.short_description = label
        self.admin_order_field = ordering
        self.__name__ = name
        self._show = show

    def __set_name__(self, owner: type, name: str) -> None:
        self.__name__ = name

    def __call__(self, row: Any) -> Any:
        return self._show(row)


def span(name: str, label: Any) -> Column:
    """Return a column for a duration that the database stores in milliseconds."""
    return Column(label, lambda row: format_span(getattr(row, name)), ordering=name)


@cache
def readable_columns(model: Any, *, with_milliseconds: bool) -> dict[Any, Column]:
    """Return readable columns for a model: durations with units, times with zones.

    Switches show yes or no, because Django's red cross looks like an error.
    """

    def show(field: Any) -> Callable[[Any], Any] | None:
        if isinstance(field, Duration):
            return format_limit
        if isinstance(field, models.DateTimeField):
            return lambda at: format_time(at, with_milliseconds=with_milliseconds)
        if type(field) is models.BooleanField:
            return lambda value: describe_value(field.name, value)
        return None

    return {
        field.name: _of_field(field, formatter)
        for field in model._meta.concrete_fields
        if (formatter := show(field)) is not None
    }


def _of_field(field: Any, show: Callable[[Any], Any]) -> Column:
    return Column(
        field.verbose_name,
        lambda row: show(getattr(row, field.name)),
        ordering=field.name,
        name=field.name,
    )
