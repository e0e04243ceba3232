"""How the lists and pages of history write what they share: spans, moments, who ended something, and nothing."""

from datetime import datetime
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from governance.core.calls import CallStatus, Disposition
from governance.durations import format_duration
from governance.labels import (
    ENDED_SINCE,
    cancel_reasons,
    cancel_sources,
    label_for,
    timeout_sources,
)
from governance.models import ToolCall
from governance.recorder import UNWATCHED
from governance.time_formatting import day_and_clock

NOTHING = "—"
NO_BREAK = "\u00a0"
_TENTH = 100  # ms
_BY_PEOPLE = ("user", "admin")


def format_span(milliseconds: int | None) -> str:
    """Return a duration on one line, in tenths of seconds from one second on."""
    if milliseconds is None:
        return NOTHING
    shown = milliseconds if milliseconds < 1_000 else round(milliseconds / _TENTH) * _TENTH
    return format_duration(shown).replace(" ", NO_BREAK)


def format_time(at: datetime | None, *, with_milliseconds: bool = False) -> SafeString | str:
    """Return a moment to the second with its zone, short: of this year without the year. Its title is exact."""
    if at is None:
        return NOTHING
    parts = day_and_clock(at, with_milliseconds=with_milliseconds)
    text = " ".join(part.replace(" ", NO_BREAK) for part in parts)
    iso = localtime(at).isoformat()
    return format_html('<time datetime="{}" title="{}">{}</time>', iso, iso, text)


def format_source(timeout_source: str) -> str:
    return label_for(timeout_source, timeout_sources())


def call_status(call: ToolCall) -> str:
    """Return the label of a call's status; for an abandoned call also whether its end was seen."""
    status: str = call.get_status_display()
    if call.status != CallStatus.ABANDONED or not call.late_kind:
        return status
    return _("given up, end not seen") if call.late_kind == UNWATCHED else str(ENDED_SINCE)


def call_disposition(call: ToolCall) -> str:
    """Return what is known of a call's work; of what was given up also whether its end was seen."""
    is_unknown = call.disposition == Disposition.INDETERMINATE
    if is_unknown and call.late_kind not in ("", UNWATCHED):
        return _("indeterminate: it has ended since, and may have been applied")
    return call.get_disposition_display() or NOTHING


def call_ended_by(call: ToolCall) -> str:
    """Return the limit, or who or what else, that ended a call."""
    return call.get_limit_reached_display() or format_actor(call)


def format_actor(row: Any) -> str:
    """Return who or what ended a row; the means only for people, who had several."""
    reason: str = row.ended_by_reason
    if not reason:
        return NOTHING
    if reason not in _BY_PEOPLE:
        return label_for(reason, cancel_reasons())
    who = row.ended_by_name or label_for(reason, cancel_reasons())
    means = label_for(row.ended_by_source, cancel_sources())
    return ", ".join(part for part in (who, means) if part)
