"""Gives a running call another limit, as the people who may do so ask for it (T9)."""

from dataclasses import dataclass
from uuid import UUID

from django.utils.translation import gettext as _

from governance import LiveCall, selectors
from governance.doors import database_door
from turns import requests, runtime
from turns.core.events import milliseconds
from turns.exceptions import MessageRejected, ToolCallNotFound, TurnNotFound
from turns.identity import User, reload, turn_for
from turns.requests import OpOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineReceipt:
    """The answer to a wish for another limit; milliseconds, None = no limit."""

    outcome: OpOutcome
    timeout_ms: int | None = None
    timeout_source: str = ""


async def set_deadline(
    *,
    turn_id: UUID,
    tool_id: str,
    user: User,
    timeout_ms: int | None = None,
    extend_ms: int | None = None,
    op_id: str | None = None,
) -> DeadlineReceipt:
    """Give a running call another limit, capped by the administrators' ceiling (T9).

    `extend_ms` is added to the limit in force. Exactly one of the two is given.

    Raises:
        MessageRejected: neither or both are given, or the number is not positive.
    """
    wanted = timeout_ms if timeout_ms is not None else extend_ms
    if wanted is None or wanted <= 0 or (timeout_ms is not None and extend_ms is not None):
        raise MessageRejected(
            _("Give either timeout_ms or extend_ms, a number of milliseconds above 0.")
        )
    try:
        name, known = await _may_change(turn_id, tool_id, user, op_id)
    except (TurnNotFound, ToolCallNotFound):
        return DeadlineReceipt(outcome=OpOutcome.NOT_FOUND)
    call = await runtime.find_call(turn_id, tool_id)
    if known is not None:
        return _deadline_receipt(known, call)
    moved = call is not None and await _move_deadline(call, timeout_ms, extend_ms, by=name)
    outcome = OpOutcome.ACCEPTED if moved else OpOutcome.ALREADY_FINISHED
    if op_id is not None and not moved:
        await _end_operation(turn_id, op_id, outcome)
    return _deadline_receipt(outcome, call)


async def _move_deadline(
    call: LiveCall, timeout_ms: int | None, extend_ms: int | None, *, by: str
) -> bool:
    """Give a call its new limit; one without a limit has nothing to extend. False if it does not run."""
    if call.deadline is None:
        return False
    if timeout_ms is not None:
        return await runtime.set_deadline(call, timeout_ms / 1000, by=by)
    if call.timeout is None:
        return True
    return await runtime.set_deadline(call, call.timeout + (extend_ms or 0) / 1000, by=by)


def _deadline_receipt(outcome: OpOutcome, call: LiveCall | None) -> DeadlineReceipt:
    if call is None or outcome is not OpOutcome.ACCEPTED:
        return DeadlineReceipt(outcome=outcome)
    return DeadlineReceipt(
        outcome=outcome,
        timeout_ms=milliseconds(call.timeout),
        timeout_source=call.timeout_source or "",
    )


@database_door
def _may_change(
    turn_id: UUID, tool_id: str, user: User, op_id: str | None
) -> tuple[str, OpOutcome | None]:
    """The name of who asks, and the outcome of the operation if it came before.

    Raises:
        TurnNotFound, ToolCallNotFound: there is no such call, or it is somebody else's.
    """
    turn = turn_for(user, turn_id, permission="turns.cancel_any")
    if not selectors.has_call(str(turn.pk), tool_id):
        raise ToolCallNotFound
    known = None if op_id is None else requests.begin_operation(turn, op_id)
    return str(reload(user).get_username())[:150], known


_end_operation = database_door(requests.end_operation)
