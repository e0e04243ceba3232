"""Writes the results on which a repair of a history has settled onto the rows of their calls (H3)."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from django.utils import timezone

from governance.core.calls import CallStatus, ErrorType, ToolCall, ToolOutcome
from governance.core.unfinished import unfinished_outcome
from governance.models import ToolCall as ToolCallRow
from governance.recorder import insert_pending
from governance.sanitize import sanitize_text


class SettledResult(Protocol):
    """A result as a history holds it; `is_synthetic` = the repair wrote it, not the tool."""

    @property
    def content(self) -> str:
        """The text that the model reads."""
        ...

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        ...

    @property
    def is_synthetic(self) -> bool:
        """Whether no tool ever said it."""
        ...


def settle(
    calls: Sequence[ToolCall], *, results: Mapping[str, SettledResult], group: str, step: int
) -> None:
    """Give every call of a step its result; a missing row is created.

    A row keeps a real result; a real result replaces a synthetic one.
    """
    known = {
        row.call_id: row for row in ToolCallRow.objects.select_for_update().filter(group=group)
    }
    insert_pending([call for call in calls if call.id not in known], group=group, step=step)
    for row in ToolCallRow.objects.filter(group=group, call_id__in=[call.id for call in calls]):
        result = results.get(row.call_id)
        is_open = not CallStatus(row.status).is_terminal
        if result is not None and (is_open or (row.is_synthetic and not result.is_synthetic)):
            ToolCallRow.objects.filter(pk=row.pk).update(
                step=step, **_fields(row.tool_name, result)
            )


def _fields(tool_name: str, result: SettledResult) -> dict[str, object]:
    outcome = _outcome(tool_name, result)
    return {
        "status": outcome.status,
        "error_type": outcome.error_type or "",
        "disposition": outcome.disposition,
        "result": sanitize_text(result.content),
        "is_error": outcome.is_error,
        "is_synthetic": result.is_synthetic,
        "ended_at": timezone.now(),
    }


def _outcome(tool_name: str, result: SettledResult) -> ToolOutcome:
    if result.is_synthetic:
        return unfinished_outcome(tool_name, CallStatus.RUNNING, lost="its process was lost")
    if not result.is_error:
        return ToolOutcome(status=CallStatus.SUCCEEDED, result=result.content)
    failed, error_type = CallStatus.FAILED, ErrorType.EXECUTION_ERROR
    return ToolOutcome(status=failed, result=result.content, is_error=True, error_type=error_type)
