"""Serializers that return turns and messages in wire format."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from governance import CallStatus
from turns.calls import serializers
from turns.core import wire
from turns.core.events import TurnEndsAfterStep, TurnError
from turns.core.turns import LIVE_STATUSES
from turns.events import acknowledgements
from turns.models import Conversation, Event, Message, Turn


def active_turn(turn: Turn, calls: Iterable[wire.Call], *, at: datetime) -> wire.ActiveTurn:
    open_calls = [call for call in calls if not CallStatus(call["status"]).is_terminal]
    started_at = turn.started_at or turn.queued_at
    ended_at = turn.ended_at or at
    return {
        "turn_id": str(turn.pk),
        "conversation_id": str(turn.conversation_id),
        "agent": turn.agent,
        "started_at": started_at.isoformat(),
        "elapsed_ms": max(round((ended_at - started_at).total_seconds() * 1000), 0)
        if turn.started_at
        else 0,
        "status": turn.status,
        "tool_call_count": turn.tool_call_count,
        "current_tools": [serializers.current(call) for call in open_calls],
        "parent_turn_id": str(turn.parent_id) if turn.parent_id else None,
        "owner": str(turn.owner) if turn.owner else None,
    }


def live_turn(turn: Any, calls: list[wire.Call], *, at: datetime) -> wire.LiveTurn:
    """Return an active turn in wire format; its row must be annotated with `ends_after_step`."""
    streaming = (
        Message.objects.filter(turn=turn, is_streaming=True).first()
        if turn.status in LIVE_STATUSES
        else None
    )
    return {
        **active_turn(turn, calls, at=at),
        "user_message": turn.user_message,
        "attachments": turn.attachments,
        "source": turn.source,
        "client_id": turn.client_id,
        "number": turn.number,
        "version": turn.version,
        "turn_timeout_ms": turn.turn_timeout_ms,
        "calls": calls,
        "partial_text": text_of(streaming.content) if streaming else "",
        "notice": _notice(turn, at=at) if turn.status in LIVE_STATUSES else None,
        "prompt_change": turn.prompt_change or None,
        "summary": turn.summary,
        "ends_after_step": turn.ends_after_step,
        "usage": turn.usage,
    }


def _notice(turn: Turn, *, at: datetime) -> wire.Notice | None:
    """Return the turn's notice if it is still the last event, with the remaining wait."""
    events = Event.objects.filter(conversation=turn.conversation_id, turn=turn)
    last = events.exclude(type=TurnEndsAfterStep.type).order_by("-seq").first()
    if last is None or last.type != TurnError.type:
        return None
    notice: wire.Notice = last.payload.copy()
    if "wait_ms" in notice:
        elapsed = round((at - last.at) / timedelta(milliseconds=1))
        notice["wait_ms"] = max(0, notice["wait_ms"] - elapsed)
    return notice


def ended_turns(turns: Sequence[Turn]) -> list[wire.EndedTurn]:
    """Return ended turns in wire format, for clients that connect later."""
    answers = acknowledgements.of_turns(turn.pk for turn in turns)
    notices = _notices(turn.pk for turn in turns if not turn.error_code)
    return [
        {
            **_facts(turn),
            "acknowledgements": answers.get(turn.pk, []),
            "notice": notices.get(turn.pk),
        }
        for turn in turns
    ]


def _notices(turn_ids: Iterable[UUID]) -> dict[UUID, wire.Notice]:
    """Return the last notice of each turn, leaving out notices about retries."""
    events = Event.objects.filter(turn__in=list(turn_ids), type=TurnError.type).order_by("seq")
    return {event.turn_id: event.payload for event in events if "wait_ms" not in event.payload}


def _facts(turn: Turn) -> wire.TurnFacts:
    return {
        "turn_id": str(turn.pk),
        "number": turn.number,
        "version": turn.version,
        "replaced_by": str(turn.replaced_by_id) if turn.replaced_by_id else None,
        "agent": turn.agent,
        "status": turn.status,
        "started": turn.started_at is not None,
        "user_message": turn.user_message,
        "attachments": turn.attachments,
        "source": turn.source,
        "ended_by": serializers.ended_by(turn),
        "ended_by_reason": turn.ended_by_reason,
        "ended_by_source": turn.ended_by_source,
        "error_code": turn.error_code or None,
        "error_message": turn.error_message or None,
        "prompt_change": turn.prompt_change or None,
        "summary": turn.summary,
        "duration_ms": turn.duration_ms,
        "usage": turn.usage,
    }


def message(row: Message) -> wire.StoredMessage:
    result: wire.StoredMessage = {
        "id": row.pk,
        "turn_id": str(row.turn_id),
        "position": row.position,
        "step": row.step,
        "role": row.role,
        "content": row.content,
        "interrupted": row.interrupted,
        "at": row.at.isoformat(),
    }
    return {**result, "thoughts": row.thoughts} if row.thoughts else result


def parked(conversation: Conversation) -> wire.Parked | None:
    if conversation.parked_at is None:
        return None
    return {"at": conversation.parked_at.isoformat(), "reason": conversation.parked_reason}


def text_of(content: list[dict[str, Any]]) -> str:
    return "".join(block.get("text", "") for block in content if block.get("type") == "text")
