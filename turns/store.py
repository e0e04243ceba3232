"""Keeps turns until they end: enqueue, claim, cancel what waits; a change of status is a compare-and-set (sync ORM)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef
from django.utils import timezone

from governance import Cancellation, CancelReason, CancelSource
from turns import log
from turns.conf import app_settings
from turns.core.events import EventType, TurnEvent, milliseconds
from turns.core.ports import CancelOrder, ClaimedTurn
from turns.core.turns import LIVE_STATUSES, TurnStatus
from turns.exceptions import QueueIsFull
from turns.models import CancelRequest, Conversation, Message, Process, Turn

TITLE_LENGTH = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """A turn that waits to be claimed; `is_new` is False where the same client id came again."""

    turn: Turn
    is_new: bool
    events: list[log.WireEvent]


def enqueue(
    conversation_id: UUID,
    *,
    text: str,
    source: str,
    client_id: str | None,
    parent: Turn | None = None,
) -> Enqueued:
    """Queue a turn for a user message. Raise `QueueIsFull` beyond the limit of waiting turns (P4)."""
    with transaction.atomic():
        conversation = log.locked(conversation_id)
        if client_id is not None:
            known = Turn.objects.filter(conversation=conversation, client_id=client_id).first()
            if known is not None:
                return Enqueued(turn=known, is_new=False, events=[])
        waiting = Turn.objects.filter(conversation=conversation, status=TurnStatus.QUEUED).count()
        if waiting >= app_settings.MAX_QUEUED:
            raise QueueIsFull
        conversation.last_number += 1
        conversation.title = conversation.title or _title(text)
        conversation.save(update_fields=["last_number", "title"])
        turn = Turn.objects.create(
            conversation=conversation,
            number=conversation.last_number,
            parent=parent,
            agent=conversation.agent,
            user_message=text,
            source=source,
            client_id=client_id,
            turn_timeout_ms=milliseconds(app_settings.TURN_TIMEOUT or None),
            step_limit=app_settings.STEP_LIMIT,
            queued_at=timezone.now(),
        )
        queued = TurnEvent(
            type=EventType.TURN_QUEUED,
            payload={"user_message": text, "client_id": client_id, "source": source},
        )
        return Enqueued(turn=turn, is_new=True, events=log.append(conversation, turn.pk, queued))


def claim_next(
    conversation_id: UUID, *, process: Process
) -> tuple[ClaimedTurn, list[log.WireEvent]] | None:
    """Make the oldest queued turn of an idle conversation running and owned by `process`; None if there is none.

    Two processes may try at once: the unique index on the live turn of a conversation lets one through.
    """
    try:
        with transaction.atomic():
            conversation = log.locked(conversation_id)
            if conversation.turns.filter(status__in=LIVE_STATUSES).exists():
                return None
            turn = conversation.turns.filter(status=TurnStatus.QUEUED).order_by("number").first()
            if turn is None:
                return None
            return _claim(conversation, turn, process=process)
    except (IntegrityError, Conversation.DoesNotExist):
        return None


def open_orders(turn_ids: Sequence[UUID]) -> list[CancelOrder]:
    """Return the unsettled cancel requests of these turns, oldest first: one query for all."""
    requests = CancelRequest.objects.filter(turn_id__in=turn_ids, settled_at=None).order_by(
        "requested_at"
    )
    return [
        CancelOrder(
            turn_id=request.turn_id,
            tool_id=request.tool_id,
            mode=request.mode,
            cancellation=cancellation_of(request),
        )
        for request in requests
    ]


def wish_of(turn: Turn) -> Cancellation | None:
    """Return the stored wish to end a turn now, if there is one."""
    request = CancelRequest.objects.filter(turn=turn, tool_id="", mode="now").first()
    return cancellation_of(request) if request else None


def waiting_conversations(*, limit: int = 100) -> list[UUID]:
    """Return conversations that have a queued turn and no live one."""
    live = Turn.objects.filter(conversation=OuterRef("conversation"), status__in=LIVE_STATUSES)
    queued = Turn.objects.filter(status=TurnStatus.QUEUED).filter(~Exists(live))
    return list(queued.order_by("queued_at").values_list("conversation_id", flat=True)[:limit])


def cancel_queued(
    conversation: Conversation, turns: Sequence[Turn], cancellation: Cancellation, *, at: datetime
) -> list[log.WireEvent]:
    """End turns of a locked conversation that have not begun: nothing of them runs (C7). Return their events."""
    events: list[log.WireEvent] = []
    for turn in turns:
        ended = Turn.objects.filter(pk=turn.pk, status=TurnStatus.QUEUED).update(
            status=TurnStatus.CANCELLED,
            ended_at=at,
            duration_ms=0,
            ended_by_reason=cancellation.reason.value,
            ended_by_source=cancellation.source.value,
            ended_by_name=cancellation.by,
        )
        if ended:
            events += log.append(
                conversation,
                turn.pk,
                abort_event(cancellation),
                TurnEvent(
                    type=EventType.TURN_END,
                    payload={"status": TurnStatus.CANCELLED.value, "duration_ms": 0, "usage": {}},
                ),
                at=at,
            )
    return events


def settle_requests(
    turn_id: UUID, *, outcome: str, at: datetime, tool_id: str | None = None
) -> None:
    """Note that what was asked has come true: of one call, or of the turn with all that is still open."""
    requests = CancelRequest.objects.filter(turn_id=turn_id, settled_at=None)
    if tool_id is not None:
        requests = requests.filter(tool_id=tool_id)
    for request in requests:
        passed = round((at - request.requested_at).total_seconds() * 1000)
        request.settled_at, request.settled_ms, request.outcome = at, max(passed, 0), outcome
        request.save(update_fields=["settled_at", "settled_ms", "outcome"])


def abort_event(cancellation: Cancellation) -> TurnEvent:
    """Return the event that says why a turn is ended before its time."""
    return TurnEvent(
        type=EventType.TURN_ABORT,
        payload={
            "reason": cancellation.reason.value,
            "source": cancellation.source.value,
            "by": cancellation.by,
        },
    )


def cancellation_of(request: CancelRequest) -> Cancellation:
    """Return a stored request as a value."""
    return Cancellation(
        reason=CancelReason(request.reason),
        source=CancelSource(request.source),
        by=request.by_name,
        note=request.note,
    )


def add_message(
    conversation: Conversation,
    turn: Turn,
    *,
    role: str,
    content: list[dict[str, Any]],
    at: datetime,
    **fields: Any,
) -> Message:
    """Append a message to a locked conversation."""
    conversation.last_position += 1
    conversation.save(update_fields=["last_position"])
    return Message.objects.create(
        conversation=conversation,
        turn=turn,
        position=conversation.last_position,
        role=role,
        content=content,
        at=at,
        **fields,
    )


def _claim(
    conversation: Conversation, turn: Turn, *, process: Process
) -> tuple[ClaimedTurn, list[log.WireEvent]]:
    at = timezone.now()
    changed = Turn.objects.filter(pk=turn.pk, status=TurnStatus.QUEUED).update(
        status=TurnStatus.RUNNING, owner=process, epoch=F("epoch") + 1, started_at=at
    )
    if not changed:
        raise IntegrityError("the turn was taken meanwhile")
    add_message(
        conversation,
        turn,
        role="user",
        content=[{"type": "text", "text": turn.user_message}],
        at=at,
    )
    claimed = ClaimedTurn(
        id=turn.pk,
        conversation_id=turn.conversation_id,
        epoch=turn.epoch + 1,
        agent=turn.agent,
        user_message=turn.user_message,
        turn_timeout=None if turn.turn_timeout_ms is None else turn.turn_timeout_ms / 1000,
        step_limit=turn.step_limit,
    )
    started = TurnEvent(
        type=EventType.TURN_START,
        payload={
            "user_message": turn.user_message,
            "client_id": turn.client_id,
            "agent": turn.agent,
            "parent_turn_id": str(turn.parent_id) if turn.parent_id else None,
            "turn_timeout_ms": turn.turn_timeout_ms,
        },
    )
    return claimed, log.append(conversation, turn.pk, started, at=at)


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE_LENGTH else f"{line[: TITLE_LENGTH - 1].rstrip()}…"
