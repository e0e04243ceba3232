"""How the lists and pages of history write what they share: spans, who ended something, and nothing."""

from typing import Any

from governance.durations import format_duration

NOTHING = "—"


def span(milliseconds: int | None) -> str:
    """Return a span as people read it."""
    return NOTHING if milliseconds is None else format_duration(milliseconds)


def by_whom(row: Any) -> str:
    """Return reason, means and name of whoever ended a row."""
    if not row.ended_by_reason:
        return NOTHING
    means = f" ({row.ended_by_source})" if row.ended_by_source else ""
    who = f", {row.ended_by_name}" if row.ended_by_name else ""
    return f"{row.ended_by_reason}{means}{who}"
