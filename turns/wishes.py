"""Writes down that a turn, or one of its calls, is to end: one row for each, whoever wishes it (C2, C5; sync ORM)."""

from collections.abc import Sequence
from typing import Any

from governance import CallStatus, Cancellation, selectors
from governance.moments import database_now
from turns.models import CancelRequest, Turn


def write(
    turn: Turn,
    cancellation: Cancellation,
    *,
    by_id: Any = None,
    mode: str = "now",
    tool_id: str = "",
    running: Sequence[str] | None = None,
) -> None:
    """Store a wish. Who wished first stays on the row; a repeated wish changes nothing, but `now` overtakes what is later."""
    request, is_new = CancelRequest.objects.get_or_create(
        turn=turn,
        tool_id=tool_id,
        defaults={
            "reason": cancellation.reason.value,
            "source": cancellation.source.value,
            "mode": mode,
            "by_id": by_id,
            "by_name": cancellation.by,
            "note": cancellation.note,
            "requested_at": database_now(),
            "running_tools": _running_tools(turn) if running is None else list(running),
        },
    )
    if not is_new and request.mode != mode == "now" and request.settled_at is None:
        CancelRequest.objects.filter(pk=request.pk).update(mode="now")


def _running_tools(turn: Turn) -> list[str]:
    """The names of the tools whose calls are not over."""
    calls = selectors.calls_of_group(str(turn.pk))
    return [call.tool_name for call in calls if not CallStatus(call.status).is_terminal]
