"""Requests to cancel a turn or one of its calls (C2, C5). Every request has one row, which is written here.

A request is stored first, then applied by the turn's owner, and settled when the turn or call has ended. The functions
use the synchronous ORM.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef

from governance import Cancellation, CancelReason, CancelSource, activity, selectors
from governance.db import on_commit
from governance.db_clock import database_now
from turns.core.events import TurnEndsAfterStep
from turns.core.turns import ACTIVE_STATUSES, PendingCancel, TurnEnding, TurnStatus
from turns.events import log, log_lines
from turns.events.notifications import Notifications
from turns.models import CancelRequest, Conversation, Turn
from turns.signals import cancel_settled
from turns.storage import turn_rows

ENDS_AFTER_STEP = Exists(
    CancelRequest.objects.filter(
        turn=OuterRef("pk"), tool_id="", mode="after_step", settled_at=None
    )
)
"""An annotation of turns: whether an accepted request ends them after their current step."""


def cancel_turns(
    turns: Iterable[Turn],
    cancellation: Cancellation,
    *,
    conversations: Iterable[Conversation],
    mode: str = "now",
    by_id: Any = None,
) -> Notifications:
    """Store cancel requests for turns, and return the notifications (C2).

    The caller holds the locks of their conversations. The turns are read again: ended turns are left unchanged,
    queued turns end here, and running turns are ended by their owners.
    """
    locked = {conversation.pk: conversation for conversation in conversations}
    fresh = turn_rows.read_turns_to_cancel(turn.pk for turn in turns)
    for turn in fresh:
        turn.conversation = locked[turn.conversation_id]
    return cancel_locked(fresh, cancellation, mode=mode, by_id=by_id)


def cancel_locked(
    turns: Sequence[Any], cancellation: Cancellation, *, mode: str = "now", by_id: Any = None
) -> Notifications:
    """Store cancel requests for turns returned by `lock_turn_to_cancel`, and update their status."""
    active = [turn for turn in turns if turn.status in ACTIVE_STATUSES]
    new = [turn for turn in active if not turn.is_asked]
    _write(new, cancellation, mode=mode, by_id=by_id, running=_running_tools(new))
    if mode == "now":
        _overtake([turn for turn in active if turn.is_asked], cancellation, by_id=by_id)
    notifications = Notifications(cancelled=len(active))
    queued = [turn for turn in active if turn.status == TurnStatus.QUEUED]
    running = [turn for turn in active if turn.status != TurnStatus.QUEUED]
    _mark(running, mode)
    for turn in running:
        request = PendingCancel(turn_id=turn.pk, mode=mode, cancellation=cancellation)
        notifications.ask(turn.owner_id, request)
    if mode == "after_step":
        first_asked = [turn for turn in running if not turn.is_asked]
        notifications.batches += [_append_after_step(turn, cancellation) for turn in first_asked]
    for turn in queued:
        events = end_queued(turn.conversation, [turn], cancellation, at=turn.read_at)
        notifications.batches.append((turn.conversation_id, events))
        settle(open_of(turn.pk), outcome=TurnStatus.CANCELLED.value, at=turn.read_at)
    return notifications


def cancel_call(
    turn: Any, tool_id: str, cancellation: Cancellation, *, tool_name: str, by_id: Any
) -> Notifications:
    """Store a cancel request for one call of a turn that `lock_turn_to_cancel` returned. Return the notifications."""
    earlier_requests = CancelRequest.objects.filter(turn=turn.pk, tool_id=tool_id)
    if not earlier_requests.exists():
        running = {turn.pk: [tool_name]}
        _write([turn], cancellation, tool_id=tool_id, mode="now", by_id=by_id, running=running)
    notifications = Notifications()
    request = PendingCancel(turn_id=turn.pk, tool_id=tool_id, cancellation=cancellation)
    notifications.ask(turn.owner_id, request)
    return notifications


def end_queued(
    conversation: Conversation, turns: Sequence[Turn], cancellation: Cancellation, *, at: datetime
) -> list[log.WireEvent]:
    """End queued turns of a locked conversation, so that they never start (C7). Return their events."""
    ending = TurnEnding(status=TurnStatus.CANCELLED, cancellation=cancellation)
    events: list[log.WireEvent] = []
    for turn in turns:
        final = turn_rows.write_final(conversation, turn, ending, at=at)
        events += log.append(conversation, turn.pk, *final, at=at)
    return events


def pending(turn_ids: Sequence[UUID]) -> list[PendingCancel]:
    """Return the unsettled cancel requests for these turns, oldest first, with one query."""
    requests = CancelRequest.objects.filter(turn__in=turn_ids, settled_at=None)
    return [
        PendingCancel(
            turn_id=request.turn_id,
            tool_id=request.tool_id,
            mode=request.mode,
            cancellation=_cancellation(request),
        )
        for request in requests.order_by("requested_at")
    ]


def stored(turn: Turn) -> Cancellation | None:
    """Return the stored cancellation that ends a turn immediately, or None."""
    return stored_of_calls(turn, [""]).get("")


def open_of(turn_id: UUID) -> list[CancelRequest]:
    """Return the unsettled requests for a turn and its calls."""
    return list(CancelRequest.objects.filter(turn=turn_id, settled_at=None))


def wanted_now(requests: Iterable[CancelRequest]) -> Cancellation | None:
    """Return the cancellation of the first open request that ends the turn immediately."""
    matches = (it for it in requests if it.mode == "now" and not it.tool_id)
    return next(map(_cancellation, matches), None)


def stored_of_calls(turn: Turn, tool_ids: Sequence[str]) -> dict[str, Cancellation]:
    """Return the stored cancellations of calls of a turn, by call id."""
    requests = CancelRequest.objects.filter(turn=turn, tool_id__in=tool_ids, mode="now")
    return {request.tool_id: _cancellation(request) for request in requests}


def settle(
    requests: Iterable[CancelRequest],
    *,
    outcome: str,
    at: datetime,
    of_calls: Mapping[str, str] | None = None,
) -> None:
    """Settle these requests for a turn at the database time `at`.

    `of_calls` contains the outcomes of calls, by id; `outcome` applies to all other requests.
    """
    outcomes = of_calls or {}
    _settle({it: outcomes.get(it.tool_id, outcome) for it in requests}, at=at)


def settle_calls(turn_id: UUID, outcomes: Mapping[str, str]) -> None:
    """Record the outcomes of cancelled calls of a turn, by id."""
    ended = [it for it in open_of(turn_id) if it.tool_id in outcomes]
    if ended:
        _settle({request: outcomes[request.tool_id] for request in ended}, at=database_now())


def _settle(outcomes: Mapping[CancelRequest, str], *, at: datetime) -> None:
    for request, outcome in outcomes.items():
        duration = round((at - request.requested_at).total_seconds() * 1000)
        request.settled_at, request.settled_ms, request.outcome = at, max(duration, 0), outcome
        log_lines.cancel_settled(request)
        on_commit(partial(_send_settled, request), robust=True)
    CancelRequest.objects.bulk_update(outcomes, ["settled_at", "settled_ms", "outcome"])


def _cancellation(request: CancelRequest) -> Cancellation:
    return Cancellation(
        reason=CancelReason(request.reason),
        source=CancelSource(request.source),
        by=request.by_name,
        note=request.note,
    )


def _send_settled(request: CancelRequest) -> None:
    cancel_settled.send_robust(
        sender=CancelRequest,
        source=request.source,
        what="call" if request.tool_id else "turn",
        seconds=(request.settled_ms or 0) / 1000,
        mode=request.mode,
    )


def _write(
    turns: Sequence[Any],
    cancellation: Cancellation,
    *,
    mode: str,
    by_id: Any,
    running: Mapping[UUID, list[str]],
    tool_id: str = "",
) -> None:
    """Create one row per turn. The first requester is kept, unless a later request ends the turn earlier."""
    facts = {"tool_id": tool_id, "mode": mode, "by_id": by_id}
    rows = [_row_of(turn, cancellation, running_tools=running[turn.pk], **facts) for turn in turns]
    CancelRequest.objects.bulk_create(rows)
    _accept(rows)


def _overtake(turns: Sequence[Any], cancellation: Cancellation, *, by_id: Any) -> None:
    """Make postponed requests take effect now, and assign them to the new requester."""
    if not turns:
        return
    waiting = CancelRequest.objects.filter(turn__in=turns, tool_id="", settled_at=None)
    request_ids = dict(waiting.exclude(mode="now").values_list("turn", "pk"))
    overtaken = [turn for turn in turns if turn.pk in request_ids]
    if not overtaken:
        return
    running = _running_tools(overtaken)
    requests = [
        _row_of(
            turn, cancellation, pk=request_ids[turn.pk], by_id=by_id, running_tools=running[turn.pk]
        )
        for turn in overtaken
    ]
    CancelRequest.objects.bulk_update(requests, _OVERTAKEN)
    _accept(requests)


def _accept(requests: Sequence[CancelRequest]) -> None:
    """Record requests in the audit and the log, both new ones and those that now take effect earlier."""
    activity.store(_act(request) for request in requests)
    for request in requests:
        log_lines.cancel_accepted(request)


def _act(request: CancelRequest) -> Any:
    by_staff = request.source == CancelSource.ADMIN
    return activity.act(
        "cancel",
        "cancel",
        source=request,
        subject=request.running_tools[0] if request.tool_id else "",
        group=str(request.turn_id),
        changes={"reason": request.reason, "source": request.source, "mode": request.mode},
        why=request.note if by_staff else "",
        note="" if by_staff else request.note,
        by_id=request.by_id,
        by_name=request.by_name,
        at=request.requested_at,
    )


def _row_of(turn: Any, cancellation: Cancellation, **facts: Any) -> CancelRequest:
    return CancelRequest(
        turn=turn,
        reason=cancellation.reason.value,
        source=cancellation.source.value,
        by_name=cancellation.by,
        note=cancellation.note,
        requested_at=turn.read_at,
        **facts,
    )


def _mark(turns: Sequence[Any], mode: str) -> None:
    """Mark running turns as cancelling or, with the mode "report", as detached."""
    marked = Turn.objects.filter(pk__in=[turn.pk for turn in turns])
    if mode == "now":
        marked.filter(status=TurnStatus.RUNNING).update(status=TurnStatus.CANCELLING)
        for turn in turns:
            turn.status = TurnStatus.CANCELLING
    elif mode == "report":
        marked.update(is_detached=True)


def _append_after_step(turn: Any, cancellation: Cancellation) -> log.Batch:
    """Append the event that announces that a turn will end after its current step."""
    event = TurnEndsAfterStep(
        reason=cancellation.reason.value, source=cancellation.source.value, by=cancellation.by
    )
    events = log.append(turn.conversation, turn.pk, event, at=turn.read_at, is_news=False)
    return turn.conversation_id, events


def _running_tools(turns: Sequence[Any]) -> dict[UUID, list[str]]:
    """Return the names of the tools whose calls are active, by turn."""
    if len(turns) == 1:
        return {turn.pk: selectors.open_tool_names(str(turn.pk)) for turn in turns}
    calls = selectors.open_calls_of_groups(str(turn.pk) for turn in turns)
    return {turn.pk: [call.tool_name for call in calls.get(str(turn.pk), ())] for turn in turns}


_OVERTAKEN = ("reason", "source", "mode", "by", "by_name", "note", "requested_at", "running_tools")
