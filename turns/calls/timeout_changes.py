"""Changes of the limit of a running call, stored for the process that owns its turn (T9, C12)."""

from collections.abc import Sequence
from typing import TypeGuard
from uuid import UUID
from weakref import WeakKeyDictionary

from django.db.models.functions import Now

from governance import CallStatus, LiveCall, selectors
from governance.db import run_in_db_thread
from governance.runtime import get_executor
from turns.core.supervisor import TurnSupervisor
from turns.models import DeadlineOrder

# A call lives as long as its process, so what it has applied is known here even if the database could not store it.
_applied: "WeakKeyDictionary[LiveCall, set[int]]" = WeakKeyDictionary()


async def apply_pending(supervisor: TurnSupervisor) -> None:
    """Apply the open changes for the turns that run here, each once.

    A change for a call that its runner does not have yet waits for the next poll.
    """
    live = [live.turn.id for live in supervisor.live_turns]
    for order in await _open(live) if live else ():
        call = supervisor.find_call(order.turn_id, order.tool_id)
        if is_known(call):
            applied = _applied.setdefault(call, set())
            if order.pk not in applied:
                applied.add(order.pk)
                await move(
                    call, timeout_ms=order.timeout_ms, extend_ms=order.extend_ms, by=order.by_name
                )
            await _settle(order.pk)
        elif await _is_too_late(order):
            await _settle(order.pk)


def is_known(call: LiveCall | None) -> TypeGuard[LiveCall]:
    """Return whether a call is in its runner's hands, so that another limit can be given to it."""
    return call is not None and call.limits.policy is not None


async def move(call: LiveCall, *, timeout_ms: int | None, extend_ms: int | None, by: str) -> bool:
    """Give a call its new limit, from its start on if it waits; one without a limit has nothing to extend.

    False if it has ended.
    """
    if call.status.is_terminal:
        return False
    executor = await get_executor()
    if timeout_ms is not None:
        return executor.set_deadline(call, timeout_ms / 1000, by=by)
    if call.timeout is None:
        return True
    return executor.set_deadline(call, call.timeout + (extend_ms or 0) / 1000, by=by)


@run_in_db_thread
def _open(turn_ids: Sequence[UUID]) -> list[DeadlineOrder]:
    return list(DeadlineOrder.objects.filter(turn_id__in=turn_ids, settled_at=None).order_by("pk"))


@run_in_db_thread
def _is_too_late(order: DeadlineOrder) -> bool:
    group = str(order.turn_id)
    if not selectors.has_call(group, order.tool_id):
        return True
    return CallStatus(selectors.call(group, order.tool_id).status).is_terminal


@run_in_db_thread
def _settle(pk: int) -> None:
    DeadlineOrder.objects.filter(pk=pk, settled_at=None).update(settled_at=Now())
