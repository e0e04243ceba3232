"""Stores the approvals that calls wait for, and serializes them for clients.

The functions here use the synchronous ORM.
"""

import re
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
from turns.core import wire
from turns.core.events import ToolAnswer, ToolApproval, ToolDecision, ToolQuestion, TurnEvent
from turns.core.turns import SAID_BY_PEOPLE, PendingDecision, TurnStatus
from turns.models import Turn

Events = list[TurnEvent]
DESCRIPTION_LENGTH = 500
_ACTIONS = {Verdict.APPROVED.value: "accept", Verdict.DENIED.value: "decline"}


class _ToolTexts(TypedDict):
    description: str
    question: str


def ask(turn: Turn, call: LiveCall) -> tuple[Events, Decision | None]:
    """Ask a person about a call unless an earlier decision covers it; return the event, or that decision.

    No question is stored if the turn is being cancelled.
    """
    question = call.question
    if turn.status == TurnStatus.CANCELLING or question is None:
        return [], None
    if question.form is not None:
        return _ask_form(turn, call, question), None
    if (earlier := _earlier(call, question, turn)) is not None:
        recorder.record_earlier_approval(group=str(turn.pk), call_id=call.id, by=earlier.by)
        return [], earlier
    row = approval_store.open_question(call, group=str(turn.pk))
    if row is None:
        return [], None
    question.id = str(row.pk)
    return [_question_event(row, call)], None


def _ask_form(turn: Turn, call: LiveCall, question: Question) -> Events:
    row = approval_store.open_form(call, group=str(turn.pk))
    if row is None:
        return []
    question.id = str(row.pk)
    return [
        ToolQuestion(
            tool_id=call.id,
            tool_name=call.call.tool_name,
            **describe_form(row, at=row.requested_at),
        )
    ]


def conclude(_turn: Turn, decision: Decision) -> tuple[Events, Decision]:
    """Record that a question ended without a decision by a person; return the event and the effective decision.

    If a person's decision is already stored, it is the effective one. A cancel is reported with the call's result.
    """
    row = approval_store.find_question(decision.question)
    if row is None:  # there was no question
        return [], decision
    is_ours = approval_store.close_question(row, decision.verdict)
    decision = approval_store.decision_of(row)
    if row.form is not None:
        return [answer_event(row)] if is_ours else [], decision
    has_expired = is_ours and decision.verdict is Verdict.EXPIRED
    return [decision_event(row)] if has_expired else [], decision


def _earlier(call: LiveCall, question: Question, turn: Turn) -> Decision | None:
    """Return the earlier decision that allows the call: for its host, its tool, or both if both need approval."""
    if question.host and not is_known_host(question.host, turn=turn):
        return None
    if question.host and question.is_about_host:
        return Decision(verdict=Verdict.APPROVED, remember=True)
    grant = approval_store.grant_for(call)
    return approval_store.decision_of(grant) if grant is not None else None


def pending(questions: Sequence[str]) -> list[PendingDecision]:
    """Return the decisions that have been made on these questions."""
    rows = approval_store.decided_among(questions) if questions else ()
    return [pending_decision(row) for row in rows]


def pending_decision(row: ApprovalRow) -> PendingDecision:
    """Return the decision on a question as a request to the turn's owner."""
    return PendingDecision(
        turn_id=UUID(row.group), tool_id=row.call_id, decision=approval_store.decision_of(row)
    )


def answer_event(row: ApprovalRow) -> ToolAnswer:
    action = _ACTIONS.get(row.decision, "cancel")
    return ToolAnswer(
        tool_id=row.call_id,
        tool_name=row.tool_name,
        question_id=str(row.pk),
        action=action,
        by=row.by_name,
    )


def event_of(row: ApprovalRow) -> ToolDecision | ToolAnswer:
    """Return the event that announces a decision."""
    return decision_event(row) if row.form is None else answer_event(row)


def decision_event(row: ApprovalRow) -> ToolDecision:
    return ToolDecision(
        tool_id=row.call_id,
        decision=row.decision,
        by=row.by_name,
        reason=row.reason,
        remember=row.remember,
    )


def describe(row: ApprovalRow, *, at: datetime) -> wire.Question:
    """Return a question as snapshots and the API show it."""
    return {
        **_terms(row, at=at),
        "decision": row.decision or None,
        "decided_at": row.decided_at.isoformat() if row.decided_at else None,
        "by": row.by_name,
        "reason": row.reason,
        "remember": row.remember,
    }


def describe_form(row: ApprovalRow, *, at: datetime) -> wire.CallForm:
    """Return the open form of a call as events and snapshots show it."""
    return {
        "question_id": str(row.pk),
        "tool_title": row.tool_title,
        "tool_server": row.tool_server,
        "form": approval_store.form_of(row),
        "requested_at": row.requested_at.isoformat(),
        "expires_at": row.expires_at.isoformat() if row.expires_at else None,
        "expires_in_ms": _expires_in_ms(row, at=at),
    }


def _question_event(row: ApprovalRow, call: LiveCall) -> ToolApproval:
    return ToolApproval(
        tool_id=call.id,
        tool_name=call.call.tool_name,
        tool_title=row.tool_title,
        tool_server=row.tool_server,
        input=call.call.input,
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
    """Return the tool's description and question, if it is still the tool that was shown."""
    tool = registry.get(row.tool_name) if row.tool_name in registry else None
    if tool is None or tool.definition != row.definition:
        return {"description": "", "question": ""}
    return {
        "description": shortened(tool.description, limit=DESCRIPTION_LENGTH),
        "question": tool.question,
    }


def is_known_host(host: str, *, turn: Turn) -> bool:
    """Return whether the person has allowed or mentioned `host` here; for a sub-agent, in the root conversation."""
    conversation_id = (turn.root or turn).conversation_id
    scopes = {str(turn.conversation_id), str(conversation_id)}
    if approval_store.has_allowed(host, scopes=scopes):
        return True
    mentions = Turn.objects.filter(
        conversation_id=conversation_id,
        parent=None,
        source__in=SAID_BY_PEOPLE,
        replaced_by=None,
        user_message__icontains=host,
    )
    return any(is_named_in(text, host) for text in mentions.values_list("user_message", flat=True))


def is_named_in(text: str, host: str) -> bool:
    """Return whether a text mentions exactly this host, and not only a parent domain, a subdomain or a longer name."""
    pattern = rf"(?<![\w.@-])(?:www\.)?{re.escape(host)}(?![\w-]|\.\w)"
    return re.search(pattern, text, re.IGNORECASE) is not None
