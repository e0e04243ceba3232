"""Wishes: that a turn, or one of its calls, is to end. One row for each, whoever wishes it (C2, C5; sync ORM).

A wish is written down before anything is done about it, obeyed by who owns the turn, and settled when it has come true.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction

from governance import Cancellation, CancelReason, CancelSource, selectors
from governance.db_clock import database_now
from turns.core.ports import PendingCancel
from turns.events import log_lines
from turns.models import CancelRequest, Turn
from turns.signals import cancel_settled


def write(
    turn: Turn,
    cancellation: Cancellation,
    *,
    by_id: Any = None,
    mode: str = "now",
    tool_id: str = "",
    running: Sequence[str] | None = None,
) -> CancelRequest:
    """Store a wish and return it. Who wished first stays on the row; a repeated wish changes nothing, but `now` overtakes what is later."""
    request, is_new = CancelRequest.objects.get_or_create(
        turn=turn,
        tool_id=tool_id,
        defaults={
            **_fields(cancellation),
            "mode": mode,
            "by_id": by_id,
            "requested_at": database_now(),
            "running_tools": _running_tools([turn])[turn.pk] if running is None else list(running),
        },
    )
    if is_new:
        log_lines.cancel_accepted(request)
    elif request.mode != mode == "now" and request.settled_at is None:
        CancelRequest.objects.filter(pk=request.pk).update(mode="now")
    return request


def write_all(turns: Sequence[Turn], cancellation: Cancellation, *, at: datetime) -> None:
    """Store the wish to end several turns of locked conversations now, in a few statements for all of them."""
    requests = CancelRequest.objects.filter(turn__in=turns, tool_id="")
    known = set(requests.values_list("turn_id", flat=True))
    new = [turn for turn in turns if turn.pk not in known]
    running = _running_tools(new)
    made = [
        CancelRequest(
            turn=turn, requested_at=at, running_tools=running[turn.pk], **_fields(cancellation)
        )
        for turn in new
    ]
    for request in CancelRequest.objects.bulk_create(made):
        log_lines.cancel_accepted(request)
    if known:
        requests.filter(settled_at=None).exclude(mode="now").update(mode="now")


def pending_cancels(turn_ids: Sequence[UUID]) -> list[PendingCancel]:
    """Return the unsettled cancel requests of these turns, oldest first: one query for all."""
    requests = CancelRequest.objects.filter(turn_id__in=turn_ids, settled_at=None).order_by(
        "requested_at"
    )
    return [
        PendingCancel(
            turn_id=request.turn_id,
            tool_id=request.tool_id,
            mode=request.mode,
            cancellation=_cancellation(request),
        )
        for request in requests
    ]


def stored(turn: Turn) -> Cancellation | None:
    """Return the stored wish to end a turn now, if there is one."""
    return stored_of_calls(turn, [""]).get("")


def stored_of_calls(turn: Turn, tool_ids: Sequence[str]) -> dict[str, Cancellation]:
    """Return the stored wishes to end calls of a turn now, by the ids of these calls."""
    requests = CancelRequest.objects.filter(turn=turn, tool_id__in=tool_ids, mode="now")
    return {request.tool_id: _cancellation(request) for request in requests}


def settle(
    turn_id: UUID, *, outcome: str, at: datetime, of_calls: Mapping[str, str] | None = None
) -> None:
    """Note that what was asked of a turn has come true at this moment of the database's clock, with all that is open.

    `of_calls` has the outcomes of calls that have one of their own, by id.
    """
    for request in CancelRequest.objects.filter(turn_id=turn_id, settled_at=None):
        _settle(request, outcome=(of_calls or {}).get(request.tool_id, outcome), at=at)


def settle_calls(turn_id: UUID, outcomes: Mapping[str, str]) -> None:
    """Note what became of calls of a turn that were asked to stop, by their ids."""
    open_requests = CancelRequest.objects.filter(turn_id=turn_id, settled_at=None)
    for request in open_requests.filter(tool_id__in=list(outcomes)):
        _settle(request, outcome=outcomes[request.tool_id], at=database_now())


def _settle(request: CancelRequest, *, outcome: str, at: datetime) -> None:
    passed = round((at - request.requested_at).total_seconds() * 1000)
    request.settled_at, request.settled_ms, request.outcome = at, max(passed, 0), outcome
    request.save(update_fields=["settled_at", "settled_ms", "outcome"])
    log_lines.cancel_settled(request)
    transaction.on_commit(partial(_tell_settled, request), robust=True)


def _cancellation(request: CancelRequest) -> Cancellation:
    """Return a stored request as a value."""
    return Cancellation(
        reason=CancelReason(request.reason),
        source=CancelSource(request.source),
        by=request.by_name,
        note=request.note,
    )


def _tell_settled(request: CancelRequest) -> None:
    cancel_settled.send_robust(
        sender=CancelRequest,
        source=request.source,
        what="call" if request.tool_id else "turn",
        seconds=(request.settled_ms or 0) / 1000,
    )


def _fields(cancellation: Cancellation) -> dict[str, Any]:
    return {
        "reason": cancellation.reason.value,
        "source": cancellation.source.value,
        "by_name": cancellation.by,
        "note": cancellation.note,
    }


def _running_tools(turns: Sequence[Turn]) -> dict[UUID, list[str]]:
    """The names of the tools whose calls are not over, by turn."""
    calls = selectors.open_calls_of_groups(str(turn.pk) for turn in turns)
    return {turn.pk: [call.tool_name for call in calls.get(str(turn.pk), ())] for turn in turns}
