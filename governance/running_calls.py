"""Reads the calls that wait or run now, and those that were abandoned and may still run (B4; sync ORM)."""

from collections.abc import Iterable
from datetime import datetime

from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast, Substr

from governance.core.calls import OPEN_STATUSES, CallStatus
from governance.models import ToolCall
from governance.sanitize import sanitize_text

INPUT_SHOWN = 160
_LONG = ("input", "result", "detail", "late_text")

# The row of a call, for the types of those who may read it but not import the models.
CallRow = ToolCall


def of_groups(groups: Iterable[str], *, with_input: bool) -> dict[str, list[ToolCall]]:
    """Return the calls of several groups that wait or run, by group, in one query and without their long texts.

    With their input, each has the beginning of it as `input_start`.
    """
    rows = _short(ToolCall.objects.filter(group__in=list(groups), status__in=OPEN_STATUSES))
    found: dict[str, list[ToolCall]] = {}
    for row in _with_input(rows, with_input).order_by("step", "position", "pk"):
        found.setdefault(row.group, []).append(row)
    return found


def of_tool(tool_name: str, *, most: int, until: datetime | None = None) -> list[tuple[str, str]]:
    """Return group and call id of the calls of a tool that wait or run, the oldest first."""
    rows = ToolCall.objects.filter(tool_name=sanitize_text(tool_name), status__in=OPEN_STATUSES)
    if until is not None:
        rows = rows.filter(requested_at__lte=until)
    return list(rows.order_by("requested_at", "pk").values_list("group", "call_id")[:most])


def tool_names() -> list[str]:
    """Return the names of the tools whose calls wait or run."""
    rows = ToolCall.objects.filter(status__in=OPEN_STATUSES).order_by()
    return sorted(set(rows.values_list("tool_name", flat=True).distinct()))


def find(group: str, call_id: str) -> ToolCall | None:
    """Return one call without its long texts; None if there is none."""
    if call_id != sanitize_text(call_id):  # PostgreSQL would not even compare it
        return None
    return _short(ToolCall.objects.filter(group=group, call_id=call_id)).first()


def abandoned_calls(*, most: int, with_input: bool) -> list[ToolCall]:
    """Return the calls that were given up and have not been seen to end, the last one first."""
    rows = _short(ToolCall.objects.filter(status=CallStatus.ABANDONED, late_kind=""))
    return list(_with_input(rows, with_input)[:most])


def _short(rows: QuerySet[ToolCall]) -> QuerySet[ToolCall]:
    return rows.defer(*_LONG)


def _with_input(rows: QuerySet[ToolCall], with_input: bool) -> QuerySet[ToolCall]:  # noqa: FBT001
    if not with_input:
        return rows
    start = Substr(Cast("input", TextField()), 1, INPUT_SHOWN)
    return rows.annotate(input_start=start)
