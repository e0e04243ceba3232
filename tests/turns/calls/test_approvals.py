"""People decide on calls: once, seen by everybody, and nothing runs without it: D1 to D4, 14, 39, 43, 79, 88, 89."""

import asyncio
import threading
from datetime import timedelta
from functools import partial

import pytest
from django.contrib.auth.models import Permission
from django.utils import timezone

from governance import make_tool, recorder, registry, selectors
from governance import services as governance_services
from governance.models import Approval
from tests.support import PATIENCE, eventually
from tests.turns.rows import Planted, said, use
from tests.turns.support import Props, Stage, in_database
from turns import selectors as turn_selectors
from turns import services
from turns.core.history import violations
from turns.endings import recovery
from turns.models import Agent, Conversation
from turns.processes import process_registry
from turns.running import runtime
from turns.services import OpOutcome, decide_tool
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)

ACCEPTED, FINISHED, NOT_FOUND = (
    OpOutcome.ACCEPTED,
    OpOutcome.ALREADY_FINISHED,
    OpOutcome.NOT_FOUND,
)


@pytest.fixture(autouse=True)
def _people_are_asked(settings):
    """As the tools declare it."""
    settings.GOVERNANCE_APPROVAL = {}


@pytest.fixture
def judge(operator):
    """Staff that may decide for everybody."""
    operator.user_permissions.add(Permission.objects.get(codename="decide_any"))
    return operator


async def waiting(stage: Stage, *calls, after=None):
    """Begin a turn with these calls; return its id and the chat model once the first waits for a person."""
    model = stage.play(list(calls), after or [text("Fine.")])
    turn_id = await stage.say()
    await stage.asked(turn_id, calls[0].id)
    return turn_id, model


async def test_an_approved_call_runs_and_tells_who_let_it(stage: Stage, props: Props):
    turn_id, model = await waiting(stage, call("a", "asked", text="whole input"))
    asked = stage.listener.find("tool_approval", tool_id="a")
    assert asked["input"] == {"text": "whole input"}
    assert (asked["rule"], asked["can_remember"]) == ("once_per_conversation", True)
    assert asked["description"] == "Answer with what the script says."
    assert props.started == []
    receipt = await stage.decide(turn_id, "a", reason="go ahead")
    assert (receipt.outcome, receipt.status) == (ACCEPTED, "approved")
    assert (await stage.ended(turn_id)).status == "completed"
    decided = stage.listener.find("tool_decision", tool_id="a")
    assert {n: decided[n] for n in ("decision", "by", "reason", "remember")} == {
        "decision": "approved",
        "by": "ada",
        "reason": "go ahead",
        "remember": False,
    }
    assert props.started == ["a"]
    (row,) = await stage.questions(turn_id)
    assert (row.decision, row.by_name, row.input) == ("approved", "ada", {"text": "whole input"})
    assert model.requests[1].messages[-1].tool_results[0].content == "whole input"


async def test_a_denied_call_never_runs_and_the_agent_reads_why(stage: Stage, props: Props):
    turn_id, model = await waiting(stage, call("a", "asked"))
    receipt = await stage.decide(turn_id, "a", decision="deny", reason="not on a Friday")
    assert (receipt.outcome, receipt.status) == (ACCEPTED, "denied")
    assert (await stage.ended(turn_id)).status == "completed"
    made = (await stage.calls(turn_id))["a"]
    assert (made.status, made.error_type, made.disposition) == ("denied", "denied", "not_started")
    read = model.requests[1].messages[-1].tool_results[0]
    assert read.is_error
    assert read.content.startswith('[DENIED] Tool "asked" was not run')
    assert "not on a Friday" in read.content
    assert props.started == []


async def test_nobody_answers_and_it_is_expired_not_denied(stage: Stage, props: Props, settings):
    settings.GOVERNANCE_APPROVAL_TIMEOUT = 0.05
    model = stage.play([call("a", "asked"), call("b", "quick")], [text("Fine.")])
    turn = await stage.run()
    made = (await stage.calls(turn.pk))["a"]
    assert (made.status, made.error_type, made.disposition) == ("expired", "expired", "not_started")
    read = model.requests[1].messages[-1].tool_results[0].content
    assert read.startswith('[EXPIRED] Tool "asked" was not run')
    assert "nobody answered within 0.05s" in read
    decided = stage.listener.find("tool_decision", tool_id="a")
    assert (decided["decision"], decided["by"]) == ("expired", "")
    assert props.started == ["b"]
    late = await stage.decide(turn.pk, "a")
    assert (late.outcome, late.status) == (FINISHED, "expired")
    assert props.started == ["b"]


async def test_a_no_after_the_expiry_is_kept_as_a_no(stage: Stage, settings):
    settings.GOVERNANCE_APPROVAL_TIMEOUT = 0.05
    stage.play([call("a", "asked")], [text("Fine.")])
    turn = await stage.run()
    for _ in range(2):
        late = await stage.decide(turn.pk, "a", decision="deny", reason="I was at lunch")
        assert (late.outcome, late.status) == (FINISHED, "expired")
    counted, kept = await stage.questions(turn.pk)
    assert (counted.decision, counted.is_late) == ("expired", False)
    assert (kept.decision, kept.by_name, kept.reason, kept.is_late) == (
        "denied",
        "ada",
        "I was at lunch",
        True,
    )
    assert (await stage.calls(turn.pk))["a"].status == "expired"


async def test_a_yes_after_its_time_counts_as_expired_even_before_the_owner_has_noticed(
    stage: Stage, props: Props
):
    turn_id, _ = await waiting(stage, call("a", "asked"))
    past = timezone.now() - timedelta(seconds=1)
    await in_database(lambda: Approval.objects.update(expires_at=past))
    late = await stage.decide(turn_id, "a")
    assert (late.outcome, late.status) == (FINISHED, "expired")
    await stage.ended(turn_id)
    assert (await stage.calls(turn_id))["a"].status == "expired"
    assert props.started == []


@pytest.mark.parametrize("whole_turn", [True, False])
async def test_a_cancel_while_it_waits_is_a_cancel_and_no_denial(
    stage: Stage, props: Props, whole_turn: bool
):
    turn_id, _ = await waiting(stage, call("a", "asked_blocked"), call("b", "quick"))
    if whole_turn:
        receipt = await stage.cancel(turn_id)
    else:
        receipt = await stage.cancel_call(turn_id, "a")
    assert receipt.outcome is ACCEPTED
    turn = await stage.ended(turn_id)
    assert turn.status == ("cancelled" if whole_turn else "completed")
    made = (await stage.calls(turn_id))["a"]
    assert (made.status, made.error_type, made.disposition) == (
        "cancelled",
        "cancelled",
        "not_started",
    )
    assert made.result.startswith("[CANCELLED]")
    assert "was not started" in made.result
    (row,) = await stage.questions(turn_id)
    assert (row.decision, row.by_name, row.input) == ("cancelled", "", {})
    assert not stage.listener.find("tool_decision", tool_id="a")
    late = await stage.decide(turn_id, "a")
    assert (late.outcome, late.status) == (FINISHED, "cancelled")
    assert "a" not in props.started


async def test_a_decision_is_refused_once_the_turn_is_to_end(stage: Stage, props: Props):
    turn_id, _ = await waiting(stage, call("a", "asked"))
    cancel, decision = await asyncio.gather(stage.cancel(turn_id), stage.decide(turn_id, "a"))
    assert cancel.outcome is ACCEPTED
    await stage.ended(turn_id)
    made = (await stage.calls(turn_id))["a"]
    if (
        decision.outcome is ACCEPTED
    ):  # it was first: then it may have run, and the cancel came after that
        assert made.status in ("not_started", "cancelled", "succeeded")
    else:
        assert (decision.status, made.status) == ("cancelled", "cancelled")
        assert props.started == []


async def test_the_other_calls_of_the_step_go_on(stage: Stage, props: Props):
    turn_id, _ = await waiting(stage, call("a", "asked"), call("b", "quick"), call("c", "held"))
    await stage.listener.until("tool_result", tool_id="b")
    await stage.running(turn_id, "c")
    (active,) = await turn_selectors.active_turns(user=stage.user)
    assert {t["tool_id"]: t["status"] for t in active["current_tools"]} == {
        "a": "awaiting_approval",
        "c": "running",
    }
    props.open("c")
    await stage.listener.until("tool_result", tool_id="c")
    await stage.decide(turn_id, "a")
    assert (await stage.ended(turn_id)).status == "completed"
    assert props.started[-1] == "a"


async def test_the_clocks_stand_still_while_a_person_is_asked(stage: Stage, props: Props, settings):
    settings.TURNS_TURN_TIMEOUT = 60.0
    turn_id, _ = await waiting(stage, call("a", "asked_held"), call("b", "asked_held"))
    await stage.asked(turn_id, "b")
    (live,) = (await runtime.ensure_started()).supervisor.live_turns
    clock = live.runner.clock
    left, later = clock.time_left, asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.05, later.set_result, None)
    await later
    assert (clock.is_paused, clock.time_left) == (True, left)
    await stage.decide(turn_id, "a")
    await stage.running(turn_id, "a")
    assert clock.is_paused  # the other question is open
    await stage.decide(turn_id, "b", decision="deny")
    await stage.listener.until("tool_result", tool_id="b")
    assert not clock.is_paused
    assert clock.time_left <= left
    props.open("a")
    await stage.ended(turn_id)


async def test_two_people_at_once_are_one_decision_and_one_execution(
    stage: Stage, props: Props, judge
):
    turn_id, _ = await waiting(stage, call("a", "asked"))
    receipts = await asyncio.gather(
        *(stage.decide(turn_id, "a", user=user) for user in (stage.user, judge) for _ in range(3))
    )
    assert [r.outcome for r in receipts].count(ACCEPTED) == 1
    assert {r.outcome for r in receipts} == {ACCEPTED, FINISHED}
    assert {r.status for r in receipts} == {"approved"}
    await stage.ended(turn_id)
    assert props.started == ["a"]
    assert [e["type"] for e in stage.listener.events].count("tool_decision") == 1


async def test_a_yes_and_a_no_at_once_are_whatever_came_first(stage: Stage, props: Props):
    turn_id, _ = await waiting(stage, call("a", "asked"))
    yes, no = await asyncio.gather(
        stage.decide(turn_id, "a"), stage.decide(turn_id, "a", decision="deny")
    )
    assert {yes.outcome, no.outcome} == {ACCEPTED, FINISHED}
    assert yes.status == no.status
    await stage.ended(turn_id)
    assert props.started == (["a"] if yes.outcome is ACCEPTED else [])


async def test_a_repeated_operation_has_its_first_answer(stage: Stage, props: Props):
    turn_id, _ = await waiting(stage, call("a", "asked"))
    receipts = [await stage.decide(turn_id, "a", op_id="op") for _ in range(2)]
    assert [(r.outcome, r.status) for r in receipts] == [(ACCEPTED, "approved")] * 2
    await stage.ended(turn_id)
    again = await stage.decide(turn_id, "a", op_id="op")
    other = [await stage.decide(turn_id, "a", op_id="late") for _ in range(2)]
    assert (again.outcome, again.status) == (ACCEPTED, "approved")
    assert [(r.outcome, r.status) for r in other] == [(FINISHED, "approved")] * 2
    assert props.started == ["a"]


async def test_only_the_owner_and_those_who_may_decide_for_all(
    stage: Stage, props: Props, eve, operator, judge
):
    turn_id, _ = await waiting(stage, call("a", "asked"))
    await in_database(
        lambda: operator.user_permissions.remove(Permission.objects.get(codename="decide_any"))
    )
    for stranger in (eve, operator):
        assert (await stage.decide(turn_id, "a", user=stranger)).outcome is NOT_FOUND
    assert (await stage.decide(turn_id, "nobody")).outcome is NOT_FOUND
    (row,) = await stage.questions(turn_id)
    assert row.decision == ""
    await in_database(
        lambda: operator.user_permissions.add(Permission.objects.get(codename="decide_any"))
    )
    assert (await stage.decide(turn_id, "a", user=operator)).outcome is ACCEPTED
    await stage.ended(turn_id)
    assert stage.listener.find("tool_decision")["by"] == "olga"


async def test_a_call_that_nobody_was_asked_about_cannot_be_decided(stage: Stage, props: Props):
    stage.play([call("a", "held")], [text("Fine.")])
    turn_id = await stage.say()
    await stage.running(turn_id, "a")
    receipt = await stage.decide(turn_id, "a", decision="deny")
    assert (receipt.outcome, receipt.status) == (FINISHED, "running")
    props.open("a")
    await stage.ended(turn_id)


async def test_a_yes_for_the_conversation_lets_later_calls_of_the_tool_through(
    stage: Stage, props: Props
):
    later = [call("c", "asked", text="other input"), call("d", "asked_held")]
    stage.play([call("a", "asked"), call("b", "asked")], later, [text("Fine.")])
    turn_id = await stage.say()
    await stage.asked(turn_id, "a", "b")
    await stage.decide(turn_id, "a", remember="conversation")
    other = await stage.listener.until("tool_decision", tool_id="b")  # it waited for the same
    assert (other["decision"], other["by"], other["remember"]) == ("approved", "ada", True)
    await stage.asked(turn_id, "d")  # another tool is asked about
    await stage.listener.until("tool_result", tool_id="c")
    props.open("d")
    await stage.decide(turn_id, "d", remember="conversation")
    await stage.ended(turn_id)
    assert not stage.listener.find("tool_approval", tool_id="c")
    rows = {row.call_id: row for row in await stage.questions(turn_id)}
    assert {name: row.remember for name, row in rows.items()} == {"a": True, "b": True, "d": False}
    assert sorted(props.started[:2]) == ["a", "b"]


async def test_always_means_every_call(stage: Stage, props: Props):
    props.open_all()
    turn_id, _ = await waiting(stage, call("a", "asked_held"), after=[call("b", "asked_held")])
    await stage.decide(turn_id, "a", remember="conversation")
    await stage.asked(turn_id, "b")
    await stage.decide(turn_id, "b")
    await stage.ended(turn_id)
    assert props.started == ["a", "b"]


async def test_a_yes_for_one_conversation_says_nothing_of_another(stage: Stage, ada):
    turn_id, _ = await waiting(stage, call("a", "asked"))
    await stage.decide(turn_id, "a", remember="conversation")
    await stage.ended(turn_id)
    other = await services.create_conversation(user=ada)
    second = Stage(user=ada, conversation_id=other.id, listener=stage.listener)
    turn_id, _ = await waiting(second, call("b", "asked"))
    await second.decide(turn_id, "b", decision="deny")
    await second.ended(turn_id)


async def test_a_tool_that_has_changed_since_is_asked_about_again(stage: Stage, props: Props):
    turn_id, _ = await waiting(stage, call("a", "asked", text="x"))
    registry.unregister("asked")
    changed = make_tool(
        props.quick, name="asked", description="Something else.", approval="once_per_conversation"
    )
    registry.register(changed)
    await stage.decide(turn_id, "a", remember="conversation")

    def second():
        told = [e for e in stage.listener.events if e["type"] == "tool_approval"]
        return told[1] if len(told) == 2 else None

    assert (await eventually(second))["description"] == "Something else."
    assert props.started == []
    await stage.decide(turn_id, "a", decision="deny")
    await stage.ended(turn_id)
    first, again = await stage.questions(turn_id)
    assert (first.decision, again.decision) == ("approved", "denied")
    assert first.definition != again.definition
    assert props.started == []


async def test_an_earlier_yes_does_not_count_for_a_tool_that_has_changed(
    stage: Stage, props: Props
):
    turn_id, _ = await waiting(stage, call("a", "asked"))
    await stage.decide(turn_id, "a", remember="conversation")
    await stage.ended(turn_id)
    registry.unregister("asked")
    registry.register(
        make_tool(props.quick, name="asked", approval="once_per_conversation", description="New.")
    )
    turn_id, _ = await waiting(stage, call("b", "asked"))
    await stage.decide(turn_id, "b", decision="deny")
    await stage.ended(turn_id)


async def test_an_administrators_rule_is_live_and_wins(stage: Stage, props: Props, operator):
    save = partial(governance_services.save_tool_policy, by=operator)
    await in_database(lambda: save(tool_name="quick", values={"approval": "always"}))
    turn_id, _ = await waiting(stage, call("a", "quick"))
    await stage.decide(turn_id, "a", decision="deny")
    await stage.ended(turn_id)
    await in_database(lambda: save(tool_name="asked", values={"approval": "never"}))
    stage.play([call("b", "asked")], [text("Fine.")])
    assert (await stage.run()).status == "completed"
    assert props.started == ["b"]


async def test_the_approval_limit_is_the_administrators_too(stage: Stage, operator):
    await in_database(
        lambda: governance_services.save_default_policy(
            values={"approval_timeout_ms": 40, "approval": "always"}, by=operator
        )
    )
    stage.play([call("a", "quick")], [text("Fine.")])
    turn = await stage.run()
    assert (await stage.calls(turn.pk))["a"].status == "expired"


async def test_a_snapshot_has_the_question_and_later_its_answer(stage: Stage):
    turn_id, _ = await waiting(stage, call("a", "asked", text="x" * 5000))
    seen = await turn_selectors.snapshot(conversation_id=stage.id, user=stage.user)
    (shown,) = seen["active_turns"][0]["calls"]
    assert (shown["status"], shown["input"]) == ("awaiting_approval", {"text": "x" * 5000})
    question = shown["approval"]
    assert (question["decision"], question["rule"]) == (None, "once_per_conversation")
    assert question["expires_at"] == stage.listener.find("tool_approval")["expires_at"]
    await stage.decide(turn_id, "a", decision="deny", reason="no")
    await stage.ended(turn_id)
    seen = await turn_selectors.snapshot(conversation_id=stage.id, user=stage.user)
    question = seen["calls"][0]["approval"]
    assert (question["decision"], question["by"], question["reason"]) == ("denied", "ada", "no")


async def test_a_decision_without_a_nudge_is_obeyed_at_the_next_poll(
    stage: Stage, props: Props, settings
):
    settings.TURNS_POLL_INTERVAL = 0.05
    turn_id, _ = await waiting(stage, call("a", "asked"))

    def elsewhere():
        row = Approval.objects.get()
        Approval.objects.update(decision="approved", by_name="bob", decided_at=timezone.now())
        recorder.record_approval(group=row.group, call_id=row.call_id)

    await in_database(elsewhere)
    await stage.listener.until("tool_start", tool_id="a")
    await stage.listener.until_ended(turn_id)
    assert props.started == ["a"]


async def test_a_question_that_waits_does_not_hold_up_the_next_look_for_cancels(stage: Stage):
    await waiting(stage, call("a", "asked"))
    supervisor = (await runtime.ensure_started()).supervisor
    let_go = threading.Event()
    held = [asyncio.create_task(in_database(let_go.wait))]  # a write that waits for its row
    held += [asyncio.create_task(asyncio.to_thread(let_go.wait)) for _ in range(40)]  # slow work
    try:
        async with asyncio.timeout(PATIENCE):
            await supervisor.check_requests()
        assert not any(task.done() for task in held)
    finally:
        let_go.set()
        await asyncio.gather(*held)


@pytest.mark.parametrize("decision", ["", "approved", "denied"])
def test_after_a_restart_nothing_undecided_or_unstarted_runs(ada, decision):
    planted = Planted(ada)
    turn = planted.turn("running", owner=None)
    planted.message(turn, "user", said("question"))
    planted.message(turn, "assistant", use("a", "asked"))
    status = "pending" if decision == "approved" else "awaiting_approval"
    planted.call(turn, "a", status, tool_name="asked")
    Approval.objects.create(
        group=str(turn.pk),
        call_id="a",
        scope=str(planted.id),
        tool_name="asked",
        requested_at=timezone.now(),
        expires_at=timezone.now() + timedelta(minutes=5),
        decision=decision,
        reason="no way" if decision == "denied" else "",
    )
    process_registry.register()
    recovery.recover()
    made = selectors.call(str(turn.pk), "a")
    assert made.disposition == "not_started"
    assert made.status == ("denied" if decision == "denied" else "not_started")
    assert ("no way" in made.result) is (decision == "denied")
    row = Approval.objects.get()
    assert row.decision == (decision or "interrupted")


async def test_a_late_decision_after_a_restart_is_refused_visibly(stage: Stage, ada):
    def plant():
        planted = Planted(ada)
        turn = planted.turn("running", owner=None)
        planted.message(turn, "assistant", use("a", "asked"))
        planted.call(turn, "a", "awaiting_approval", tool_name="asked")
        Approval.objects.create(
            group=str(turn.pk),
            call_id="a",
            scope=str(planted.id),
            tool_name="asked",
            requested_at=timezone.now(),
        )
        return turn.pk

    turn_id = await in_database(plant)
    await runtime.ensure_started()
    late = await decide_tool(turn_id=turn_id, tool_id="a", user=ada, decision="approve")
    assert (late.outcome, late.status) == (FINISHED, "interrupted")


async def test_the_history_is_valid_whatever_was_decided(stage: Stage):
    calls = [call(name, "asked_held") for name in "abcd"]
    stage.play(calls, [text("Fine.")])
    turn_id = await stage.say()
    await stage.asked(turn_id, *"abcd")
    await stage.decide(turn_id, "b", decision="deny")
    await stage.cancel_call(turn_id, "c")
    await stage.decide(turn_id, "d")
    await stage.running(turn_id, "d")
    await stage.cancel_call(turn_id, "d")
    past = timezone.now() - timedelta(seconds=1)
    await in_database(lambda: Approval.objects.filter(call_id="a").update(expires_at=past))
    await stage.decide(turn_id, "a")
    await stage.ended(turn_id)
    assert {n: c.status for n, c in (await stage.calls(turn_id)).items()} == {
        "a": "expired",
        "b": "denied",
        "c": "cancelled",
        "d": "cancelled",
    }
    assert violations(await stage.history()) == []


@pytest.mark.parametrize(
    ("agents_rule", "tool", "rule"),
    [
        ("always", "quick", "always"),
        ("once_per_conversation", "asked_held", "always"),
        ("once_per_conversation", "quick", "once_per_conversation"),
    ],
)
async def test_an_agent_makes_a_rule_stricter_and_never_weaker(
    stage: Stage, agents_rule: str, tool: str, rule: str
):
    def give_agent():
        Agent.objects.create(name="careful", approval=agents_rule)
        Conversation.objects.filter(pk=stage.id).update(agent="careful")

    await in_database(give_agent)
    turn_id, _ = await waiting(stage, call("a", tool))
    assert stage.listener.find("tool_approval")["rule"] == rule
    await stage.decide(turn_id, "a", decision="deny")
    await stage.ended(turn_id)


OFF = "GOVERNANCE_EXEC_ENABLED"


def told_of(model, name):
    [spec] = [tool for tool in model.requests[0].tools if tool.name == name]
    return spec.description


async def test_nobody_is_asked_about_a_tool_that_is_switched_off(stage: Stage, settings):
    settings.GOVERNANCE_EXEC_ENABLED = False
    model = stage.play([call("a", "exec", command="echo hi")], [text("Not here.")])
    turn_id = await stage.say()
    assert (await stage.ended(turn_id)).status == "completed"
    assert await stage.questions(turn_id) == []
    result = stage.listener.find("tool_result", tool_id="a")
    assert (result["error_type"], result["disposition"]) == ("disabled", "not_started")
    assert OFF in model.requests[1].messages[-1].tool_results[0].content
    assert told_of(model, "exec").startswith("Do not use it now. Running commands is switched off")


async def test_the_model_is_told_which_tools_an_administrator_has_switched_off(
    stage: Stage, props: Props
):
    off = {"tool_enabled": False}
    await in_database(
        partial(governance_services.save_tool_policy, tool_name="asked", values=off, by=None)
    )
    model = stage.play([call("a", "asked", text="x")], [text("Not here.")])
    turn_id = await stage.say()
    assert (await stage.ended(turn_id)).status == "completed"
    assert await stage.questions(turn_id) == []
    assert props.started == []
    assert stage.listener.find("tool_result", tool_id="a")["error_type"] == "disabled"
    assert "switched off by an administrator" in told_of(model, "asked")
    assert "switched off" not in told_of(model, "wait")
