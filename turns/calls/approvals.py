"""Stores the approvals that a turn's calls wait for, and shows them to clients (sync ORM)."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from typing_extensions import TypedDict

from governance import (
    ApprovalRule,
    Decision,
    LiveCall,
    Question,
    Verdict,
    approval_store,
    recorder,
    registry,
    shortened,
)
from governance.approval_store import ApprovalRow
from governance.sanitize import sanitize_json
from turns.calls import known_hosts
from turns.core import wire
from turns.core.events import TurnEvent
from turns.core.requests import PendingDecision
from turns.core.tool_events import ToolApproval, ToolDecision
from turns.core.turns import TurnStatus
from turns.models import Turn

Events = list[TurnEvent]
DESCRIPTION_LENGTH = 500


class _ToolTexts(TypedDict):
    description: str
    question: str


def ask(turn: Turn, call: LiveCall) -> tuple[Events, Decision | None]:
    """Put the question of a call, unless an earlier decision covers it: return its event, and that decision.

    Nothing is asked any more once the turn is to end.
    """
    question = call.question
    if turn.status == TurnStatus.CANCELLING or question is None:
        return [], None
    if (earlier := _earlier(call, question, turn)) is not None:
        recorder.record_earlier_approval(group=str(turn.pk), call_id=call.id, by=earlier.by)
        return [], earlier
    row = approval_store.open_question(call, group=str(turn.pk))
    if row is None:
        return [], None
    question.id = str(row.pk)
    return [_question_event(row, call)], None


def conclude(_turn: Turn, decision: Decision) -> tuple[Events, Decision]:
    """Store that a question ended without a person's word; return its event, and the decision that counts.

    A person may have been faster. A cancel is told with the call's result.
    """
    row = approval_store.find_question(decision.question)
    if row is None:  # nobody was asked
        return [], decision
    is_ours = approval_store.close_question(row, decision.verdict)
    decision = approval_store.decision_of(row)
    has_expired = is_ours and decision.verdict is Verdict.EXPIRED
    return [decision_event(row)] if has_expired else [], decision


def _earlier(call: LiveCall, question: Question, turn: Turn) -> Decision | None:
    """Return the word that lets the call through already. It is on its host, on its tool, or on both where both are asked about."""
    if question.host and not known_hosts.is_known(question.host, turn=turn):
        return None
    if question.host and question.is_about_host:
        return Decision(verdict=Verdict.APPROVED, remember=True)
    grant = approval_store.grant_for(call)
    return approval_store.decision_of(grant) if grant is not None else None


def pending(questions: Sequence[str]) -> list[PendingDecision]:
    """Return the decisions on these questions that have been taken; without any question, nothing is read."""
    rows = approval_store.decided_among(questions) if questions else ()
    return [pending_decision(row) for row in rows]


def pending_decision(row: ApprovalRow) -> PendingDecision:
    """Return a decided question as the request that its call is waiting for."""
    return PendingDecision(
        turn_id=UUID(row.group), tool_id=row.call_id, decision=approval_store.decision_of(row)
    )


def decision_event(row: ApprovalRow) -> ToolDecision:
    """Return the event of a question that was decided."""
    return ToolDecision(
        tool_id=row.call_id,
        decision=row.decision,
        by=row.by_name,
        reason=row.reason,
        remember=row.remember,
    )


def describe(row: ApprovalRow, *, at: datetime) -> wire.Question:
    """Return a question as the snapshot and the API show it with its call."""
    return {
        **_terms(row, at=at),
        "decision": row.decision or None,
        "decided_at": row.decided_at.isoformat() if row.decided_at else None,
        "by": row.by_name,
        "reason": row.reason,
        "remember": row.remember,
    }


def _question_event(row: ApprovalRow, call: LiveCall) -> ToolApproval:
    return ToolApproval(
        tool_id=call.id,
        tool_name=call.call.tool_name,
        tool_title=row.tool_title,
        tool_server=row.tool_server,
        input=sanitize_json(dict(call.call.input)),
        position=call.call.position,
        **_terms(row, at=row.requested_at),
    )


def _terms(row: ApprovalRow, *, at: datetime) -> wire.QuestionTerms:
    return {
        "rule": row.rule,
        "requested_at": row.requested_at.isoformat(),
        "expires_at": row.expires_at.isoformat() if row.expires_at else None,
        "expires_in_ms": _expires_in_ms(row, at=at),
        "can_remember": row.rule == ApprovalRule.ONCE_PER_CONVERSATION,
        "host": row.host,
        **_tool_texts(row),
    }


def _expires_in_ms(row: ApprovalRow, *, at: datetime) -> int | None:
    if row.expires_at is None:
        return None
    return max(round((row.expires_at - at).total_seconds() * 1000), 0)


def _tool_texts(row: ApprovalRow) -> _ToolTexts:
    """What the tool says of itself, and asks, if it is the one that was shown."""
    tool = registry.get(row.tool_name) if row.tool_name in registry else None
    if tool is None or tool.definition != row.definition:
        return {"description": "", "question": ""}
    return {
        "description": shortened(tool.description, limit=DESCRIPTION_LENGTH),
        "question": tool.question,
    }
