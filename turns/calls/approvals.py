"""What a turn writes of the questions that people are asked about its calls, and how clients see them (sync ORM)."""

from datetime import datetime

from governance import ApprovalRule, Decision, LiveCall, Question, Verdict, approval_store, registry
from governance.approval_store import ApprovalRow
from governance.sanitize import sanitize_json
from turns.calls import known_hosts
from turns.core import wire
from turns.core.events import ToolApproval, ToolDecision, TurnEvent
from turns.core.turns import TurnStatus
from turns.models import Turn

Events = list[TurnEvent]
DESCRIPTION_LENGTH = 500


class Asking:
    """Puts the question of a call, unless an earlier decision covers it: then that is `earlier`."""

    def __init__(self, call: LiveCall) -> None:
        self._call = call
        self.earlier: Decision | None = None

    def __call__(self, turn: Turn) -> Events:
        """Store it and return its event; nothing is asked any more once the turn is to end."""
        call, question = self._call, self._call.question
        self.earlier = None
        if turn.status == TurnStatus.CANCELLING or question is None:
            return []
        if (earlier := _earlier(call, question, turn)) is not None:
            self.earlier = earlier
            return []
        row = approval_store.open_question(call, group=str(turn.pk))
        if row is None:
            return []
        question.id = str(row.pk)
        return [_question_event(row, call)]


class Concluding:
    """Notes that a question ended without a person's word; `decision` is what counts, a person may have been faster."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision

    def __call__(self, turn: Turn) -> Events:
        """Store it and return its event; a cancel is told with the call's result."""
        row = approval_store.find_question(self.decision.question)
        if row is None:  # nobody was asked
            return []
        is_ours = approval_store.close_question(row, self.decision.verdict)
        self.decision = approval_store.decision_of(row)
        if is_ours and self.decision.verdict is Verdict.EXPIRED:
            return [decision_event(row)]
        return []


def _earlier(call: LiveCall, question: Question, turn: Turn) -> Decision | None:
    """Return the word that lets the call through already: on its host, on its tool, or on both where both are asked about."""
    if question.host and not known_hosts.is_known(question.host, turn=turn):
        return None
    if question.host and question.is_about_host:
        return Decision(verdict=Verdict.APPROVED, remember=True)
    grant = approval_store.grant_for(call)
    return approval_store.decision_of(grant) if grant is not None else None


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
        "description": _description(row),
    }


def _expires_in_ms(row: ApprovalRow, *, at: datetime) -> int | None:
    if row.expires_at is None:
        return None
    return max(round((row.expires_at - at).total_seconds() * 1000), 0)


def _description(row: ApprovalRow) -> str:
    """What the tool says of itself, if it is the one that was shown."""
    tool = registry.get(row.tool_name) if row.tool_name in registry else None
    if tool is None or tool.definition != row.definition:
        return ""
    return tool.description[:DESCRIPTION_LENGTH]
