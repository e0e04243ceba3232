"""Requests to end a turn, or one of its calls: one row for each, written here, whoever asks for it (C2, C5; sync ORM).

A request is written down before anything is done about it, obeyed by who owns the turn, and settled when it has come true.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction

from governance import Cancellation, CancelReason, CancelSource, selectors
from governance.db_clock import database_now
from turns.core.events import TurnAbort, TurnEnd
from turns.core.ports import PendingCancel
from turns.core.turns import ACTIVE_STATUSES, TurnStatus
from turns.events import log, log_lines
from turns.events.notifications import Notifications
from turns.models import CancelRequest, Conversation, Turn
from turns.signals import cancel_settled


def cancel_turns(
    turns: Sequence[Turn],
    cancellation: Cancellation,
    *,
    conversations: Iterable[Conversation],
    mode: str = "now",
    by_id: Any = None,
) -> Notifications:
    """Store that turns are to end, whoever asks for it, and return what is to be told (C2).

    The caller holds the locks of their conversations. Each turn is read anew and gets its new status: one that is over
    is left alone, one that waits ends here, one that runs is ended by its owner.
    """
    at = database_now()
    active = _active(turns)
    _write(active, cancellation, at=at, mode=mode, by_id=by_id, running=_running_tools(active))
    notifications = Notifications(cancelled=len(active))
    queued = [turn for turn in active if turn.status == TurnStatus.QUEUED]
    running = [turn for turn in active if turn.status != TurnStatus.QUEUED]
    if running:
        _mark(running, mode)
        notifications.owner_ids |= {turn.owner_id for turn in running if turn.owner_id is not None}
    locked = {conversation.pk: conversation for conversation in conversations}
    for turn in queued:
        conversation = locked[turn.conversation_id]
        events = end_queued(conversation, [turn], cancellation, at=at)
        notifications.batches.append((conversation.pk, events))
        settle(turn.pk, outcome=TurnStatus.CANCELLED.value, at=at)
    return notifications


def cancel_call(
    turn: Turn, tool_id: str, cancellation: Cancellation, *, tool_name: str, mode: str, by_id: Any
) -> None:
    """Store that one call of a turn is to end; the caller holds the lock of its conversation."""
    _write(
        [turn],
        cancellation,
        at=database_now(),
        tool_id=tool_id,
        mode=mode,
        by_id=by_id,
        running={turn.pk: [tool_name]},
    )


def end_queued(
    conversation: Conversation, turns: Sequence[Turn], cancellation: Cancellation, *, at: datetime
) -> list[log.WireEvent]:
    """End turns of a locked conversation that have not begun: nothing of them runs (C7). Return their events."""
    events: list[log.WireEvent] = []
    cut = TurnStatus.CANCELLED
    for turn in turns:
        ended = Turn.objects.filter(pk=turn.pk, status=TurnStatus.QUEUED).update(
            status=cut,
            ended_at=at,
            duration_ms=0,
            ended_by_reason=cancellation.reason.value,
            ended_by_source=cancellation.source.value,
            ended_by_name=cancellation.by,
        )
        if ended:
            turn.status = cut
            reason = cancellation.reason
            log_lines.turn_ended(conversation, turn, status=cut, duration_ms=0, reason=reason)
            end = TurnEnd(status=cut.value, duration_ms=0, usage={}, error_code=None)
            events += log.append(conversation, turn.pk, TurnAbort.of(cancellation), end, at=at)
    return events


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


def _active(turns: Sequence[Turn]) -> list[Turn]:
    """Give turns the status and the owner that they have now; return those that are not over."""
    stored = Turn.objects.in_bulk([turn.pk for turn in turns])
    present = [turn for turn in turns if turn.pk in stored]
    for turn in present:
        turn.status, turn.owner_id = stored[turn.pk].status, stored[turn.pk].owner_id
    return [turn for turn in present if turn.status in ACTIVE_STATUSES]


def _write(
    turns: Sequence[Turn],
    cancellation: Cancellation,
    *,
    at: datetime,
    mode: str,
    by_id: Any,
    running: Mapping[UUID, list[str]],
    tool_id: str = "",
) -> None:
    """Make one row for each turn that has none. Who asked first stays on it; but `now` overtakes what is later."""
    requests = CancelRequest.objects.filter(turn__in=turns, tool_id=tool_id)
    known = set(requests.values_list("turn_id", flat=True))
    made = [
        CancelRequest(
            turn=turn,
            tool_id=tool_id,
            reason=cancellation.reason.value,
            source=cancellation.source.value,
            by_name=cancellation.by,
            note=cancellation.note,
            mode=mode,
            by_id=by_id,
            requested_at=at,
            running_tools=running[turn.pk],
        )
        for turn in turns
        if turn.pk not in known
    ]
    for request in CancelRequest.objects.bulk_create(made):
        log_lines.cancel_accepted(request)
    if known and mode == "now":
        requests.filter(settled_at=None).exclude(mode="now").update(mode="now")


def _mark(turns: Sequence[Turn], mode: str) -> None:
    """Show on running turns what they are asked for: to end now, or to report to whom it may concern."""
    rows = Turn.objects.filter(pk__in=[turn.pk for turn in turns])
    if mode == "now":
        rows.filter(status=TurnStatus.RUNNING).update(status=TurnStatus.CANCELLING)
        for turn in turns:
            turn.status = TurnStatus.CANCELLING
    elif mode == "report":
        rows.update(is_detached=True)


def _running_tools(turns: Sequence[Turn]) -> dict[UUID, list[str]]:
    """The names of the tools whose calls are not over, by turn."""
    calls = selectors.open_calls_of_groups(str(turn.pk) for turn in turns)
    return {turn.pk: [call.tool_name for call in calls.get(str(turn.pk), ())] for turn in turns}
