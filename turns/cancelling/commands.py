"""Stores the cancels that people request. The rows are authoritative; notifications are only hints (C2, C12).

The functions here use the synchronous ORM.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from governance import CallStatus, Cancellation, CancelReason, CancelSource, selectors
from governance.db import atomic
from governance.db_clock import now_minus
from governance.sanitize import sanitize_text
from turns.cancelling import cancel_requests
from turns.cancelling.descendants import below, cancel_all, cancel_descendants, reached
from turns.core.turns import ACTIVE_STATUSES, BY_PEOPLE, LIVE_STATUSES, TurnStatus
from turns.events import acknowledgements
from turns.events.notifications import Notifications
from turns.exceptions import TurnNotFound
from turns.models import CancelRequest, Turn
from turns.queueing.queue import REPORT_SOURCE
from turns.storage import operations
from turns.storage.access import User, reload, turn_of
from turns.storage.operations import OpOutcome
from turns.storage.turn_rows import lock_turn_to_cancel

ONLY_QUEUED = "queued"
SAID_AGAIN_WITHIN = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelReceipt:
    """The result of a cancel request, and the current status of the turn or call.

    `descendants` is the number of sub-agent turns that end with it. `notifications` must be sent; if they report that
    some turns were left out, `cancel_left_out` cancels those.
    """

    outcome: OpOutcome
    turn_id: UUID
    status: str = ""
    descendants: int = 0
    notifications: Notifications = field(default_factory=Notifications)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelCommand:
    """A cancel that a person requests, with its source, its reason (`note`) and the cancel word, if there was one
    (`said`).

    With the `mode` "queued", a turn is cancelled only if it is still queued, and the turns queued behind it are kept.
    The `obeying` turns run in this process and are already cancelled in memory.
    """

    user: User
    source: CancelSource
    note: str = ""
    mode: str = "now"
    op_id: str | None = None
    said: str = ""
    obeying: frozenset[UUID] = frozenset()


def request_turn_cancel(turn_id: UUID, command: CancelCommand) -> CancelReceipt:
    """Store the request to end a turn, and end the turns queued behind it (C5, C7).

    The queued turns end in the same transaction, so that none of them can start in between. If the turn itself is
    queued, it ends immediately.
    """
    return _once(turn_id, command, partial(_cancel_turn, command=command))


def cancel_left_out(turn_id: UUID) -> Notifications:
    """Cancel the sub-agents whose conversations were locked when this turn's cancel was stored.

    Each has its own transaction, because the transaction that accepted the cancel must not wait for other writers.
    """
    turn = Turn.objects.filter(pk=turn_id).first()
    cancellation = None if turn is None else cancel_requests.stored(turn)
    return Notifications() if cancellation is None else cancel_descendants(turn_id, cancellation)


def request_call_cancel(turn_id: UUID, tool_id: str, command: CancelCommand) -> CancelReceipt:
    """Store the request to end one call and everything it started; the turn and its other calls continue (C3)."""
    return _once(turn_id, command, partial(_cancel_call, tool_id=tool_id, command=command))


def request_detached_cancel(conversation_id: UUID, command: CancelCommand) -> list[CancelReceipt]:
    """Store requests to end the detached sub-agents of a conversation that has no active turn itself."""
    detached = Turn.objects.filter(
        parent__conversation=conversation_id, is_detached=True, status__in=ACTIVE_STATUSES
    )
    receipts = [
        request_turn_cancel(turn.pk, replace(command, op_id=None, said=""))
        for turn in detached.order_by("queued_at", "pk")
    ]
    accepted = [receipt for receipt in receipts if receipt.outcome is OpOutcome.ACCEPTED]
    if accepted:
        first = accepted[0].turn_id
        operations.remember(conversation_id, first, command.op_id)
        accepted[0].notifications.answers += _note_detached(conversation_id, first, command)
    return accepted


def _note_detached(conversation_id: UUID, turn_id: UUID, command: CancelCommand) -> list[int]:
    """Show the answer under the latest turn of this conversation, because the ended turns are in other conversations."""
    request = CancelRequest.objects.get(turn=turn_id, tool_id="")
    last = Turn.objects.filter(conversation=conversation_id).order_by("-number").first()
    if last is None or not command.said:
        return []
    return [acknowledgements.note(request, last, words=command.said, source=command.source)]


def active_turn(conversation_id: UUID) -> Turn | None:
    """Return the turn that a cancel word refers to: the live one, or else the first queued one."""
    active = Turn.objects.filter(conversation_id=conversation_id, status__in=ACTIVE_STATUSES)
    return active.order_by("number").first()


def just_cancelled(conversation_id: UUID, command: CancelCommand) -> UUID | None:
    """Return the id of the turn that a person has just cancelled, if no message followed; otherwise None.

    People in a hurry send "stop" twice. The second message gets the same response, even if the client repeats it.
    """
    recent = Turn.objects.filter(ended_at__gte=now_minus(SAID_AGAIN_WITHIN))
    own = recent.filter(conversation=conversation_id).order_by("-number")
    detached = recent.filter(parent__conversation=conversation_id, is_detached=True)
    request = _ended_by_person(own) or _ended_by_person(detached.order_by("queued_at", "pk"))
    if request is None:
        return None
    said_since = Turn.objects.filter(
        conversation_id=conversation_id, queued_at__gt=request.requested_at
    )
    if said_since.exclude(source=REPORT_SOURCE).exists():
        return None
    operations.remember(conversation_id, request.turn_id, command.op_id)
    return request.turn_id


def _ended_by_person(turns: Iterable[Turn]) -> CancelRequest | None:
    """Return the cancel of the first of these turns that was ended by a person."""
    ids = [turn.pk for turn in turns]
    requests = CancelRequest.objects.filter(turn__in=ids, tool_id="", reason__in=BY_PEOPLE).exclude(
        outcome=TurnStatus.COMPLETED
    )
    return min(requests, key=lambda request: ids.index(request.turn_id), default=None)


def cancellation_by(user: User, command: CancelCommand, *, owner_id: Any) -> Cancellation:
    """Return the cancellation that a command requests: attributed to the user if the command comes from the
    conversation's owner, otherwise to an administrator.
    """
    reason = CancelReason.USER if user.pk == owner_id else CancelReason.ADMIN
    return Cancellation(
        reason=reason,
        source=command.source,
        by=user.get_username()[:150],
        note=sanitize_text(command.note, limit=500),
    )


def _once(
    turn_id: UUID, command: CancelCommand, cancel: Callable[..., CancelReceipt]
) -> CancelReceipt:
    """Cancel under the lock of the conversation; a repeated operation returns the same receipt."""
    fresh = reload(command.user)
    try:
        turn_of(fresh, turn_id, permission="turns.cancel_any")
    except TurnNotFound:
        return CancelReceipt(outcome=OpOutcome.NOT_FOUND, turn_id=turn_id)
    with atomic():
        turn = lock_turn_to_cancel(turn_id)
        if turn is None:
            return CancelReceipt(outcome=OpOutcome.NOT_FOUND, turn_id=turn_id)
        if (operation := operations.begin(turn, command.op_id)) is not None:
            return _receipt(turn, operation)
        cancellation = cancellation_by(fresh, command, owner_id=turn.conversation.owner_id)
        receipt = cancel(turn, cancellation=cancellation)
        operations.end(turn, command.op_id, receipt.outcome)
        return receipt


def _cancel_turn(turn: Any, *, cancellation: Cancellation, command: CancelCommand) -> CancelReceipt:
    if command.mode == ONLY_QUEUED:
        return _withdraw(turn, cancellation=cancellation, command=command)
    conversation = turn.conversation
    notifications = cancel_requests.cancel_locked(
        [turn], cancellation, mode=command.mode, by_id=command.user.pk
    )
    if not notifications.cancelled:
        return _receipt(turn, OpOutcome.ALREADY_FINISHED)
    if command.said:
        request = CancelRequest.objects.get(turn=turn, tool_id="")
        acknowledgements.note(request, turn, words=command.said, source=command.source)
    if turn.has_queue_behind:
        behind = conversation.turns.filter(status=TurnStatus.QUEUED, number__gt=turn.number)
        events = cancel_requests.end_queued(
            conversation, list(behind.order_by("number")), cancellation, at=turn.read_at
        )
        notifications.batches.append((conversation.pk, events))
    if turn.status == TurnStatus.CANCELLED:
        notifications.answers += acknowledgements.due_after(turn)
    elif command.mode == "now" and turn.has_children:
        turns = below(turn.pk)
        notifications.add(cancel_all(turns, cancellation, waits=False))
        return _receipt(
            turn,
            OpOutcome.ACCEPTED,
            notifications=notifications,
            descendants=sum(
                child.status in ACTIVE_STATUSES or child.pk in command.obeying for child in turns
            ),
        )
    return _receipt(turn, OpOutcome.ACCEPTED, notifications=notifications)


def _withdraw(turn: Any, *, cancellation: Cancellation, command: CancelCommand) -> CancelReceipt:
    """End a turn only if it is queued; a running turn continues.

    The source records the withdrawal, because the page hides a withdrawn message but keeps one whose turn was cancelled
    in another way.
    """
    if turn.status != TurnStatus.QUEUED:
        return _receipt(turn, OpOutcome.ALREADY_FINISHED)
    cancellation = replace(cancellation, source=CancelSource.WITHDRAWN)
    notifications = cancel_requests.cancel_locked([turn], cancellation, by_id=command.user.pk)
    return _receipt(turn, OpOutcome.ACCEPTED, notifications=notifications)


def _cancel_call(
    turn: Any, *, tool_id: str, cancellation: Cancellation, command: CancelCommand
) -> CancelReceipt:
    calls = {call.call_id: call for call in selectors.calls_of_group(str(turn.pk))}
    call = calls.get(tool_id)
    if call is None:
        return _receipt(turn, OpOutcome.NOT_FOUND, status="")
    if CallStatus(call.status).is_terminal or turn.status not in LIVE_STATUSES:
        return _receipt(turn, OpOutcome.ALREADY_FINISHED, status=call.status)
    notifications = cancel_requests.cancel_call(
        turn,
        tool_id,
        cancellation,
        tool_name=call.tool_name,
        by_id=command.user.pk,
    )
    turns = below(turn.pk, tool_id)
    notifications.add(cancel_all(turns, cancellation))
    return _receipt(
        turn,
        OpOutcome.ACCEPTED,
        status=CallStatus.CANCELLING.value,
        notifications=notifications,
        descendants=reached(turns),
    )


def _receipt(
    turn: Turn,
    outcome: OpOutcome,
    *,
    status: str | None = None,
    notifications: Notifications | None = None,
    descendants: int = 0,
) -> CancelReceipt:
    return CancelReceipt(
        outcome=outcome,
        turn_id=turn.pk,
        status=turn.status if status is None else status,
        descendants=descendants,
        notifications=notifications or Notifications(),
    )
