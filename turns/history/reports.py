"""Reports: what the turn of a sub-agent has come to, for the agent it worked for (C10; sync ORM)."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, Case, Exists, Expression, OuterRef, Q, QuerySet, When

from governance import Cancellation, CancelReason, CancelSource, excerpt
from governance.durations import format_duration
from turns.core.prompt_markers import SUB_AGENT
from turns.core.turns import TurnStatus
from turns.models import Conversation, Message, Turn

REPORT_LENGTH = 20_000

_WAITING = Q(is_detached=True, delivered_at=None, parent__isnull=False)
_ENDED = [status.value for status in TurnStatus if status.is_terminal]
# The parent's status is excluded, not asked for: so SQLite begins with the undelivered turns, which are few.
UNDELIVERED = (
    _WAITING
    & Q(parent__replaced_by=None)
    & ~Q(
        parent__status__in=[
            status.value for status in TurnStatus if status is not TurnStatus.COMPLETED
        ]
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How a sub-agent's turn ended: `text` is what it said last, `reason` a sentence where it did not complete."""

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
    """Return a report as its reader gets it: first how it ended, then what was said."""
    first = f'The sub-agent "{report.agent}" {report.reason or "has completed its work."}'
    if not report.text:
        return f"{first} It has said nothing."
    said = "It reports" if report.status is TurnStatus.COMPLETED else "The last that it said"
    return f"{first} {said}:\n{report.text}"


def undelivered(conversation_id: UUID | Expression | OuterRef) -> "QuerySet[Turn, Turn]":
    """Return the ended turns of detached sub-agents whose reports are still due to a conversation.

    Those of a turn that was cut off are not: their work was cancelled with it (C7). Nor are those of a replaced one.
    """
    return Turn.objects.filter(
        UNDELIVERED, parent__conversation=conversation_id, status__in=_ENDED
    ).order_by("ended_at", "pk")


def are_due(conversation_id: UUID | Expression | OuterRef) -> Case:
    """Return the condition that reports are due to a conversation.

    Where none waits anywhere, as nearly always, it does not go through the turns of the conversation.
    """
    wait = Exists(Turn.objects.filter(_WAITING))
    here = When(wait, then=Exists(undelivered(conversation_id)))
    return Case(here, default=False, output_field=BooleanField())


def take(conversation: Conversation, *, at: datetime) -> list[dict[str, Any]]:
    """Take the reports that are due to a locked conversation, each once, as blocks of its next message."""
    return [
        _block(report_of(turn))
        for turn in undelivered(conversation.pk)
        if Turn.objects.filter(pk=turn.pk, delivered_at=None).update(delivered_at=at)
    ]


def give_back(turns: "QuerySet[Turn, Turn]") -> None:
    """Let what these turns were told be told again, as far as it is still due."""
    said = Message.objects.filter(turn__in=turns, role="user").values_list("content", flat=True)
    told = [
        block["sub_agent"]["turn_id"]
        for content in said
        for block in content
        if "sub_agent" in block
    ]
    Turn.objects.filter(pk__in=told, parent__replaced_by=None).update(delivered_at=None)


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
    said = Message.objects.filter(turn=turn, role="assistant").order_by("-position")
    for message in said.only("content"):
        if text := "\n\n".join(_texts(message)):
            return excerpt(text, limit=REPORT_LENGTH)
    return ""


def _texts(message: Message) -> Iterator[str]:
    for block in message.content:
        if block.get("type") == "text" and (text := str(block.get("text", "")).strip()):
            yield text


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
