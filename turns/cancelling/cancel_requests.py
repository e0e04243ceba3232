"""Requests to end a turn, or one of its calls (C2, C5; sync ORM). Each has one row, written here, whoever asks for it.

A request is stored first, then the turn's owner obeys it. It is settled when the turn or call has ended.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, UUIDField

from governance import Cancellation, CancelReason, CancelSource, selectors
from governance.bulk_updates import update_each
from governance.db_clock import database_now
from governance.prepared_statements import Insert, Select, Several, Update, fields_of
from turns.core.events import TurnEndsAfterStep
from turns.core.requests import PendingCancel
from turns.core.turns import ACTIVE_STATUSES, TurnEnding, TurnStatus
from turns.events import log, log_lines
from turns.events.notifications import Notifications
from turns.models import CancelRequest, Conversation, Turn
from turns.signals import cancel_settled
from turns.storage import turn_lock, turn_status

ENDS_AFTER_STEP = Exists(
    CancelRequest.objects.filter(
        turn=OuterRef("pk"), tool_id="", mode="after_step", settled_at=None
    )
)
"""Of turns: whether one is accepted to end after its step."""


def cancel_turns(
    turns: Iterable[Turn],
    cancellation: Cancellation,
    *,
    conversations: Iterable[Conversation],
    mode: str = "now",
    by_id: Any = None,
) -> Notifications:
    """Store that turns are to end, whoever asks for it, and return what is to be told (C2).

    The caller holds the locks of their conversations. Each turn is read again. One that is over stays as it is. One
    that waits ends here. One that runs is ended by its owner.
    """
    locked = {conversation.pk: conversation for conversation in conversations}
    fresh = turn_lock.read_turns_to_cancel(turn.pk for turn in turns)
    for turn in fresh:
        turn.conversation = locked[turn.conversation_id]
    return cancel_locked(fresh, cancellation, mode=mode, by_id=by_id)


def cancel_locked(
    turns: Sequence[Any], cancellation: Cancellation, *, mode: str = "now", by_id: Any = None
) -> Notifications:
    """Store the same for turns as `lock_turn_to_cancel` returns them; each gets its new status."""
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
    """Store that one call of a turn is to end, and return what is to be told. The turn is as in `cancel_locked`."""
    known = CancelRequest.objects.filter(turn=turn.pk, tool_id=tool_id)
    if not known.exists():
        running = {turn.pk: [tool_name]}
        _write([turn], cancellation, tool_id=tool_id, mode="now", by_id=by_id, running=running)
    notifications = Notifications()
    request = PendingCancel(turn_id=turn.pk, tool_id=tool_id, cancellation=cancellation)
    notifications.ask(turn.owner_id, request)
    return notifications


def end_queued(
    conversation: Conversation, turns: Sequence[Turn], cancellation: Cancellation, *, at: datetime
) -> list[log.WireEvent]:
    """End turns of a locked conversation that have not begun: nothing of them runs (C7). Return their events."""
    ending = TurnEnding(status=TurnStatus.CANCELLED, cancellation=cancellation)
    events: list[log.WireEvent] = []
    for turn in turns:
        final = turn_status.write_final(conversation, turn, ending, at=at)
        events += log.append(conversation, turn.pk, *final, at=at)
    return events


def pending(turn_ids: Sequence[UUID]) -> list[PendingCancel]:
    """Return the unsettled cancel requests of these turns, oldest first: one query for all."""
    return [
        PendingCancel(
            turn_id=request.turn_id,
            tool_id=request.tool_id,
            mode=request.mode,
            cancellation=_cancellation(request),
        )
        for request in _PENDING.all(turn_ids=turn_ids)
    ]


def stored(turn: Turn) -> Cancellation | None:
    """Return the stored request to end a turn now, if there is one."""
    return stored_of_calls(turn, [""]).get("")


def open_of(turn_id: UUID) -> list[CancelRequest]:
    """Return the requests for a turn and its calls that are not settled."""
    return _OPEN.all(turn_id=turn_id)


def wanted_now(requests: Iterable[CancelRequest]) -> Cancellation | None:
    """Return why a turn is to end now, if one of its open requests is for that."""
    found = (it for it in requests if it.mode == "now" and not it.tool_id)
    return next(map(_cancellation, found), None)


def stored_of_calls(turn: Turn, tool_ids: Sequence[str]) -> dict[str, Cancellation]:
    """Return the stored requests to end calls of a turn now, by the ids of these calls."""
    requests = CancelRequest.objects.filter(turn=turn, tool_id__in=tool_ids, mode="now")
    return {request.tool_id: _cancellation(request) for request in requests}


def settle(
    requests: Iterable[CancelRequest],
    *,
    outcome: str,
    at: datetime,
    of_calls: Mapping[str, str] | None = None,
) -> None:
    """Settle the open requests of a turn at this moment of the database's clock.

    `of_calls` has the outcomes of calls that have one of their own, by id.
    """
    outcomes = of_calls or {}
    _settle({it: outcomes.get(it.tool_id, outcome) for it in requests}, at=at)


def settle_calls(turn_id: UUID, outcomes: Mapping[str, str]) -> None:
    """Note what became of calls of a turn that were asked to stop, by their ids."""
    ended = [it for it in open_of(turn_id) if it.tool_id in outcomes]
    if ended:
        _settle({request: outcomes[request.tool_id] for request in ended}, at=database_now())


def _settle(outcomes: Mapping[CancelRequest, str], *, at: datetime) -> None:
    for request, outcome in outcomes.items():
        passed = round((at - request.requested_at).total_seconds() * 1000)
        request.settled_at, request.settled_ms, request.outcome = at, max(passed, 0), outcome
        log_lines.cancel_settled(request)
        transaction.on_commit(partial(_send_settled, request), robust=True)
    update_each(list(outcomes), ["settled_at", "settled_ms", "outcome"])


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
    """Make one row for each turn: who asks first stays on it, until somebody does not want to wait."""
    facts = {"tool_id": tool_id, "mode": mode, "by_id": by_id}
    made = [_row_of(turn, cancellation, running_tools=running[turn.pk], **facts) for turn in turns]
    _INSERT.many(made)
    for request in made:
        log_lines.cancel_accepted(request)


def _overtake(turns: Sequence[Any], cancellation: Cancellation, *, by_id: Any) -> None:
    """Let open requests that were to count later count at once. They are now those of who wants that."""
    if not turns:
        return
    waiting = CancelRequest.objects.filter(turn__in=turns, tool_id="", settled_at=None)
    known = dict(waiting.exclude(mode="now").values_list("turn", "pk"))
    overtaken = [turn for turn in turns if turn.pk in known]
    if not overtaken:
        return
    running = _running_tools(overtaken)
    requests = [
        _row_of(turn, cancellation, pk=known[turn.pk], by_id=by_id, running_tools=running[turn.pk])
        for turn in overtaken
    ]
    update_each(requests, _OVERTAKEN)
    for request in requests:
        log_lines.cancel_accepted(request)


def _row_of(turn: Any, cancellation: Cancellation, **facts: Any) -> CancelRequest:
    """Return the row of who asks for this now."""
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
    """Show on running turns what they are asked for: to end now, or to report to whom it may concern."""
    if mode == "now":
        _MARK.run_each({"pk": turn.pk, "status": TurnStatus.CANCELLING} for turn in turns)
        for turn in turns:
            turn.status = TurnStatus.CANCELLING
    elif mode == "report" and turns:
        Turn.objects.filter(pk__in=[turn.pk for turn in turns]).update(is_detached=True)


def _append_after_step(turn: Any, cancellation: Cancellation) -> log.Batch:
    """Append that a turn ends after its step, for all who watch."""
    event = TurnEndsAfterStep(
        reason=cancellation.reason.value, source=cancellation.source.value, by=cancellation.by
    )
    events = log.append(turn.conversation, turn.pk, event, at=turn.read_at, is_news=False)
    return turn.conversation_id, events


def _running_tools(turns: Sequence[Any]) -> dict[UUID, list[str]]:
    """The names of the tools whose calls are not over, by turn."""
    if len(turns) == 1:
        return {turn.pk: selectors.open_tool_names(str(turn.pk)) for turn in turns}
    calls = selectors.open_calls_of_groups(str(turn.pk) for turn in turns)
    return {turn.pk: [call.tool_name for call in calls.get(str(turn.pk), ())] for turn in turns}


_OVERTAKEN = ("reason", "source", "mode", "by", "by_name", "note", "requested_at", "running_tools")
_INSERT = Insert(CancelRequest)
_OPEN = Select(
    lambda turn_id: CancelRequest.objects.filter(turn_id=turn_id, settled_at=None),
    turn_id=UUIDField(),
)
_PENDING = Select(
    lambda turn_ids: CancelRequest.objects.filter(turn__pk__in=turn_ids, settled_at=None).order_by(
        "requested_at"
    ),
    turn_ids=Several(UUIDField()),
)
_MARK = Update(
    lambda pk, status: (Turn.objects.filter(pk=pk, status=TurnStatus.RUNNING), {"status": status}),
    **fields_of(Turn, "pk", "status"),
)
