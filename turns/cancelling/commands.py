"""Stores requests to cancel: the row is the truth, whatever carries the news is a hint (C2, C12; sync ORM)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID

from django.db import transaction

from governance import CallStatus, Cancellation, CancelReason, CancelSource, selectors
from governance.db_clock import database_now, now_minus
from governance.sanitize import sanitize_text
from turns.cancelling import cancel_requests
from turns.cancelling.descendants import DescendantsCancelled, cancel_descendants
from turns.core.turns import ACTIVE_STATUSES, BY_PEOPLE, LIVE_STATUSES, TurnStatus
from turns.events import acknowledgements, log
from turns.events.notifications import Notifications
from turns.exceptions import TurnNotFound
from turns.models import CancelRequest, Conversation, Turn
from turns.queueing.queue import REPORT_SOURCE, cancel_queued
from turns.storage import operations
from turns.storage.access import User, reload, turn_for
from turns.storage.operations import OpOutcome

SAID_AGAIN_WITHIN = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelReceipt:
    """The answer to a request to cancel: what became of it, and the status of the turn (or call) now.

    `descendants` is how many turns of sub-agents were asked to stop with it; where some were left out, `cancel_left_out`
    asks them, too. `notifications` is what is to be told of all that.
    """

    outcome: OpOutcome
    turn_id: UUID
    status: str = ""
    descendants: int = 0
    has_left_out: bool = False
    notifications: Notifications = field(default_factory=Notifications)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelCommand:
    """Who wants to cancel, how, and why; `said` is the cancel word, where it was one."""

    user: User
    source: CancelSource
    note: str = ""
    mode: str = "now"
    op_id: str | None = None
    said: str = ""


def request_turn_cancel(turn_id: UUID, command: CancelCommand) -> CancelReceipt:
    """Store the wish to end a turn, and empty the queue behind it in the same transaction (C5, C7).

    What is queued is ended first, so that nothing of it can start in between. A queued turn itself is ended at once.
    """
    try:
        turn = turn_for(command.user, turn_id, permission="turns.cancel_any")
    except TurnNotFound:
        return CancelReceipt(outcome=OpOutcome.NOT_FOUND, turn_id=turn_id)
    with transaction.atomic():
        if (known := operations.known(turn, command.op_id)) is not None:
            return _receipt(turn, known)
        conversation = log.locked(turn.conversation_id)
        turn.refresh_from_db(fields=["status", "owner"])
        receipt = _cancel_turn(conversation, turn, command)
        operations.remember(conversation.pk, turn.pk, command.op_id, receipt.outcome)
    return receipt


def cancel_left_out(turn_id: UUID) -> DescendantsCancelled:
    """Ask the sub-agents to stop whose conversations were being written when the cancel of this turn was stored.

    Each by itself, and outside of the transaction that has accepted the cancel: nobody waits for them.
    """
    turn = Turn.objects.filter(pk=turn_id).first()
    cancellation = None if turn is None else cancel_requests.stored(turn)
    if cancellation is None:
        return DescendantsCancelled()
    return cancel_descendants(turn_id, cancellation)


def request_call_cancel(turn_id: UUID, tool_id: str, command: CancelCommand) -> CancelReceipt:
    """Store the wish to end one call; the others and the turn go on (C3)."""
    try:
        turn = turn_for(command.user, turn_id, permission="turns.cancel_any")
    except TurnNotFound:
        return CancelReceipt(outcome=OpOutcome.NOT_FOUND, turn_id=turn_id)
    with transaction.atomic():
        if (known := operations.known(turn, command.op_id)) is not None:
            return _receipt(turn, known)
        log.locked(turn.conversation_id)
        turn.refresh_from_db(fields=["status", "owner"])
        outcome, status = _cancel_call(turn, tool_id, command)
        cascade = (
            _cancel_started_by(turn, tool_id, command) if outcome is OpOutcome.ACCEPTED else None
        )
        operations.remember(turn.conversation_id, turn.pk, command.op_id, outcome)
    turn.status = status
    return _receipt(turn, outcome, cascade=cascade)


def cancel_by_rule(
    conversation: Conversation, turns: Sequence[Turn], cancellation: Cancellation
) -> Notifications:
    """Store that these turns of a locked conversation end, which no person has asked for: once for each.

    Those that wait are ended here, the live one by its owner, which is to be told.
    """
    at = database_now()
    events: list[log.WireEvent] = []
    owner_ids: set[UUID] = set()
    for turn in turns:
        turn.refresh_from_db(fields=["status", "owner"])  # it may have begun, or ended, by now
        if turn.status not in ACTIVE_STATUSES:
            continue
        cancel_requests.write(turn, cancellation)
        if turn.status == TurnStatus.QUEUED:
            events += cancel_queued(conversation, [turn], cancellation, at=at)
            cancel_requests.settle(turn.pk, outcome=TurnStatus.CANCELLED.value, at=at)
            continue
        Turn.objects.filter(pk=turn.pk, status=TurnStatus.RUNNING).update(
            status=TurnStatus.CANCELLING
        )
        if turn.owner_id is not None:
            owner_ids.add(turn.owner_id)
    return Notifications(batches=[(conversation.pk, events)], owner_ids=owner_ids)


def request_detached_cancel(conversation_id: UUID, command: CancelCommand) -> list[CancelReceipt]:
    """Store the wish to end every sub-agent that still works for a conversation in which nothing else goes on."""
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
        operations.remember(conversation_id, first, command.op_id, OpOutcome.ACCEPTED)
        accepted[0].notifications.answers += _note_detached(conversation_id, first, command)
    return accepted


def _note_detached(conversation_id: UUID, turn_id: UUID, command: CancelCommand) -> list[int]:
    """The word was said in another conversation than the ended turns are in: its answer is shown under the latest turn."""
    request = CancelRequest.objects.get(turn=turn_id, tool_id="")
    last = Turn.objects.filter(conversation=conversation_id).order_by("-number").first()
    if last is None or not command.said:
        return []
    return [acknowledgements.note(request, last, said=command.said, source=command.source)]


def active_turn(conversation_id: UUID) -> Turn | None:
    """Return the turn that a cancel word means: the live one, else the first that waits."""
    active = Turn.objects.filter(conversation_id=conversation_id, status__in=ACTIVE_STATUSES)
    return active.order_by("number").first()


def just_cancelled(conversation_id: UUID, command: CancelCommand) -> UUID | None:
    """Return the turn that a person's cancel has ended a moment now_minus, if nothing was said since; None if there is none.

    Who is in a hurry says "stop" twice. The second one has the answer of the first, also when it is sent again.
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
    operations.remember(conversation_id, request.turn_id, command.op_id, OpOutcome.ACCEPTED)
    return request.turn_id


def _ended_by_person(turns: Iterable[Turn]) -> CancelRequest | None:
    """Return the cancel of the first of these turns that a person has ended."""
    ids = [turn.pk for turn in turns]
    requests = CancelRequest.objects.filter(turn__in=ids, tool_id="", reason__in=BY_PEOPLE).exclude(
        outcome=TurnStatus.COMPLETED
    )
    return min(requests, key=lambda request: ids.index(request.turn_id), default=None)


def cancellation_by(command: CancelCommand, *, owner_id: object) -> Cancellation:
    """Return a wish as a value: of the conversation's owner it is the user's, of anybody else an administrator's."""
    fresh = reload(command.user)
    reason = CancelReason.USER if fresh.pk == owner_id else CancelReason.ADMIN
    return Cancellation(
        reason=reason,
        source=command.source,
        by=fresh.get_username()[:150],
        note=sanitize_text(command.note, limit=500),
    )


def _cancel_turn(conversation: Conversation, turn: Turn, command: CancelCommand) -> CancelReceipt:
    if turn.status not in ACTIVE_STATUSES:
        return _receipt(turn, OpOutcome.ALREADY_FINISHED)
    at = database_now()
    cancellation = cancellation_by(command, owner_id=conversation.owner_id)
    queued = Turn.objects.filter(conversation_id=turn.conversation_id, status=TurnStatus.QUEUED)
    if turn.status == TurnStatus.QUEUED:
        queued = queued.filter(number__gte=turn.number)
    waiting = list(queued.order_by("number"))
    request = cancel_requests.write(turn, cancellation, by_id=command.user.pk, mode=command.mode)
    if command.said:
        acknowledgements.note(request, turn, said=command.said, source=command.source)
    cascade = DescendantsCancelled()
    events = cancel_queued(conversation, waiting, cancellation, at=at)
    if turn.status == TurnStatus.QUEUED:
        cancel_requests.settle(turn.pk, outcome=TurnStatus.CANCELLED.value, at=at)
        turn.status = TurnStatus.CANCELLED
    elif command.mode == "now":
        Turn.objects.filter(pk=turn.pk, status=TurnStatus.RUNNING).update(
            status=TurnStatus.CANCELLING
        )
        turn.status = TurnStatus.CANCELLING
        cascade = cancel_descendants(turn.pk, cancellation, waits=False)
    receipt = _receipt(turn, OpOutcome.ACCEPTED, events=events, cascade=cascade)
    if turn.status == TurnStatus.CANCELLED:
        receipt.notifications.answers += acknowledgements.after(turn)
    return receipt


def _cancel_started_by(turn: Turn, tool_id: str, command: CancelCommand) -> DescendantsCancelled:
    """What the call has started goes with it."""
    cancellation = cancellation_by(command, owner_id=turn.conversation.owner_id)
    return cancel_descendants(turn.pk, cancellation, tool_id=tool_id)


def _cancel_call(turn: Turn, tool_id: str, command: CancelCommand) -> tuple[OpOutcome, str]:
    row = next(
        (call for call in selectors.calls_of_group(str(turn.pk)) if call.call_id == tool_id), None
    )
    if row is None:
        return OpOutcome.NOT_FOUND, ""
    if CallStatus(row.status).is_terminal or turn.status not in LIVE_STATUSES:
        return OpOutcome.ALREADY_FINISHED, row.status
    cancellation = cancellation_by(command, owner_id=turn.conversation.owner_id)
    cancel_requests.write(
        turn,
        cancellation,
        by_id=command.user.pk,
        mode=command.mode,
        tool_id=tool_id,
        running=[row.tool_name],
    )
    return OpOutcome.ACCEPTED, CallStatus.CANCELLING.value


def _receipt(
    turn: Turn,
    outcome: OpOutcome,
    *,
    events: list[log.WireEvent] | None = None,
    cascade: DescendantsCancelled | None = None,
) -> CancelReceipt:
    cascade = cascade or DescendantsCancelled()
    notifications = Notifications(batches=[(turn.conversation_id, events)] if events else [])
    notifications.add(cascade)
    if outcome is OpOutcome.ACCEPTED and turn.owner_id is not None:
        notifications.owner_ids.add(turn.owner_id)
    return CancelReceipt(
        outcome=outcome,
        turn_id=turn.pk,
        status=turn.status,
        descendants=cascade.count,
        has_left_out=cascade.has_left_out,
        notifications=notifications,
    )
