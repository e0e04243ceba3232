"""Gives a running call another limit, as the people who may do so ask for it (T9)."""

from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils.translation import gettext as _

from governance import CallStatus, TimeoutSource, selectors
from governance.db import run_in_db_thread
from governance.durations import limit_ms
from turns.calls import timeout_changes
from turns.core.requests import PendingTimeout
from turns.core.turns import LIVE_STATUSES
from turns.exceptions import MessageRejected, ToolCallNotFound, TurnNotFound
from turns.models import Turn
from turns.processes.background import shielded
from turns.running import runtime
from turns.storage import operations
from turns.storage.access import User, reload, turn_for
from turns.storage.operations import OpOutcome

_OPEN = frozenset({CallStatus.PENDING, CallStatus.AWAITING_APPROVAL, CallStatus.RUNNING})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineReceipt:
    """The answer to a request for another limit; milliseconds, None = no limit."""

    outcome: OpOutcome
    timeout_ms: int | None = None
    timeout_source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A permitted request for another limit of a call: by whom, and under which id its client knows it."""

    turn: Turn
    tool_id: str
    by: str
    by_id: Any
    op_id: str | None
    note: str

    @property
    def owner_id(self) -> UUID | None:
        """The process that has to know; None if none has the turn."""
        return self.turn.owner_id if self.turn.status in LIVE_STATUSES else None


@shielded
async def set_deadline(
    *,
    turn_id: UUID,
    tool_id: str,
    user: User,
    timeout_ms: int | None = None,
    extend_ms: int | None = None,
    op_id: str | None = None,
    note: str = "",
) -> DeadlineReceipt:
    """Give a call another limit, capped by the administrators' ceiling (T9); one that waits gets it as it starts.

    `extend_ms` is added to the limit in force. Exactly one of the two is given. `note` says why, for the record.

    Raises:
        MessageRejected: neither or both are given, or the number is not positive.
    """
    _check_one_is_given(timeout_ms, extend_ms)
    try:
        asked = await _may_change(turn_id, tool_id, user, op_id, note)
    except (TurnNotFound, ToolCallNotFound):
        return DeadlineReceipt(outcome=OpOutcome.NOT_FOUND)
    # Stored also where the call runs here: an answer that is lost must not lose the request.
    receipt, change = await _store(asked, timeout_ms, extend_ms)
    if change is not None and asked.owner_id is not None:
        await runtime.notify_owner(asked.owner_id, [change])
    call = await runtime.find_call(turn_id, tool_id)
    if receipt.outcome is not OpOutcome.ACCEPTED or call is None or not call.has_policy:
        return receipt  # elsewhere, about to begin here, or over: its row knows
    return replace(
        receipt,
        timeout_ms=limit_ms(call.timeout) or None,
        timeout_source=call.timeout_source or "",
    )


def _check_one_is_given(*numbers: int | None) -> None:
    given = [number for number in numbers if number is not None]
    if len(given) != 1 or given[0] <= 0:
        raise MessageRejected(
            _("Give either timeout_ms or extend_ms, a number of milliseconds above 0.")
        )


@run_in_db_thread
def _may_change(turn_id: UUID, tool_id: str, user: User, op_id: str | None, note: str) -> _Asked:
    """Return who asks for what.

    Raises:
        TurnNotFound, ToolCallNotFound: there is no such call, or it is somebody else's.
    """
    turn = turn_for(user, turn_id, permission="turns.cancel_any")
    if not selectors.has_call(str(turn.pk), tool_id):
        raise ToolCallNotFound
    by = str(reload(user).get_username())[:150]
    return _Asked(turn=turn, tool_id=tool_id, by=by, by_id=user.pk, op_id=op_id, note=note)


@run_in_db_thread
def _store(
    asked: _Asked, timeout_ms: int | None, extend_ms: int | None
) -> tuple[DeadlineReceipt, PendingTimeout | None]:
    """Store the change with the operation, or neither; return the answer, and the change if it is a new one."""
    with transaction.atomic():
        known = operations.begin(asked.turn, asked.op_id)
        row = selectors.call(str(asked.turn.pk), asked.tool_id)
        if known is not None:
            return DeadlineReceipt(
                outcome=known, timeout_ms=row.timeout_ms, timeout_source=row.timeout_source
            ), None
        if row.status not in _OPEN:
            operations.end(asked.turn, asked.op_id, OpOutcome.ALREADY_FINISHED)
            return DeadlineReceipt(outcome=OpOutcome.ALREADY_FINISHED), None
        change = timeout_changes.store(
            asked.turn,
            asked.tool_id,
            timeout_ms=timeout_ms,
            extend_ms=extend_ms,
            by=asked.by,
            by_id=asked.by_id,
            note=asked.note,
        )
        return _promised(row, timeout_ms, extend_ms), change


def _promised(
    row: selectors.CallRow, timeout_ms: int | None, extend_ms: int | None
) -> DeadlineReceipt:
    """What a stored change will come to: the limit of a call that has none is not extended."""
    if timeout_ms is None and row.timeout_ms is None:
        return DeadlineReceipt(outcome=OpOutcome.ACCEPTED, timeout_source=row.timeout_source)
    wanted = timeout_ms if timeout_ms is not None else (row.timeout_ms or 0) + (extend_ms or 0)
    return DeadlineReceipt(
        outcome=OpOutcome.ACCEPTED,
        timeout_ms=limit_ms(selectors.capped(row.tool_name, wanted / 1000)) or None,
        timeout_source=TimeoutSource.MANUAL.value,
    )
