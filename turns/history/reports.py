"""Reports: the result of a sub-agent's turn, for its parent agent (C10).

The functions here use the synchronous ORM.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from governance import Cancellation, CancelReason, CancelSource, excerpt
from governance.durations import format_duration
from turns.core.texts import SUB_AGENT
from turns.core.turns import TurnStatus
from turns.models import Conversation, Message, Turn
from turns.storage.turn_rows import REPORT_WAITS

REPORT_LENGTH = 20_000

_ENDED = [status.value for status in TurnStatus if status.is_terminal]
# Excluding the parent's status makes SQLite start with the undelivered turns, which are few.
UNDELIVERED = (
    REPORT_WAITS
    & Q(parent__replaced_by=None)
    & ~Q(
        parent__status__in=[
            status.value for status in TurnStatus if status is not TurnStatus.COMPLETED
        ]
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a sub-agent's turn: `text` is its last message, and `reason` says why it did not complete."""

    turn_id: UUID
    conversation_id: UUID
    agent: str
    status: TurnStatus
    text: str
    reason: str = ""
    cancellation: Cancellation | None = None


def report_of(turn: Turn) -> Report:
    status = TurnStatus(turn.status)
    return Report(
        turn_id=turn.pk,
        conversation_id=turn.conversation_id,
        agent=turn.agent,
        status=status,
        text=_last_text(turn),
        reason=_reason(turn),
        cancellation=_cancellation(turn) if status is TurnStatus.CANCELLED else None,
    )


def sentence_of(report: Report) -> str:
    """Return a report as its recipient reads it: how the turn ended, then the text."""
    first = f'The sub-agent "{report.agent}" {report.reason or "has completed its work."}'
    if not report.text:
        return f"{first} It has said nothing."
    lead = "It reports" if report.status is TurnStatus.COMPLETED else "The last that it said"
    return f"{first} {lead}:\n{report.text}"


def undelivered(conversation_id: UUID) -> "QuerySet[Turn, Turn]":
    """Return the ended turns of detached sub-agents whose reports are due to a conversation.

    Reports for a cancelled parent turn are not due, because their work was cancelled too (C7), nor are those for a
    replaced turn.
    """
    return Turn.objects.filter(
        UNDELIVERED, parent__conversation=conversation_id, status__in=_ENDED
    ).order_by("ended_at", "pk")


def take(conversation: Conversation, *, at: datetime) -> list[dict[str, Any]]:
    """Mark the reports that are due to a locked conversation as delivered, each exactly once. Return them as blocks of
    its next message.
    """
    return [
        _block(report_of(turn))
        for turn in undelivered(conversation.pk)
        if Turn.objects.filter(pk=turn.pk, delivered_at=None).update(delivered_at=at)
    ]


def give_back(turns: "QuerySet[Turn, Turn]") -> None:
    """Mark the reports delivered to these turns as undelivered, if they are still due."""
    contents = Message.objects.filter(turn__in=turns, role="user").values_list("content", flat=True)
    reported = [
        block["sub_agent"]["turn_id"]
        for content in contents
        for block in content
        if "sub_agent" in block
    ]
    Turn.objects.filter(pk__in=reported, parent__replaced_by=None).update(delivered_at=None)


def _block(report: Report) -> dict[str, Any]:
    sentence = sentence_of(report)
    return {
        "type": "text",
        "text": f"{SUB_AGENT} {sentence}",
        "sub_agent": {
            "turn_id": str(report.turn_id),
            "conversation_id": str(report.conversation_id),
            "agent": report.agent,
            "status": report.status.value,
            "text": report.text,
        },
    }


def _last_text(turn: Turn) -> str:
    answers = Message.objects.filter(turn=turn, role="assistant").order_by("-position")
    for message in answers.only("content"):
        texts = [
            str(block.get("text", "")).strip()
            for block in message.content
            if block.get("type") == "text"
        ]
        if text := "\n\n".join(filter(None, texts)):
            return excerpt(text, limit=REPORT_LENGTH)
    return ""


def _reason(turn: Turn) -> str:
    match TurnStatus(turn.status):
        case TurnStatus.COMPLETED:
            return ""
        case TurnStatus.TIMED_OUT:
            limit = format_duration(turn.turn_timeout_ms) if turn.turn_timeout_ms else ""
            return f"ran out of its time{f' ({limit})' if limit else ''} and was ended."
        case TurnStatus.CANCELLED:
            return f"was cancelled by {CancelReason(turn.ended_by_reason).row.who}."
        case TurnStatus.FAILED:
            return f"failed: {turn.error_message or 'something went wrong.'}"
        case _:
            return "was interrupted: the server that ran it has stopped. It may have done a part of its work."


def _cancellation(turn: Turn) -> Cancellation:
    return Cancellation(
        reason=CancelReason(turn.ended_by_reason),
        source=CancelSource(turn.ended_by_source),
        by=turn.ended_by_name,
    )
