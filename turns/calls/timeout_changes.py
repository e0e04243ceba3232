"""Changes to the limit of a running call, stored for its turn's owner (T9, C12).

The functions here use the synchronous ORM.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db.models.functions import Now

from governance import selectors
from governance.sanitize import sanitize_text
from turns.core.turns import PendingTimeout
from turns.events import log_lines
from turns.models import DeadlineOrder, Turn

NOTE_LENGTH = 500


def store(
    turn: Turn,
    tool_id: str,
    *,
    timeout_ms: int | None,
    extend_ms: int | None,
    by: str,
    by_id: Any,
    note: str = "",
) -> PendingTimeout:
    """Store a requested limit for a call, with its requester and the reason."""
    row = DeadlineOrder.objects.create(
        turn=turn,
        tool_id=tool_id,
        timeout_ms=timeout_ms,
        extend_ms=extend_ms,
        by_name=by,
        note=sanitize_text(note, limit=NOTE_LENGTH),
    )
    log_lines.deadline_accepted(turn, row, by_id=by_id)
    return _value(row, is_late=False)


def pending(turn_ids: Sequence[UUID]) -> list[PendingTimeout]:
    """Return the open changes for these turns, oldest first, with one or two queries."""
    rows = DeadlineOrder.objects.filter(turn__in=turn_ids, settled_at=None).order_by("pk")
    if not rows:
        return []
    by_turn = selectors.open_calls_of_groups({str(row.turn_id) for row in rows})
    is_open = {(call.group, call.call_id) for calls in by_turn.values() for call in calls}
    return [_value(row, is_late=(str(row.turn_id), row.tool_id) not in is_open) for row in rows]


def settle(changes: Sequence[PendingTimeout]) -> None:
    """Mark changes as settled, because they were applied or came too late."""
    ids = [change.id for change in changes]
    DeadlineOrder.objects.filter(pk__in=ids, settled_at=None).update(settled_at=Now())


def _value(row: DeadlineOrder, *, is_late: bool) -> PendingTimeout:
    return PendingTimeout(
        id=row.pk,
        turn_id=row.turn_id,
        tool_id=row.tool_id,
        timeout_ms=row.timeout_ms,
        extend_ms=row.extend_ms,
        by=row.by_name,
        is_late=is_late,
    )
