"""Services with which people approve or deny calls, answer their forms, and change their limits (D2, D4, T9).

Each question is decided only once, and all viewers see the decision.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal
from uuid import UUID

from django.utils.translation import gettext as _

from governance import (
    CallStatus,
    TimeoutSource,
    Verdict,
    activity,
    approval_store,
    read_answers,
    selectors,
)
from governance.approval_store import ApprovalRow, HumanDecision
from governance.db import atomic, run_in_db_thread
from governance.db_clock import database_now
from governance.durations import limit_ms
from governance.sanitize import sanitize_json
from turns.calls import timeout_changes
from turns.calls.approvals import event_of, pending_decision
from turns.core.turns import LIVE_STATUSES, PendingRequest, PendingTimeout, TurnStatus
from turns.events import log, sinks
from turns.exceptions import InvalidAnswer, MessageRejected, ToolCallNotFound, TurnNotFound
from turns.models import CancelRequest, Turn
from turns.processes.background import shielded
from turns.running import runtime
from turns.storage import operations
from turns.storage.access import User, reload, turn_for
from turns.storage.operations import OpOutcome

PERMISSION = "turns.decide_any"

_OPEN = frozenset({CallStatus.PENDING, CallStatus.AWAITING_APPROVAL, CallStatus.RUNNING})
_VERDICTS = {"approve": Verdict.APPROVED, "deny": Verdict.DENIED}
_FORM_VERDICTS = {
    "accept": Verdict.APPROVED,
    "decline": Verdict.DENIED,
    "cancel": Verdict.CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionReceipt:
    """The result of a decision, and the current status of the question.

    `status` is `approved`, `denied`, `expired`, `cancelled` or `interrupted`; if the call never asked a question, it is
    the call's status.
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
    decision: Literal["approve", "deny"],
    remember: Literal["conversation"] | None = None,
    reason: str = "",
    op_id: str | None = None,
    question: str = "",
) -> DecisionReceipt:
    """Approve or deny a call that waits for a person. The decision is stored when this returns.

    The owner of the conversation may decide, and also staff with `turns.decide_any`. With `remember`, later calls of
    the tool are approved too if its approval rule is once per conversation. Only the first decision has an effect; a
    later one returns `ALREADY_FINISHED` with the current status. A repeated `op_id` returns the same receipt. With
    `question`, the decision applies to that question only, in case the call has asked another question since.
    """
    answer = _Answer(
        verdict=_VERDICTS[decision], reason=reason, remember=remember is not None, question=question
    )
    return await _publish(await _decide(turn_id, tool_id, user, answer, op_id))


@shielded
async def answer_tool(
    *,
    turn_id: UUID,
    tool_id: str,
    user: User,
    action: Literal["accept", "decline", "cancel"],
    answers: Mapping[str, Any] | None = None,
    question: str = "",
    op_id: str | None = None,
) -> DecisionReceipt:
    """Answer the form of a running call: accept it with answers, decline it, or dismiss it (`cancel`).

    The permissions and the rules for repeated answers are those of `decide_tool`. Without `question`, the answer
    applies to the open form.

    Raises: InvalidAnswer: the answers do not fit the form.
    """
    answer = _Answer(
        verdict=_FORM_VERDICTS[action],
        question=question,
        is_of_form=True,
        answers=(answers or {}) if action == "accept" else None,
    )
    return await _publish(await _decide(turn_id, tool_id, user, answer, op_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """A person's decision on whether a call may run, or the answer to its form."""

    verdict: Verdict
    question: str
    reason: str = ""
    remember: bool = False
    is_of_form: bool = False
    answers: Mapping[str, Any] | None = None


async def _publish(receipt: DecisionReceipt) -> DecisionReceipt:
    if receipt.conversation_id is not None:
        await sinks.publish(receipt.conversation_id, receipt.events)
        if receipt.requests and receipt.owner_id is not None:
            await runtime.notify_owner(receipt.owner_id, receipt.requests)
    return receipt


@run_in_db_thread
def _decide(
    turn_id: UUID, tool_id: str, user: User, answer: _Answer, op_id: str | None
) -> DecisionReceipt:
    try:
        turn = turn_for(user, turn_id, permission=PERMISSION)
    except TurnNotFound:
        return DecisionReceipt(outcome=OpOutcome.NOT_FOUND)
    decision = HumanDecision(
        verdict=answer.verdict,
        by=reload(user),
        reason=answer.reason,
        remember=answer.remember,
        answers=answer.answers,
    )
    with atomic():
        conversation = log.locked(turn.conversation_id)
        turn.refresh_from_db(fields=["status", "owner"])
        changed: list[ApprovalRow] = []
        outcome = operations.begin(turn, op_id)
        if outcome is None:
            outcome, changed = _apply(turn, tool_id, decision, answer)
            operations.end(turn, op_id, outcome)
        events = log.append(conversation, turn.pk, *map(event_of, changed))
        return DecisionReceipt(
            outcome=outcome,
            status=_status(turn, tool_id, is_of_form=answer.is_of_form),
            conversation_id=conversation.pk,
            owner_id=turn.owner_id,
            events=events,
            requests=[pending_decision(question) for question in changed],
        )


def _apply(
    turn: Turn, tool_id: str, decision: HumanDecision, answer: _Answer
) -> tuple[OpOutcome, list[ApprovalRow]]:
    """Apply a person's decision to the latest question of a call, if it refers to that question and it is open; return
    the questions that have changed.
    """
    row = approval_store.latest_question(
        group=str(turn.pk), call_id=tool_id, has_form=answer.is_of_form
    )
    if row is None:
        has_call = selectors.has_call(str(turn.pk), tool_id)
        return OpOutcome.ALREADY_FINISHED if has_call else OpOutcome.NOT_FOUND, []
    if answer.question not in ("", str(row.pk)):
        return OpOutcome.ALREADY_FINISHED, []
    if row.decision:
        is_denial = decision.verdict is Verdict.DENIED and row.form is None
        if row.decision == Verdict.EXPIRED and is_denial:
            approval_store.record_late_denial(row, decision)
        return OpOutcome.ALREADY_FINISHED, []
    if _is_being_cancelled(turn, row):
        return OpOutcome.ALREADY_FINISHED, []
    if decision.answers is not None:
        decision = replace(decision, answers=_fitting(row, decision.answers))
    has_expired = row.expires_at is not None and row.expires_at <= database_now()
    if decision.verdict is Verdict.APPROVED and has_expired:
        is_changed = approval_store.close_question(row, Verdict.EXPIRED)
        return OpOutcome.ALREADY_FINISHED, [row] if is_changed else []
    if not approval_store.decide(row, decision):
        return OpOutcome.ALREADY_FINISHED, []
    if not row.remember:
        return OpOutcome.ACCEPTED, [row]
    # A decision for the whole conversation also applies to other calls that are waiting for the same decision.
    alike = [
        other for other in approval_store.open_alike(row) if approval_store.decide(other, decision)
    ]
    return OpOutcome.ACCEPTED, [row, *alike]


def _fitting(row: ApprovalRow, answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answers, validated against the form. Raise `InvalidAnswer` if one does not fit."""
    fitting, problems = read_answers(approval_store.form_of(row), sanitize_json(answers))
    if problems:
        first = "; ".join(f"{name}: {problem}" for name, problem in islice(problems.items(), 3))
        sentence = _(
            "The answer does not fit the form. Correct it and send it again: %(problems)s."
        )
        raise InvalidAnswer(sentence % {"problems": first})
    return fitting


def _is_being_cancelled(turn: Turn, row: ApprovalRow) -> bool:
    """Return whether the turn or the call is being cancelled, in which case nothing may start (C1)."""
    if turn.status != TurnStatus.RUNNING:
        return True
    return CancelRequest.objects.filter(turn=turn, tool_id=row.call_id, settled_at=None).exists()


def _status(turn: Turn, tool_id: str, *, is_of_form: bool) -> str:
    row = approval_store.latest_question(group=str(turn.pk), call_id=tool_id, has_form=is_of_form)
    if row is not None and row.decision:
        return row.decision
    if row is not None:
        return "cancelled" if _is_being_cancelled(turn, row) else "awaiting_approval"
    if not selectors.has_call(str(turn.pk), tool_id):
        return ""
    return str(selectors.call(str(turn.pk), tool_id).status)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineReceipt:
    """The result of changing the limit of a call. `timeout_ms` is the limit; None means that there is no limit."""

    outcome: OpOutcome
    timeout_ms: int | None = None
    timeout_source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A request to change a call's limit, after the permission check, with the user and the client's operation id."""

    turn: Turn
    tool_id: str
    by: str
    by_id: Any
    op_id: str | None
    note: str

    @property
    def owner_id(self) -> UUID | None:
        """Return the id of the process that must be notified; None if no process owns the turn."""
        return self.turn.owner_id if self.turn.status in LIVE_STATUSES else None


@shielded
async def set_deadline(
    *,
    turn_id: UUID,
    tool_id: str,
    user: User,
    timeout_ms: int | None = None,
    extend_ms: int | None = None,
    op_id: str | None = None,
    note: str = "",
) -> DeadlineReceipt:
    """Change the limit of a call, up to the administrators' ceiling (T9). The new limit of a waiting
    call applies when the call starts.

    `extend_ms` is added to the current limit. Pass exactly one of `timeout_ms` and `extend_ms`. `note` is the reason,
    which is stored with the change.

    Raises:
        MessageRejected: neither or both were passed, or the number is not positive.
    """
    _check_exactly_one(timeout_ms, extend_ms)
    try:
        request = await _may_change(turn_id, tool_id, user, op_id, note)
    except (TurnNotFound, ToolCallNotFound):
        return DeadlineReceipt(outcome=OpOutcome.NOT_FOUND)
    # Stored even if the call runs here, so that a lost response does not lose the request.
    receipt, change = await _store(request, timeout_ms, extend_ms)
    if change is not None and request.owner_id is not None:
        await runtime.notify_owner(request.owner_id, [change])
    live = runtime.find_turn(turn_id)
    call = live.find_call(tool_id) if live else None
    if receipt.outcome is not OpOutcome.ACCEPTED or call is None or not call.has_policy:
        return receipt  # the call runs elsewhere, starts here later, or has ended, so its row is authoritative
    return replace(
        receipt,
        timeout_ms=limit_ms(call.timeout) or None,
        timeout_source=call.timeout_source or "",
    )


def _check_exactly_one(*numbers: int | None) -> None:
    values = [number for number in numbers if number is not None]
    if len(values) != 1 or values[0] <= 0:
        raise MessageRejected(
            _("Pass either timeout_ms or extend_ms, a positive number of milliseconds.")
        )


@run_in_db_thread
def _may_change(turn_id: UUID, tool_id: str, user: User, op_id: str | None, note: str) -> _Request:
    """Check the user's permission and return the request.

    Raises: TurnNotFound, ToolCallNotFound: there is no such call, or it belongs to another user.
    """
    turn = turn_for(user, turn_id, permission="turns.cancel_any")
    if not selectors.has_call(str(turn.pk), tool_id):
        raise ToolCallNotFound
    by = str(reload(user).get_username())[:150]
    return _Request(turn=turn, tool_id=tool_id, by=by, by_id=user.pk, op_id=op_id, note=note)


@run_in_db_thread
def _store(
    request: _Request, timeout_ms: int | None, extend_ms: int | None
) -> tuple[DeadlineReceipt, PendingTimeout | None]:
    """Store the change together with the operation; return the receipt, and the change if it is new."""
    with atomic():
        earlier = operations.begin(request.turn, request.op_id)
        row = selectors.call(str(request.turn.pk), request.tool_id)
        if earlier is not None:
            return DeadlineReceipt(
                outcome=earlier, timeout_ms=row.timeout_ms, timeout_source=row.timeout_source
            ), None
        if row.status not in _OPEN:
            operations.end(request.turn, request.op_id, OpOutcome.ALREADY_FINISHED)
            return DeadlineReceipt(outcome=OpOutcome.ALREADY_FINISHED), None
        change = timeout_changes.store(
            request.turn,
            request.tool_id,
            timeout_ms=timeout_ms,
            extend_ms=extend_ms,
            by=request.by,
            by_id=request.by_id,
            note=request.note,
        )
        receipt = _receipt(row, timeout_ms, extend_ms)
        activity.record(
            "extension",
            "change",
            subject=row.tool_name,
            group=str(request.turn.pk),
            changes={"timeout_ms": [row.timeout_ms, receipt.timeout_ms]},
            note=request.note,
            by_id=request.by_id,
            by_name=request.by,
        )
        return receipt, change


def _receipt(
    row: selectors.CallRow, timeout_ms: int | None, extend_ms: int | None
) -> DeadlineReceipt:
    """Return the limit that a stored change will result in; a call without a limit cannot be extended."""
    if timeout_ms is None and row.timeout_ms is None:
        return DeadlineReceipt(outcome=OpOutcome.ACCEPTED, timeout_source=row.timeout_source)
    new_ms = timeout_ms if timeout_ms is not None else (row.timeout_ms or 0) + (extend_ms or 0)
    return DeadlineReceipt(
        outcome=OpOutcome.ACCEPTED,
        timeout_ms=limit_ms(selectors.capped(row.tool_name, new_ms / 1000)) or None,
        timeout_source=TimeoutSource.MANUAL.value,
    )
