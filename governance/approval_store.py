"""Start here for approvals: stores the questions about calls, and the one decision on each (D4; sync ORM).

The caller opens the transaction, because a question and the status of its call must change together. A compare-and-set
decides a question, so that exactly one decision wins when several people, the expiry and a cancel compete.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast

from django.contrib.auth.base_user import AbstractBaseUser
from django.db.models import BooleanField, Exists, ExpressionWrapper, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from governance import activity, recorder
from governance.core.approvals import Decision, Question, Verdict
from governance.core.calls import CallStatus
from governance.core.forms import Form
from governance.core.live_call import LiveCall
from governance.core.policy import ApprovalRule
from governance.db_clock import database_now
from governance.models import Approval, ToolCall
from governance.sanitize import sanitize_json, sanitize_text

INTERRUPTED = "interrupted"
REASON_LENGTH = 500
_NAME_LENGTH = 128
_HOST_LENGTH = 253

# For type annotations in modules that may use such a row but must not import the models.
ApprovalRow = Approval


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanDecision:
    """A person's decision on a question. With `remember`, it also covers later calls in the scope. `answers` contains
    the answers to a form.
    """

    verdict: Verdict
    by: AbstractBaseUser | None
    reason: str = ""
    remember: bool = False
    answers: Mapping[str, Any] | None = None


class Wait(NamedTuple):
    """The period for which a call waited for a person; `until` is None while it still waits.

    `running_call` is the id of a call that waits for the answers to its form; it is empty if a call waits for approval.
    """

    since: datetime
    until: datetime | None
    running_call: str = ""


def open_question(call: LiveCall, *, group: str) -> Approval | None:
    """Store and return the question of a call that waits to start, and store the call's new status. Return None if the
    call was closed.
    """
    if (question := call.question) is None or not recorder.record_question(
        group=group, call_id=call.id
    ):
        return None
    return _create(call, question, group, host=sanitize_text(question.host, limit=_HOST_LENGTH))


def open_form(call: LiveCall, *, group: str) -> Approval | None:
    """Store and return the form of a running call. Return None if the call has ended or is being ended."""
    question = call.question
    running = ToolCall.objects.filter(group=group, call_id=call.id, status=CallStatus.RUNNING)
    if question is None or not running.exists():
        return None
    return _create(call, question, group, form=sanitize_json(question.form))


def _create(call: LiveCall, question: Question, group: str, **fields: Any) -> Approval:
    at = database_now()
    return Approval.objects.create(
        group=group,
        call_id=call.id,
        scope=call.call.scope,
        tool_name=sanitize_text(call.call.tool_name, limit=_NAME_LENGTH),
        **recorder.display_fields(call.tool),
        input=call.call.input,
        definition=question.definition,
        rule=question.rule,
        requested_at=at,
        expires_at=None if question.timeout is None else at + timedelta(seconds=question.timeout),
        **fields,
    )


def form_of(row: Approval) -> Form:
    """Return the form that was shown with a question."""
    return cast(Form, row.form)


def grant_for(call: LiveCall) -> Approval | None:
    """Return an earlier approval that covers this call, or None. It must be for the same scope and the same definition
    of the tool.
    """
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
    """Return whether a person has allowed a host for one of these scopes."""
    return _remembered(scopes).filter(host=host[:_HOST_LENGTH]).exists()


def revoke_remembered(*, scopes: Collection[str], since: datetime) -> None:
    """Revoke the approvals that people have given for the whole of these scopes since that time, so that later calls
    need approval again.
    """
    _remembered(scopes).filter(decided_at__gte=since).update(lapsed_at=database_now())


def decide(question: Approval, decision: HumanDecision) -> bool:
    """Store a person's decision, and mark an approved call as ready to run.

    Return False, and store nothing, if the question was already decided (D4).
    """
    remember = decision.remember and question.rule == ApprovalRule.ONCE_PER_CONVERSATION
    decided = _compare_and_set(
        question, **_decision_fields(decision), remember=remember, answers=decision.answers
    )
    if not decided:
        return False
    if decision.verdict is Verdict.APPROVED and question.form is None:
        recorder.record_approval(group=question.group, call_id=question.call_id)
    _record_decision(question)
    return True


def _record_decision(question: Approval) -> None:
    changes = {"remember": True} if question.remember else {}
    changes |= {"is_late": True} if question.is_late else {}
    activity.record(
        "decision",
        _action_of(question),
        source=question,
        subject=question.tool_name,
        group=question.group,
        changes=changes,
        note=question.reason,
        by_id=question.by_id,
        by_name=question.by_name,
        at=question.decided_at,
    )


def _action_of(question: Approval) -> str:
    if question.form is None:
        return "approve" if question.decision == Verdict.APPROVED else "deny"
    return "answer" if question.decision == Verdict.APPROVED else "decline"


def close_question(question: Approval, verdict: Verdict) -> bool:
    """Record that the question ended without a decision by a person. Return False if it had already ended."""
    return _compare_and_set(question, decision=verdict, decided_at=database_now())


def record_late_denial(question: Approval, decision: HumanDecision) -> None:
    """Record that a person denied a call after its question had expired. This has no effect on the call.

    Only the first late denial of a call is recorded.
    """
    same_call = Approval.objects.filter(group=question.group, call_id=question.call_id)
    if same_call.filter(is_late=True).exists():
        return
    late = Approval.objects.get(pk=question.pk)
    late.pk = None
    late.is_late = True
    for name, value in _decision_fields(decision).items():
        setattr(late, name, value)
    late.save(force_insert=True)
    _record_decision(late)


def remove_reasons(user_id: Any) -> None:
    """Remove the reasons and answers that a person has typed."""
    Approval.objects.filter(by=user_id).exclude(reason="").update(reason="")
    Approval.objects.filter(by=user_id, answers__isnull=False).update(answers={})


def decided_by(user_id: Any) -> tuple[list[str], list[str]]:
    """Return the groups in which a person has decided, and the scopes whose later calls they have allowed."""
    decided = Approval.objects.filter(by=user_id).order_by()
    groups = decided.values_list("group", flat=True).distinct()
    scopes = decided.filter(remember=True).values_list("scope", flat=True).distinct()
    return list(groups), list(scopes)


def close_open_questions(*, group: str, decision: str) -> None:
    _open().filter(group=group).update(decision=decision, decided_at=database_now())


def open_alike(question: Approval) -> list[Approval]:
    """Return the group's other open questions that a decision for the whole scope also decides, except expired ones."""
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


def latest_question(*, group: str, call_id: str, has_form: bool = False) -> Approval | None:
    """Return a call's last approval question, or its last form, or None. The question may be open or decided."""
    if call_id != sanitize_text(call_id):  # PostgreSQL refuses to compare such a string
        return None
    questions = Approval.objects.filter(group=group, call_id=call_id, is_late=False)
    return questions.filter(form__isnull=not has_form).order_by("-pk").first()


def questions_by_call(
    groups: Iterable[str],
) -> tuple[dict[tuple[str, str], Approval], dict[tuple[str, str], Approval]]:
    """Return the last approval question and the open form of each call, in one query."""
    rows = list(Approval.objects.filter(group__in=list(groups), is_late=False).order_by("pk"))
    approvals = {(row.group, row.call_id): row for row in rows if row.form is None}
    forms = {(row.group, row.call_id): row for row in rows if row.form and not row.decision}
    return approvals, forms


def open_questions(groups: Collection[str]) -> list[Approval]:
    """Return the open questions and forms of these groups."""
    # The order deliberately matches no index, because SQLite would follow that index and scan every question.
    return list(_open().filter(group__in=groups).order_by("requested_at", "pk"))


def waits_for_person() -> Q:
    """Return the condition for calls that wait for a person: for approval, or for the answers to a form."""
    of_call = _open().filter(group=OuterRef("group"), call_id=OuterRef("call_id"))
    asks = Exists(of_call.filter(form__isnull=False))
    return Q(status=CallStatus.AWAITING_APPROVAL) | Q(asks, status=CallStatus.RUNNING)


def asks_a_person(groups: Iterable[str]) -> bool:
    """Return whether a call of these groups waits for a person."""
    return _open().filter(group__in=list(groups)).exists()


def questions_of_group(group: str) -> list[Approval]:
    """Return every question of a group, including late denials, oldest first."""
    return list(Approval.objects.filter(group=group).order_by("pk"))


def waits_of_groups(groups: Iterable[str]) -> dict[str, list[Wait]]:
    """Return the waits for people in these groups, in one query."""
    has_form = ExpressionWrapper(Q(form__isnull=False), output_field=BooleanField())
    rows = Approval.objects.filter(group__in=list(groups), is_late=False).order_by()
    columns = ("group", "call_id", "has_form", "requested_at", "decided_at")
    waits_by_group: dict[str, list[Wait]] = {}
    for group, call_id, is_form, since, until in rows.annotate(has_form=has_form).values_list(
        *columns
    ):
        running = call_id if is_form else ""
        waits_by_group.setdefault(group, []).append(Wait(since, until, running_call=running))
    return waits_by_group


def decided_among(questions: Iterable[str]) -> list[Approval]:
    rows = Approval.objects.filter(pk__in=[int(pk) for pk in questions])
    return list(rows.exclude(decision=""))


def decision_of(row: Approval) -> Decision:
    """Return the stored decision on a question as a `Decision`."""
    is_verdict = row.decision in tuple(Verdict)
    return Decision(
        verdict=Verdict(row.decision) if is_verdict else Verdict.CANCELLED,
        by=row.by_name,
        reason=row.reason,
        remember=row.remember,
        question=str(row.pk),
        answers=row.answers,
    )


def _remembered(scopes: Collection[str]) -> QuerySet[Approval]:
    remembered = Approval.objects.filter(decision=Verdict.APPROVED, remember=True)
    return remembered.filter(scope__in=scopes, lapsed_at=None)


def _open() -> QuerySet[Approval]:
    return Approval.objects.filter(decision="")


def _compare_and_set(question: Approval, **fields: Any) -> bool:
    """Set the fields if the question is still open. Only one of several concurrent decisions succeeds."""
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
