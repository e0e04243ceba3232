"""Stores the questions that people are asked about calls, and the one decision on each (D4; sync ORM).

The caller opens the transaction: a question and the status of its call change together. A compare-and-set decides a
question. So one of two people, an expiry and a cancel wins.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.base_user import AbstractBaseUser
from django.db.models import CharField, Q, QuerySet
from django.db.models.functions import Now

from governance import call_store, recorder
from governance.core.approvals import Decision, Verdict
from governance.core.live_call import LiveCall
from governance.core.policy import ApprovalRule
from governance.db_clock import database_now
from governance.models import Approval
from governance.prepared_statements import Select, Several
from governance.sanitize import sanitize_json, sanitize_text

INTERRUPTED = "interrupted"
REASON_LENGTH = 500
_NAME_LENGTH = 128
_HOST_LENGTH = 253

# The row of a question, for the types of those who may read it but not import the models.
ApprovalRow = Approval


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanDecision:
    """A person's decision on a question; `remember` = it holds for the whole scope."""

    verdict: Verdict
    by: AbstractBaseUser | None
    reason: str = ""
    remember: bool = False


def open_question(call: LiveCall, *, group: str) -> Approval | None:
    """Store the question of a call that waits to start, and the call's new status. Return None if the call was closed."""
    if (question := call.question) is None or not recorder.record_question(
        group=group, call_id=call.id
    ):
        return None
    at = database_now()
    return Approval.objects.create(
        group=group,
        call_id=call.id,
        scope=call.call.scope,
        tool_name=sanitize_text(call.call.tool_name, limit=_NAME_LENGTH),
        **call_store.display_fields(call.tool),
        input=sanitize_json(dict(call.call.input)),
        definition=question.definition,
        host=sanitize_text(question.host, limit=_HOST_LENGTH),
        rule=question.rule,
        requested_at=at,
        expires_at=None if question.timeout is None else at + timedelta(seconds=question.timeout),
    )


def grant_for(call: LiveCall) -> Approval | None:
    """Return the earlier approval that covers this call: for the same definition of its tool, in its scope."""
    if call.question is None or call.question.rule is not ApprovalRule.ONCE_PER_CONVERSATION:
        return None
    return Approval.objects.filter(
        scope=call.call.scope,
        tool_name=call.call.tool_name,
        definition=call.question.definition,
        host__in={"", call.question.host},
        decision=Verdict.APPROVED,
        remember=True,
        lapsed_at=None,
    ).first()


def has_allowed(host: str, *, scopes: Collection[str]) -> bool:
    """Whether a person has allowed a host for the whole of one of these scopes."""
    return _remembered(scopes).filter(host=host[:_HOST_LENGTH]).exists()


def revoke_remembered(*, scopes: Collection[str], since: datetime) -> None:
    """Let calls be asked about again that a person has allowed for these whole scopes since then."""
    _remembered(scopes).filter(decided_at__gte=since).update(lapsed_at=database_now())


def decide(question: Approval, decision: HumanDecision) -> bool:
    """Store a person's decision, and let an approved call continue. Return False if the question was already decided (D4)."""
    remember = decision.remember and question.rule == ApprovalRule.ONCE_PER_CONVERSATION
    decided = _compare_and_set(question, **_decision_fields(decision), remember=remember)
    if decided and decision.verdict is Verdict.APPROVED:
        recorder.record_approval(group=question.group, call_id=question.call_id)
    return decided


def close_question(question: Approval, verdict: Verdict) -> bool:
    """Store that the question ended without a person. Return False if a person had decided."""
    return _compare_and_set(question, decision=verdict, decided_at=database_now())


def record_late_denial(question: Approval, decision: HumanDecision) -> None:
    """Store that a person denied a question that had expired: it changes nothing, but it is on record."""
    same_call = Approval.objects.filter(group=question.group, call_id=question.call_id)
    if same_call.filter(is_late=True).exists():
        return
    late = Approval.objects.get(pk=question.pk)
    late.pk = None
    late.is_late = True
    for name, value in _decision_fields(decision).items():
        setattr(late, name, value)
    late.save(force_insert=True)


def close_open_questions(*, group: str, decision: str) -> None:
    _open().filter(group=group).update(decision=decision, decided_at=database_now())


def open_alike(question: Approval) -> list[Approval]:
    """Return the open questions of the same group that a decision for the whole scope covers too: none that expired."""
    in_time = Q(expires_at=None) | Q(expires_at__gt=Now())
    alike = _open().filter(
        in_time,
        group=question.group,
        scope=question.scope,
        tool_name=question.tool_name,
        definition=question.definition,
        host=question.host,
        rule=ApprovalRule.ONCE_PER_CONVERSATION,
    )
    return list(alike.exclude(pk=question.pk).order_by("pk"))


def find_question(question: str) -> Approval | None:
    return Approval.objects.filter(pk=int(question)).first() if question else None


def latest_question(*, group: str, call_id: str) -> Approval | None:
    """Return the last question about a call, open or decided, or None."""
    questions = Approval.objects.filter(group=group, call_id=call_id, is_late=False)
    return questions.order_by("-pk").first()


def latest_by_call(groups: Iterable[str]) -> dict[tuple[str, str], Approval]:
    """Return the last question about each call of these groups that was asked about, in one query."""
    rows = Approval.objects.filter(group__in=list(groups), is_late=False).order_by("pk")
    return {(row.group, row.call_id): row for row in rows}


def open_questions(groups: Collection[str]) -> list[Approval]:
    return _OPEN_QUESTIONS.all(groups=groups)


def questions_of_group(group: str) -> list[Approval]:
    """Return every question of a group, late denials too, oldest first."""
    return list(Approval.objects.filter(group=group).order_by("pk"))


def waits_of_groups(groups: Iterable[str]) -> dict[str, list[tuple[datetime, datetime | None]]]:
    """Return from when until when people were asked in these groups; None = still. In one query."""
    rows = Approval.objects.filter(group__in=list(groups), is_late=False).order_by()
    found: dict[str, list[tuple[datetime, datetime | None]]] = {}
    for group, since, until in rows.values_list("group", "requested_at", "decided_at"):
        found.setdefault(group, []).append((since, until))
    return found


def decided_among(questions: Iterable[str]) -> list[Approval]:
    rows = Approval.objects.filter(pk__in=[int(pk) for pk in questions])
    return list(rows.exclude(decision=""))


def decision_of(row: Approval) -> Decision:
    """Return the decision on a question as a value."""
    known = row.decision in tuple(Verdict)
    return Decision(
        verdict=Verdict(row.decision) if known else Verdict.CANCELLED,
        by=row.by_name,
        reason=row.reason,
        remember=row.remember,
        question=str(row.pk),
    )


def _remembered(scopes: Collection[str]) -> QuerySet[Approval]:
    remembered = Approval.objects.filter(decision=Verdict.APPROVED, remember=True)
    return remembered.filter(scope__in=scopes, lapsed_at=None)


def _open() -> QuerySet[Approval]:
    return Approval.objects.filter(decision="")


_OPEN_QUESTIONS = Select(
    # The order matches no index on purpose: by an indexed order, SQLite would scan every question.
    lambda groups: _open().filter(group__in=groups).order_by("requested_at", "pk"),
    groups=Several(CharField()),
)


def _compare_and_set(question: Approval, **fields: Any) -> bool:
    """The compare-and-set: of all who decide, one changes a row."""
    changed = _open().filter(pk=question.pk).update(**fields)
    question.refresh_from_db()
    return changed == 1


def _decision_fields(decision: HumanDecision) -> dict[str, Any]:
    return {
        "decision": decision.verdict.value,
        "decided_at": database_now(),
        "by": decision.by,
        "by_name": decision.by.get_username()[:150] if decision.by else "",
        "reason": sanitize_text(decision.reason, limit=REASON_LENGTH),
    }
