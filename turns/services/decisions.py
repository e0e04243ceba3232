"""Takes the decisions of people on calls that wait for one. Each is decided once, and seen by everybody (D2, D4)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from django.db import transaction

from governance import Verdict, approval_store, selectors
from governance.approval_store import ApprovalRow, HumanDecision
from governance.db import run_in_db_thread
from governance.db_clock import database_now
from turns.calls.approvals import decision_event, pending_decision
from turns.core.requests import PendingRequest
from turns.core.turns import TurnStatus
from turns.events import log, sinks
from turns.exceptions import TurnNotFound
from turns.models import CancelRequest, Turn
from turns.processes.background import shielded
from turns.running import runtime
from turns.storage import operations
from turns.storage.access import User, reload, turn_for
from turns.storage.operations import OpOutcome

PERMISSION = "turns.decide_any"
Decided = Literal["approve", "deny"]

_VERDICTS = {"approve": Verdict.APPROVED, "deny": Verdict.DENIED}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionReceipt:
    """The answer to a decision: what became of it, and how the question stands now.

    `status` is `approved`, `denied`, `expired`, `cancelled` or `interrupted`. Of a call that nobody was asked about it
    is the call's own.
    """

    outcome: OpOutcome
    status: str = ""
    conversation_id: UUID | None = None
    owner_id: UUID | None = None
    events: list[log.WireEvent] = field(default_factory=list)
    requests: Sequence[PendingRequest] = ()


@shielded
async def decide_tool(
    *,
    turn_id: UUID,
    tool_id: str,
    user: User,
    decision: Decided,
    remember: Literal["conversation"] | None = None,
    reason: str = "",
    op_id: str | None = None,
    question: str = "",
) -> DecisionReceipt:
    """Approve or deny a call that waits for a person. It is stored when this returns, and obeyed at once by the turn's owner.

    It is for the conversation's owner, and for staff with `turns.decide_any`. `remember` lets the tool's later calls
    through too, where its rule is once per conversation. Where it is always, each call is asked about. The first
    decision counts; a later one is told how it stands (`ALREADY_FINISHED`). The same `op_id` has the same answer.
    A decision on a `question` counts for that one alone: the call may have been asked about something else since.
    """
    receipt = await _decide(
        turn_id, tool_id, user, decision, remember is not None, reason, op_id, question
    )
    if receipt.conversation_id is not None:
        await sinks.publish(receipt.conversation_id, receipt.events)
        if receipt.requests and receipt.owner_id is not None:
            await runtime.notify_owner(receipt.owner_id, receipt.requests)
    return receipt


@run_in_db_thread
def _decide(
    turn_id: UUID,
    tool_id: str,
    user: User,
    decision: Decided,
    remember: bool,  # noqa: FBT001 - a door passes what it was given, in order
    reason: str,
    op_id: str | None,
    question: str,
) -> DecisionReceipt:
    try:
        turn = turn_for(user, turn_id, permission=PERMISSION)
    except TurnNotFound:
        return DecisionReceipt(outcome=OpOutcome.NOT_FOUND)
    word = HumanDecision(
        verdict=_VERDICTS[decision], by=reload(user), reason=reason, remember=remember
    )
    with transaction.atomic():
        conversation = log.locked(turn.conversation_id)
        turn.refresh_from_db(fields=["status", "owner"])
        changed: list[ApprovalRow] = []
        outcome = operations.begin(turn, op_id)
        if outcome is None:
            outcome, changed = _answer(turn, tool_id, word, question=question)
            operations.end(turn, op_id, outcome)
        events = log.append(conversation, turn.pk, *map(decision_event, changed))
        return DecisionReceipt(
            outcome=outcome,
            status=_status(turn, tool_id),
            conversation_id=conversation.pk,
            owner_id=turn.owner_id,
            events=events,
            requests=[pending_decision(question) for question in changed],
        )


def _answer(
    turn: Turn, tool_id: str, word: HumanDecision, *, question: str
) -> tuple[OpOutcome, list[ApprovalRow]]:
    """Answer the latest question of a call with a person's word, if it is the one that was meant."""
    row = approval_store.latest_question(group=str(turn.pk), call_id=tool_id)
    if row is None:
        return _unasked(turn, tool_id), []
    if question not in ("", str(row.pk)):
        return OpOutcome.ALREADY_FINISHED, []
    return _apply(turn, row, word)


def _unasked(turn: Turn, tool_id: str) -> OpOutcome:
    is_known = selectors.has_call(str(turn.pk), tool_id)
    return OpOutcome.ALREADY_FINISHED if is_known else OpOutcome.NOT_FOUND


def _apply(
    turn: Turn, row: ApprovalRow, word: HumanDecision
) -> tuple[OpOutcome, list[ApprovalRow]]:
    """Let a person's word count if the question is open; return the questions that were decided by it."""
    if row.decision:
        if row.decision == Verdict.EXPIRED and word.verdict is Verdict.DENIED:
            approval_store.record_late_denial(row, word)
        return OpOutcome.ALREADY_FINISHED, []
    if _is_being_cancelled(turn, row):
        return OpOutcome.ALREADY_FINISHED, []
    if word.verdict is Verdict.APPROVED and _has_expired(row):
        return OpOutcome.ALREADY_FINISHED, [row] if approval_store.close_question(
            row, Verdict.EXPIRED
        ) else []
    if not approval_store.decide(row, word):
        return OpOutcome.ALREADY_FINISHED, []
    return OpOutcome.ACCEPTED, [row, *_covered(row, word)]


def _covered(row: ApprovalRow, word: HumanDecision) -> list[ApprovalRow]:
    """The other calls that wait for the same decision: what holds for the conversation lets them through too."""
    if not row.remember:
        return []
    return [other for other in approval_store.open_alike(row) if approval_store.decide(other, word)]


def _is_being_cancelled(turn: Turn, row: ApprovalRow) -> bool:
    """Whether the turn or the call is to end: nothing of it starts any more (C1)."""
    if turn.status != TurnStatus.RUNNING:
        return True
    return CancelRequest.objects.filter(turn=turn, tool_id=row.call_id, settled_at=None).exists()


def _has_expired(row: ApprovalRow) -> bool:
    return row.expires_at is not None and row.expires_at <= database_now()


def _status(turn: Turn, tool_id: str) -> str:
    row = approval_store.latest_question(group=str(turn.pk), call_id=tool_id)
    if row is not None and row.decision:
        return row.decision
    if row is not None:
        return "cancelled" if _is_being_cancelled(turn, row) else "awaiting_approval"
    if not selectors.has_call(str(turn.pk), tool_id):
        return ""
    return str(selectors.call(str(turn.pk), tool_id).status)
