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
from tests.turns.row_factory import RowFactory, make_question, said, use
from tests.turns.support import ChatDriver, FakeTools, in_database, is_paused
from turns import selectors as turn_selectors
from turns import services
from turns.core.repairs import violations
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


async def waiting(chat: ChatDriver, *calls, after=None):
    """Begin a turn with these calls; return its id and the chat model once the first waits for a person."""
    model = chat.use_script(list(calls), after or [text("Fine.")])
    turn_id = await chat.say()
    await chat.asked(turn_id, calls[0].id)
    return turn_id, model


async def test_an_approved_call_runs_and_tells_who_let_it(chat: ChatDriver, fake_tools: FakeTools):
    turn_id, model = await waiting(chat, call("a", "asked", text="whole input"))
    asked = chat.sink.find("tool_approval", tool_id="a")
    assert asked["input"] == {"text": "whole input"}
    assert (asked["rule"], asked["can_remember"]) == ("once_per_conversation", True)
    assert asked["description"] == "Answer with what the script says."
    assert fake_tools.started == []
    receipt = await chat.decide(turn_id, "a", reason="go ahead")
    assert (receipt.outcome, receipt.status) == (ACCEPTED, "approved")
    assert (await chat.ended(turn_id)).status == "completed"
    decided = chat.sink.find("tool_decision", tool_id="a")
    assert {n: decided[n] for n in ("decision", "by", "reason", "remember")} == {
        "decision": "approved",
        "by": "ada",
        "reason": "go ahead",
        "remember": False,
    }
    assert fake_tools.started == ["a"]
    (row,) = await chat.questions(turn_id)
    assert (row.decision, row.by_name, row.input) == ("approved", "ada", {"text": "whole input"})
    assert model.requests[1].messages[-1].tool_results[0].content == "whole input"


async def test_what_is_shown_is_what_runs_even_where_a_database_takes_no_such_text(
    chat: ChatDriver,
):
    """Neither NUL nor a name that is hidden behind another one gets past a person."""
    ran = []

    async def send(to: dict[str, str]) -> str:
        """Send something."""
        ran.append(to)
        return "sent"

    registry.register(make_tool(send, approval="always"))
    try:
        calls = [
            call("a", "send", to={"name": "/etc/passwd\0.png"}),
            call("b", "send", to={"to\0": "mallory", "to\ufffd": "bob"}),
            call("c", "send", to={"name": "half \ud800"}),
        ]
        turn_id, model = await waiting(chat, *calls)
        await chat.decide(turn_id, "a")
        await chat.ended(turn_id)
    finally:
        registry.unregister("send")
    asked = chat.sink.find("tool_approval", tool_id="a")
    (question,) = await chat.questions(turn_id)
    rows = await chat.calls(turn_id)
    assert asked["input"] == question.input == rows["a"].input == {"to": ran[0]}
    assert ran == [{"name": "/etc/passwd\ufffd.png"}]
    assert {rows[name].error_type for name in "bc"} == {"invalid_input"}
    read = [result.content for result in model.requests[1].messages[-1].tool_results]
    assert "two names in the arguments are the same" in read[1]
    assert "not valid text" in read[2]


async def test_a_denied_call_never_runs_and_the_agent_reads_why(
    chat: ChatDriver, fake_tools: FakeTools
):
    turn_id, model = await waiting(chat, call("a", "asked"))
    receipt = await chat.decide(turn_id, "a", decision="deny", reason="not on a Friday")
    assert (receipt.outcome, receipt.status) == (ACCEPTED, "denied")
    assert (await chat.ended(turn_id)).status == "completed"
    made = (await chat.calls(turn_id))["a"]
    assert (made.status, made.error_type, made.disposition) == ("denied", "denied", "not_started")
    read = model.requests[1].messages[-1].tool_results[0]
    assert read.is_error
    assert read.content.startswith("[DENIED]")
    assert "not on a Friday" in read.content
    assert fake_tools.started == []


async def test_nobody_answers_and_it_is_expired_not_denied(
    chat: ChatDriver, fake_tools: FakeTools, settings
):
    settings.GOVERNANCE_APPROVAL_TIMEOUT = 0.05
    model = chat.use_script([call("a", "asked"), call("b", "quick")], [text("Fine.")])
    turn = await chat.run()
    made = (await chat.calls(turn.pk))["a"]
    assert (made.status, made.error_type, made.disposition) == ("expired", "expired", "not_started")
    read = model.requests[1].messages[-1].tool_results[0].content
    assert read.startswith("[EXPIRED]")
    decided = chat.sink.find("tool_decision", tool_id="a")
    assert (decided["decision"], decided["by"]) == ("expired", "")
    assert fake_tools.started == ["b"]
    late = await chat.decide(turn.pk, "a")
    assert (late.outcome, late.status) == (FINISHED, "expired")
    assert fake_tools.started == ["b"]


async def test_a_no_after_the_expiry_is_kept_as_a_no(chat: ChatDriver, settings):
    settings.GOVERNANCE_APPROVAL_TIMEOUT = 0.05
    turn = await chat.play([call("a", "asked")], [text("Fine.")])
    for _ in range(2):
        late = await chat.decide(turn.pk, "a", decision="deny", reason="I was at lunch")
        assert (late.outcome, late.status) == (FINISHED, "expired")
    counted, kept = await chat.questions(turn.pk)
    assert (counted.decision, counted.is_late) == ("expired", False)
    assert (kept.decision, kept.by_name, kept.reason, kept.is_late) == (
        "denied",
        "ada",
        "I was at lunch",
        True,
    )
    assert (await chat.calls(turn.pk))["a"].status == "expired"


async def test_a_yes_after_its_time_counts_as_expired_even_before_the_owner_has_noticed(
    chat: ChatDriver, fake_tools: FakeTools
):
    turn_id, _ = await waiting(chat, call("a", "asked"))
    past = timezone.now() - timedelta(seconds=1)
    await in_database(lambda: Approval.objects.update(expires_at=past))
    late = await chat.decide(turn_id, "a")
    assert (late.outcome, late.status) == (FINISHED, "expired")
    await chat.ended(turn_id)
    assert (await chat.calls(turn_id))["a"].status == "expired"
    assert fake_tools.started == []


@pytest.mark.parametrize("whole_turn", [True, False])
async def test_a_cancel_while_it_waits_is_a_cancel_and_no_denial(
    chat: ChatDriver, fake_tools: FakeTools, whole_turn: bool
):
    turn_id, _ = await waiting(chat, call("a", "asked_blocked"), call("b", "quick"))
    if whole_turn:
        receipt = await chat.cancel(turn_id)
    else:
        receipt = await chat.cancel_call(turn_id, "a")
    assert receipt.outcome is ACCEPTED
    turn = await chat.ended(turn_id)
    assert turn.status == ("cancelled" if whole_turn else "completed")
    made = (await chat.calls(turn_id))["a"]
    assert (made.status, made.error_type, made.disposition) == (
        "cancelled",
        "cancelled",
        "not_started",
    )
    assert made.result.startswith("[CANCELLED]")
    (row,) = await chat.questions(turn_id)
    assert (row.decision, row.by_name, row.input) == ("cancelled", "", {})
    assert not chat.sink.find("tool_decision", tool_id="a")
    late = await chat.decide(turn_id, "a")
    assert (late.outcome, late.status) == (FINISHED, "cancelled")
    assert "a" not in fake_tools.started


async def test_a_decision_is_refused_once_the_turn_is_to_end(
    chat: ChatDriver, fake_tools: FakeTools
):
    turn_id, _ = await waiting(chat, call("a", "asked"))
    cancel, decision = await asyncio.gather(chat.cancel(turn_id), chat.decide(turn_id, "a"))
    assert cancel.outcome is ACCEPTED
    await chat.ended(turn_id)
    made = (await chat.calls(turn_id))["a"]
    if (
        decision.outcome is ACCEPTED
    ):  # it was first: then it may have run, and the cancel came after that
        assert made.status in ("not_started", "cancelled", "succeeded")
    else:
        assert (decision.status, made.status) == ("cancelled", "cancelled")
        assert fake_tools.started == []


async def test_the_other_calls_of_the_step_go_on(chat: ChatDriver, fake_tools: FakeTools):
    turn_id, _ = await waiting(chat, call("a", "asked"), call("b", "quick"), call("c", "held"))
    await chat.sink.until("tool_result", tool_id="b")
    await chat.running(turn_id, "c")
    (active,) = await turn_selectors.active_turns(user=chat.user)
    assert {t["tool_id"]: t["status"] for t in active["current_tools"]} == {
        "a": "awaiting_approval",
        "c": "running",
    }
    fake_tools.open("c")
    await chat.sink.until("tool_result", tool_id="c")
    await chat.decide(turn_id, "a")
    assert (await chat.ended(turn_id)).status == "completed"
    assert fake_tools.started[-1] == "a"


async def test_the_clocks_stand_still_while_a_person_is_asked(
    chat: ChatDriver, fake_tools: FakeTools, settings
):
    settings.TURNS_TURN_TIMEOUT = 60.0
    turn_id, _ = await waiting(chat, call("a", "asked_held"), call("b", "asked_held"))
    await chat.asked(turn_id, "b")
    (live,) = (await runtime.ensure_started()).supervisor.live_turns
    clock = live.runner.clock
    await eventually(lambda: is_paused(clock))
    left, later = clock.time_left, asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.05, later.set_result, None)
    await later
    assert (is_paused(clock), clock.time_left) == (True, left)
    await chat.decide(turn_id, "a")
    await chat.running(turn_id, "a")
    assert is_paused(clock)  # the other question is open
    await chat.decide(turn_id, "b", decision="deny")
    await chat.sink.until("tool_result", tool_id="b")
    assert not is_paused(clock)
    assert clock.time_left <= left
    fake_tools.open("a")
    await chat.ended(turn_id)


async def test_two_people_at_once_are_one_decision_and_one_execution(
    chat: ChatDriver, fake_tools: FakeTools, judge
):
    turn_id, _ = await waiting(chat, call("a", "asked"))
    receipts = await asyncio.gather(
        *(chat.decide(turn_id, "a", user=user) for user in (chat.user, judge) for _ in range(3))
    )
    assert [r.outcome for r in receipts].count(ACCEPTED) == 1
    assert {r.outcome for r in receipts} == {ACCEPTED, FINISHED}
    assert {r.status for r in receipts} == {"approved"}
    await chat.ended(turn_id)
    assert fake_tools.started == ["a"]
    assert [e["type"] for e in chat.sink.events].count("tool_decision") == 1


async def test_a_yes_and_a_no_at_once_are_whatever_came_first(
    chat: ChatDriver, fake_tools: FakeTools
):
    turn_id, _ = await waiting(chat, call("a", "asked"))
    yes, no = await asyncio.gather(
        chat.decide(turn_id, "a"), chat.decide(turn_id, "a", decision="deny")
    )
    assert {yes.outcome, no.outcome} == {ACCEPTED, FINISHED}
    assert yes.status == no.status
    await chat.ended(turn_id)
    assert fake_tools.started == (["a"] if yes.outcome is ACCEPTED else [])


async def test_a_repeated_operation_has_its_first_answer(chat: ChatDriver, fake_tools: FakeTools):
    turn_id, _ = await waiting(chat, call("a", "asked"))
    receipts = [await chat.decide(turn_id, "a", op_id="op") for _ in range(2)]
    assert [(r.outcome, r.status) for r in receipts] == [(ACCEPTED, "approved")] * 2
    await chat.ended(turn_id)
    again = await chat.decide(turn_id, "a", op_id="op")
    other = [await chat.decide(turn_id, "a", op_id="late") for _ in range(2)]
    assert (again.outcome, again.status) == (ACCEPTED, "approved")
    assert [(r.outcome, r.status) for r in other] == [(FINISHED, "approved")] * 2
    assert fake_tools.started == ["a"]


async def test_only_the_owner_and_those_who_may_decide_for_all(
    chat: ChatDriver, fake_tools: FakeTools, eve, operator, judge
):
    turn_id, _ = await waiting(chat, call("a", "asked"))
    await in_database(
        lambda: operator.user_permissions.remove(Permission.objects.get(codename="decide_any"))
    )
    for stranger in (eve, operator):
        assert (await chat.decide(turn_id, "a", user=stranger)).outcome is NOT_FOUND
    assert (await chat.decide(turn_id, "nobody")).outcome is NOT_FOUND
    (row,) = await chat.questions(turn_id)
    assert row.decision == ""
    await in_database(
        lambda: operator.user_permissions.add(Permission.objects.get(codename="decide_any"))
    )
    assert (await chat.decide(turn_id, "a", user=operator)).outcome is ACCEPTED
    await chat.ended(turn_id)
    assert chat.sink.find("tool_decision")["by"] == "olga"


async def test_a_call_that_nobody_was_asked_about_cannot_be_decided(
    chat: ChatDriver, fake_tools: FakeTools
):
    turn_id = await chat.begin([call("a", "held")], [text("Fine.")])
    receipt = await chat.decide(turn_id, "a", decision="deny")
    assert (receipt.outcome, receipt.status) == (FINISHED, "running")
    fake_tools.open("a")
    await chat.ended(turn_id)


async def test_a_yes_for_the_conversation_lets_later_calls_of_the_tool_through(
    chat: ChatDriver, fake_tools: FakeTools
):
    later = [call("c", "asked", text="other input"), call("d", "asked_held")]
    chat.use_script([call("a", "asked"), call("b", "asked")], later, [text("Fine.")])
    turn_id = await chat.say()
    await chat.asked(turn_id, "a", "b")
    await chat.decide(turn_id, "a", remember="conversation")
    other = await chat.sink.until("tool_decision", tool_id="b")  # it waited for the same
    assert (other["decision"], other["by"], other["remember"]) == ("approved", "ada", True)
    await chat.asked(turn_id, "d")  # another tool is asked about
    await chat.sink.until("tool_result", tool_id="c")
    fake_tools.open("d")
    await chat.decide(turn_id, "d", remember="conversation")
    await chat.ended(turn_id)
    assert not chat.sink.find("tool_approval", tool_id="c")
    rows = {row.call_id: row for row in await chat.questions(turn_id)}
    assert {name: row.remember for name, row in rows.items()} == {"a": True, "b": True, "d": False}
    assert sorted(fake_tools.started[:2]) == ["a", "b"]


async def test_always_means_every_call(chat: ChatDriver, fake_tools: FakeTools):
    fake_tools.open_all()
    turn_id, _ = await waiting(chat, call("a", "asked_held"), after=[call("b", "asked_held")])
    await chat.decide(turn_id, "a", remember="conversation")
    await chat.asked(turn_id, "b")
    await chat.decide(turn_id, "b")
    await chat.ended(turn_id)
    assert fake_tools.started == ["a", "b"]


async def test_a_yes_for_one_conversation_says_nothing_of_another(chat: ChatDriver, ada):
    turn_id, _ = await waiting(chat, call("a", "asked"))
    await chat.decide(turn_id, "a", remember="conversation")
    await chat.ended(turn_id)
    other = await services.create_conversation(user=ada)
    second = ChatDriver(user=ada, conversation_id=other.id, sink=chat.sink)
    turn_id, _ = await waiting(second, call("b", "asked"))
    await second.decide(turn_id, "b", decision="deny")
    await second.ended(turn_id)


def change_tool(fake_tools: FakeTools) -> None:
    registry.unregister("asked")
    registry.register(
        make_tool(
            fake_tools.quick,
            name="asked",
            description="Something else.",
            approval="once_per_conversation",
        )
    )


async def test_a_tool_that_has_changed_since_is_asked_about_again(
    chat: ChatDriver, fake_tools: FakeTools
):
    turn_id, _ = await waiting(chat, call("a", "asked", text="x"))
    change_tool(fake_tools)
    await chat.decide(turn_id, "a", remember="conversation")
    await chat.sink.until("tool_approval", tool_id="a", description="Something else.")
    assert fake_tools.started == []
    await chat.decide(turn_id, "a", decision="deny")
    await chat.ended(turn_id)
    first, again = await chat.questions(turn_id)
    assert (first.decision, again.decision) == ("approved", "denied")
    assert first.definition != again.definition
    assert fake_tools.started == []


async def test_a_yes_for_the_conversation_covers_no_question_about_a_tool_that_has_changed(
    chat: ChatDriver, fake_tools: FakeTools
):
    turn_id, _ = await waiting(chat, call("a", "asked"), call("b", "asked"))
    await chat.asked(turn_id, "b")
    change_tool(fake_tools)
    await chat.decide(turn_id, "b")
    await chat.sink.until("tool_approval", tool_id="b", description="Something else.")
    await chat.decide(turn_id, "a", remember="conversation")  # which has seen the tool as it was
    await chat.sink.until("tool_approval", tool_id="a", description="Something else.")
    newest = {row.call_id: row.decision for row in await chat.questions(turn_id)}
    assert newest == {"a": "", "b": ""}
    for name in "ab":
        await chat.decide(turn_id, name, decision="deny")
    await chat.ended(turn_id)
    assert fake_tools.started == []


async def test_an_earlier_yes_does_not_count_for_a_tool_that_has_changed(
    chat: ChatDriver, fake_tools: FakeTools
):
    turn_id, _ = await waiting(chat, call("a", "asked"))
    await chat.decide(turn_id, "a", remember="conversation")
    await chat.ended(turn_id)
    change_tool(fake_tools)
    turn_id, _ = await waiting(chat, call("b", "asked"))
    await chat.decide(turn_id, "b", decision="deny")
    await chat.ended(turn_id)


async def test_an_administrators_rule_is_live_and_wins(
    chat: ChatDriver, fake_tools: FakeTools, operator
):
    save = partial(governance_services.save_tool_policy, by=operator)
    await in_database(lambda: save(tool_name="quick", values={"approval": "always"}))
    turn_id, _ = await waiting(chat, call("a", "quick"))
    await chat.decide(turn_id, "a", decision="deny")
    await chat.ended(turn_id)
    await in_database(lambda: save(tool_name="asked", values={"approval": "never"}))
    chat.use_script([call("b", "asked")], [text("Fine.")])
    assert (await chat.run()).status == "completed"
    assert fake_tools.started == ["b"]


async def test_the_approval_limit_is_the_administrators_too(chat: ChatDriver, operator):
    await in_database(
        lambda: governance_services.save_default_policy(
            values={"approval_timeout_ms": 40, "approval": "always"}, by=operator
        )
    )
    turn = await chat.play([call("a", "quick")], [text("Fine.")])
    assert (await chat.calls(turn.pk))["a"].status == "expired"


async def test_a_snapshot_has_the_question_and_later_its_answer(chat: ChatDriver):
    turn_id, _ = await waiting(chat, call("a", "asked", text="x" * 5000))
    seen = await turn_selectors.snapshot(conversation_id=chat.id, user=chat.user)
    (shown,) = seen["active_turns"][0]["calls"]
    assert (shown["status"], shown["input"]) == ("awaiting_approval", {"text": "x" * 5000})
    question = shown["approval"]
    assert (question["decision"], question["rule"]) == (None, "once_per_conversation")
    assert question["expires_at"] == chat.sink.find("tool_approval")["expires_at"]
    await chat.decide(turn_id, "a", decision="deny", reason="no")
    await chat.ended(turn_id)
    seen = await turn_selectors.snapshot(conversation_id=chat.id, user=chat.user)
    question = seen["calls"][0]["approval"]
    assert (question["decision"], question["by"], question["reason"]) == ("denied", "ada", "no")


async def test_a_decision_without_a_nudge_is_obeyed_at_the_next_poll(
    chat: ChatDriver, fake_tools: FakeTools, settings
):
    settings.TURNS_POLL_INTERVAL = 0.05
    turn_id, _ = await waiting(chat, call("a", "asked"))

    def elsewhere():
        row = Approval.objects.get()
        Approval.objects.update(decision="approved", by_name="bob", decided_at=timezone.now())
        recorder.record_approval(group=row.group, call_id=row.call_id)

    await in_database(elsewhere)
    await chat.sink.until("tool_start", tool_id="a")
    await chat.sink.until_ended(turn_id)
    assert fake_tools.started == ["a"]


async def test_a_question_that_waits_does_not_hold_up_the_next_look_for_cancels(chat: ChatDriver):
    await waiting(chat, call("a", "asked"))
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
    factory = RowFactory(ada)
    turn = factory.turn("running", owner=None)
    factory.message(turn, "user", said("question"))
    factory.message(turn, "assistant", use("a", "asked"))
    status = "pending" if decision == "approved" else "awaiting_approval"
    factory.call(turn, "a", status, tool_name="asked")
    make_question(
        turn,
        "a",
        tool_name="asked",
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


async def test_a_late_decision_after_a_restart_is_refused_visibly(chat: ChatDriver, ada):
    def plant():
        factory = RowFactory(ada)
        turn = factory.turn("running", owner=None)
        factory.message(turn, "assistant", use("a", "asked"))
        factory.call(turn, "a", "awaiting_approval", tool_name="asked")
        make_question(turn, "a", tool_name="asked")
        return turn.pk

    turn_id = await in_database(plant)
    await runtime.ensure_started()
    late = await decide_tool(turn_id=turn_id, tool_id="a", user=ada, decision="approve")
    assert (late.outcome, late.status) == (FINISHED, "interrupted")


async def test_the_history_is_valid_whatever_was_decided(chat: ChatDriver):
    calls = [call(name, "asked_held") for name in "abcd"]
    chat.use_script(calls, [text("Fine.")])
    turn_id = await chat.say()
    await chat.asked(turn_id, *"abcd")
    await chat.decide(turn_id, "b", decision="deny")
    await chat.cancel_call(turn_id, "c")
    await chat.decide(turn_id, "d")
    await chat.running(turn_id, "d")
    await chat.cancel_call(turn_id, "d")
    past = timezone.now() - timedelta(seconds=1)
    await in_database(lambda: Approval.objects.filter(call_id="a").update(expires_at=past))
    await chat.decide(turn_id, "a")
    await chat.ended(turn_id)
    assert {n: c.status for n, c in (await chat.calls(turn_id)).items()} == {
        "a": "expired",
        "b": "denied",
        "c": "cancelled",
        "d": "cancelled",
    }
    assert violations(await chat.history()) == []


@pytest.mark.parametrize(
    ("agents_rule", "tool", "rule"),
    [
        ("always", "quick", "always"),
        ("once_per_conversation", "asked_held", "always"),
        ("once_per_conversation", "quick", "once_per_conversation"),
    ],
)
async def test_an_agent_makes_a_rule_stricter_and_never_weaker(
    chat: ChatDriver, agents_rule: str, tool: str, rule: str
):
    def give_agent():
        Agent.objects.create(name="careful", approval=agents_rule)
        Conversation.objects.filter(pk=chat.id).update(agent="careful")

    await in_database(give_agent)
    turn_id, _ = await waiting(chat, call("a", tool))
    assert chat.sink.find("tool_approval")["rule"] == rule
    await chat.decide(turn_id, "a", decision="deny")
    await chat.ended(turn_id)


OFF = "GOVERNANCE_EXEC_ENABLED"


def told_of(model, name):
    [spec] = [tool for tool in model.requests[0].tools if tool.name == name]
    return spec.description


async def test_nobody_is_asked_about_a_tool_that_is_switched_off(chat: ChatDriver, settings):
    settings.GOVERNANCE_EXEC_ENABLED = False
    model = chat.use_script([call("a", "exec", command="echo hi")], [text("Not here.")])
    turn_id = await chat.say()
    assert (await chat.ended(turn_id)).status == "completed"
    assert await chat.questions(turn_id) == []
    result = chat.sink.find("tool_result", tool_id="a")
    assert (result["error_type"], result["disposition"]) == ("disabled", "not_started")
    assert OFF in model.requests[1].messages[-1].tool_results[0].content
    assert told_of(model, "exec").startswith("Do not use it now. Running commands is switched off")


async def test_the_model_is_told_which_tools_an_administrator_has_switched_off(
    chat: ChatDriver, fake_tools: FakeTools
):
    off = {"tool_enabled": False}
    await in_database(
        partial(governance_services.save_tool_policy, tool_name="asked", values=off, by=None)
    )
    model = chat.use_script([call("a", "asked", text="x")], [text("Not here.")])
    turn_id = await chat.say()
    assert (await chat.ended(turn_id)).status == "completed"
    assert await chat.questions(turn_id) == []
    assert fake_tools.started == []
    assert chat.sink.find("tool_result", tool_id="a")["error_type"] == "disabled"
    assert "switched off by an administrator" in told_of(model, "asked")
    assert "switched off" not in told_of(model, "wait")
