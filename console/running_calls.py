"""Reads the calls that wait or run now, and those that were abandoned and may still run (B4; sync ORM)."""

from collections.abc import Iterable
from datetime import datetime

from django.db.models import Count, Q, QuerySet, TextField
from django.db.models.functions import Cast, Substr

from governance.core.calls import OPEN_STATUSES, CallStatus
from governance.models import ToolCall
from governance.sanitize import sanitize_text

INPUT_SHOWN = 160


def of_groups(groups: Iterable[str], *, with_input: bool) -> dict[str, list[ToolCall]]:
    """Return the calls of several groups that wait or run, by group, in one query and without their long texts.

    With `with_input`, each has the beginning of its input as `input_start`.
    """
    rows = _short(ToolCall.objects.filter(group__in=list(groups), status__in=OPEN_STATUSES))
    calls_by_group: dict[str, list[ToolCall]] = {}
    for row in _with_input(rows, with_input).order_by("step", "position", "pk"):
        calls_by_group.setdefault(row.group, []).append(row)
    return calls_by_group


def of_tool(tool_name: str, *, most: int, until: datetime | None = None) -> list[tuple[str, str]]:
    """Return the group and call ids of a tool's calls that wait or run, oldest first; at most `most`."""
    rows = ToolCall.objects.filter(tool_name=sanitize_text(tool_name), status__in=OPEN_STATUSES)
    if until is not None:
        rows = rows.filter(requested_at__lte=until)
    return list(rows.order_by("requested_at", "pk").values_list("group", "call_id")[:most])


def tool_names() -> list[str]:
    """Return the names of the tools with open calls."""
    rows = ToolCall.objects.filter(status__in=OPEN_STATUSES).order_by()
    return sorted(set(rows.values_list("tool_name", flat=True).distinct()))


def count_by_tool() -> list[tuple[str, int, int]]:
    """Return the name of each tool with open calls, the number of its running calls, and that of its waiting calls."""
    is_running = Q(status__in=(CallStatus.RUNNING, CallStatus.CANCELLING))
    rows = ToolCall.objects.filter(status__in=OPEN_STATUSES).order_by("tool_name")
    counts = rows.values("tool_name").annotate(
        running=Count("pk", filter=is_running), waiting=Count("pk", filter=~is_running)
    )
    return list(counts.values_list("tool_name", "running", "waiting"))


def find(group: str, call_id: str) -> ToolCall | None:
    """Return one call without its long texts; None if there is none."""
    if call_id != sanitize_text(call_id):  # PostgreSQL refuses to compare such a string
        return None
    return _short(ToolCall.objects.filter(group=group, call_id=call_id)).first()


def abandoned_calls(*, most: int, with_input: bool) -> list[ToolCall]:
    """Return the abandoned calls whose end was not observed, newest first."""
    rows = _short(ToolCall.objects.filter(status=CallStatus.ABANDONED, late_kind=""))
    return list(_with_input(rows, with_input)[:most])


def _short(rows: QuerySet[ToolCall]) -> QuerySet[ToolCall]:
    return rows.defer(*ToolCall.LONG_COLUMNS)


def _with_input(rows: QuerySet[ToolCall], with_input: bool) -> QuerySet[ToolCall]:  # noqa: FBT001
    if not with_input:
        return rows
    start = Substr(Cast("input", TextField()), 1, INPUT_SHOWN)
    return rows.annotate(input_start=start)
