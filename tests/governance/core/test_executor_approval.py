"""Calls that wait for a person, on the core alone: what is asked, who is first, what never runs (D1–D4)."""

import asyncio
import threading
from contextlib import suppress

import pytest

from governance import (
    ApprovalExpired,
    ApprovalRule,
    CallStatus,
    Decision,
    Disposition,
    ErrorType,
    Host,
    Limits,
    PolicyLevels,
    ToolCall,
    ToolCallDenied,
    ToolContext,
    ToolExecutor,
    ToolLimits,
    ToolRegistry,
    Verdict,
    make_tool,
    resolve,
    tool,
)
from governance.core.forms import FormRefused
from tests.governance.core.support import (
    BY_USER,
    EditedLevels,
    ExecutorHarness,
    FakeApprover,
    advance,
    on_manual_clock,
    settle,
)

NEVER, ONCE, ALWAYS = ApprovalRule


def asking(**declared):
    approver, policies = FakeApprover(), EditedLevels()
    harness = ExecutorHarness(approver=approver, policies=policies, limits=Limits(max_running=1))
    harness.policies = policies
    harness.gated("asked", **{"approval": "always", "timeout": 5, **declared})
    return harness, approver


@on_manual_clock
async def test_a_call_waits_without_a_clock_and_without_a_place_and_runs_when_allowed():
    harness, approver = asking()
    harness.gated("other")
    act = harness.call("asked")
    await settle()
    assert act.live.status is CallStatus.AWAITING_APPROVAL
    await advance(500)  # far beyond its limit
    other = await harness.call("other").running()  # of one place there is
    other.body.release()
    await other.outcome()
    approver.say(act.live, Verdict.APPROVED, by="ada")
    await act.running()
    assert (act.live.elapsed, act.live.timeout) == (0.0, 5)
    act.body.release("done")
    outcome = await act.outcome()
    assert (outcome.status, outcome.result) == (CallStatus.SUCCEEDED, "done")


def allow(harness, act):
    harness.approver.say(act.live, Verdict.APPROVED)


def deny(harness, act):
    harness.approver.say(act.live, Verdict.DENIED, reason="too risky")


def allow_untold(harness, act):
    """Store an answer that the call has not heard of yet."""
    harness.approver.say(act.live, Verdict.APPROVED, tell=False)


def deny_untold(harness, act):
    harness.approver.say(act.live, Verdict.DENIED, tell=False)


def cancel(_harness, act):
    assert act.live.cancel(BY_USER)


def take_away(harness, _act):
    harness.registry.unregister("asked")


def switch_off(harness, _act):
    harness.policies.edit(override=ToolLimits(enabled=False))


# What happens while it waits (a number lets so many seconds pass), and what becomes of it.
NOT_RUN = {
    "denied": ([deny], CallStatus.DENIED, ErrorType.DENIED, "too risky"),
    "not decided": ([599, 1], CallStatus.EXPIRED, ErrorType.EXPIRED, "answered within 600s"),
    "cancelled": ([cancel], CallStatus.CANCELLED, ErrorType.CANCELLED, "was not started"),
    "allowed, then cancelled": ([allow_untold, cancel], CallStatus.NOT_STARTED, "not_started", ""),
    "denied, then cancelled": ([deny_untold, cancel], CallStatus.DENIED, ErrorType.DENIED, ""),
    "allowed without its tool": ([take_away, allow], CallStatus.FAILED, "unknown_tool", ""),
    "allowed, but switched off": ([switch_off, allow], CallStatus.FAILED, "disabled", ""),
}
ERRORS = {CallStatus.DENIED: ToolCallDenied, CallStatus.EXPIRED: ApprovalExpired}


@pytest.mark.parametrize(("steps", "status", "error", "words"), NOT_RUN.values(), ids=NOT_RUN)
@on_manual_clock
async def test_what_becomes_of_a_call_that_never_runs(steps, status, error, words):
    harness, _ = asking()
    act = harness.call("asked")
    await settle()
    for step in steps:
        assert not act.task.done()
        if callable(step):
            step(harness, act)
        else:
            await advance(step)
    await settle()
    assert act.task.done()
    outcome = await act.outcome()
    assert (outcome.status, outcome.error_type) == (status, error)
    assert outcome.disposition is Disposition.NOT_STARTED
    assert words in outcome.result
    assert outcome.result.startswith("[DENIED]") is (status is CallStatus.DENIED)
    assert isinstance(outcome.error, ERRORS.get(status, object))
    assert (outcome.ended_by is BY_USER) is (
        status in {CallStatus.CANCELLED, CallStatus.NOT_STARTED}
    )
    assert act.body.runs == 0
    assert harness.observer.names() == ["ended"]


@on_manual_clock
async def test_a_person_who_was_faster_than_the_expiry_counts():
    harness, approver = asking()
    act = harness.call("asked")
    await settle()
    approver.say(act.live, Verdict.APPROVED, tell=False)
    await advance(600)
    await act.running()
    act.body.release()
    assert (await act.outcome()).status is CallStatus.SUCCEEDED


@on_manual_clock
async def test_a_decision_on_another_question_is_none():
    harness, approver = asking()
    act = harness.call("asked")
    await settle()
    act.live.answer(Decision(verdict=Verdict.APPROVED, question="another"))
    await settle()
    assert act.live.status is CallStatus.AWAITING_APPROVAL
    approver.say(act.live, Verdict.DENIED)
    await act.outcome()


async def test_an_answer_may_come_from_any_thread():
    harness, approver = asking()
    act = harness.call("asked")
    await approver.asked.wait()
    threading.Thread(target=approver.say, args=(act.live, Verdict.DENIED)).start()
    assert (await act.outcome()).status is CallStatus.DENIED


@pytest.mark.parametrize("steps", range(4))
@on_manual_clock
async def test_a_call_ends_at_each_of_the_first_steps_of_a_form_that_it_left_behind(steps):
    """A person who answered the form would answer to nobody."""
    asking = []

    async def leave_a_form(context: ToolContext) -> str:
        async def ask() -> None:
            with suppress(FormRefused):
                await context.ask_form({"message": "Go on?", "fields": []})

        asking.append(asyncio.create_task(ask()))
        for _ in range(steps):
            await asyncio.sleep(0)
        return "done"

    harness = ExecutorHarness(make_tool(leave_a_form), approver=FakeApprover())
    act = harness.call("leave_a_form")
    await settle()
    assert act.task.done(), "the call waits for a person"
    assert (await act.outcome()).result == "done"
    assert asking[0].done()


async def test_without_anybody_to_ask_it_is_refused_in_words():
    harness = ExecutorHarness()
    harness.gated("asked", approval="once_per_conversation")
    outcome = await harness.run("asked")
    assert (outcome.status, outcome.error_type, outcome.disposition) == (
        CallStatus.FAILED,
        ErrorType.NO_APPROVER,
        Disposition.NOT_STARTED,
    )
    assert "nobody can be asked here" in outcome.result


async def test_an_approver_that_fails_ends_the_call_before_it_runs():
    harness, approver = asking()
    approver.error = RuntimeError("the database is away")
    act = harness.call("asked")
    with pytest.raises(RuntimeError):
        await act.outcome()
    assert act.body.runs == 0


async def test_wrong_arguments_are_refused_before_anybody_is_asked():
    harness, approver = asking()
    outcome = await harness.run("asked", input={"nonsense": 1})
    assert outcome.error_type is ErrorType.INVALID_INPUT
    assert not approver.calls


@on_manual_clock
async def test_a_tool_that_changed_while_it_waited_is_asked_about_again():
    harness, approver = asking()
    act = harness.call("asked")
    await settle()
    first = act.live.question
    harness.registry.unregister("asked")
    harness.gated("asked", approval="always", description="Another.")
    approver.say(act.live, Verdict.APPROVED)
    await settle()
    assert act.live.question is not first
    assert act.live.question.definition != first.definition
    assert act.body.runs == 0
    approver.say(act.live, Verdict.APPROVED)
    await act.running()
    act.body.release()
    await act.outcome()


class TestARuleThatIsTightenedWhileACallWaitsForASlot:
    """It has its person's word when it starts, whatever was in force when it was let in (D1, D4)."""

    @staticmethod
    async def queued(approver, policies):
        """Return the harness, a call that waits for a slot, and the one that has it."""
        harness = ExecutorHarness(
            approver=approver, policies=policies, limits=Limits(max_running=1)
        )
        harness.gated("asked", timeout=5)
        harness.gated("other")
        other = await harness.call("other").running()
        act = harness.call("asked")
        await settle()
        assert act.live.status is CallStatus.PENDING
        return harness, act, other

    @on_manual_clock
    async def test_it_asks_now_without_a_slot_and_runs_when_allowed(self):
        approver, policies = FakeApprover(), EditedLevels()
        harness, act, other = await self.queued(approver, policies)
        policies.edit(override=ToolLimits(approval=ALWAYS))
        other.body.release()
        await other.outcome()
        await settle()
        assert (act.live.status, act.body.runs) == (CallStatus.AWAITING_APPROVAL, 0)
        policies.edit()
        third = await harness.call("other").running()  # nobody holds the slot meanwhile
        third.body.release()
        await third.outcome()
        approver.say(act.live, Verdict.APPROVED)
        await act.running()
        act.body.release()
        assert (await act.outcome()).status is CallStatus.SUCCEEDED

    @on_manual_clock
    async def test_it_does_not_run_when_denied(self):
        approver, policies = FakeApprover(), EditedLevels()
        _stage, act, other = await self.queued(approver, policies)
        policies.edit(override=ToolLimits(approval=ALWAYS))
        other.body.release()
        await settle()
        approver.say(act.live, Verdict.DENIED)
        assert (await act.outcome()).status is CallStatus.DENIED
        assert act.body.runs == 0

    @on_manual_clock
    async def test_an_earlier_decision_for_the_conversation_is_not_enough_any_more(self):
        approver, policies = FakeApprover(), EditedLevels()
        policies.edit(override=ToolLimits(approval=ONCE))
        approver.earlier = Decision(verdict=Verdict.APPROVED, remember=True)
        _stage, act, other = await self.queued(approver, policies)
        approver.earlier = None
        policies.edit(override=ToolLimits(approval=ALWAYS))
        other.body.release()
        await settle()
        assert (act.live.status, act.body.runs) == (CallStatus.AWAITING_APPROVAL, 0)
        approver.say(act.live, Verdict.DENIED)
        await act.outcome()

    @on_manual_clock
    async def test_a_word_on_this_very_call_is_enough(self):
        approver, policies = FakeApprover(), EditedLevels()
        harness = ExecutorHarness(
            approver=approver, policies=policies, limits=Limits(max_running=1)
        )
        harness.gated("asked")
        harness.gated("other")
        other = await harness.call("other").running()
        policies.edit(override=ToolLimits(approval=ONCE))
        act = harness.call("asked")
        await settle()
        approver.say(act.live, Verdict.APPROVED)
        await settle()
        policies.edit(override=ToolLimits(approval=ALWAYS))
        other.body.release()
        await act.running()
        act.body.release()
        assert (await act.outcome()).status is CallStatus.SUCCEEDED

    @on_manual_clock
    async def test_where_nobody_can_be_asked_it_is_refused(self):
        policies = EditedLevels()
        _stage, act, other = await self.queued(None, policies)
        policies.edit(override=ToolLimits(approval=ALWAYS))
        other.body.release()
        assert (await act.outcome()).error_type is ErrorType.NO_APPROVER
        assert act.body.runs == 0


async def test_a_tool_may_ask_for_some_inputs_only():
    approver = FakeApprover()
    harness = ExecutorHarness(approver=approver)

    async def touch(path: str) -> str:
        return path

    made = make_tool(touch, approval="always", asks_for=lambda given: given["path"] != "safe")
    harness.registry.register(made)
    assert (await harness.run("touch", input={"path": "safe"})).result == "safe"
    act = harness.call("touch", input={"path": "other"})
    await approver.asked.wait()
    approver.say(act.live, Verdict.DENIED)
    assert (await act.outcome()).status is CallStatus.DENIED
    assert not made.needs_approval({"path": "safe"})
    assert made.needs_approval({})  # it cannot tell: a person is asked


@pytest.mark.parametrize(
    ("levels", "at_least", "expected"),
    [
        ({}, NEVER, NEVER),
        ({"declared": ONCE}, NEVER, ONCE),
        ({"setting": ALWAYS, "declared": NEVER}, NEVER, ALWAYS),
        ({"setting": NEVER, "declared": ALWAYS}, NEVER, NEVER),
        ({"tool_setting": NEVER, "declared": ALWAYS}, NEVER, NEVER),
        ({"tool_setting": ONCE, "setting": ALWAYS}, NEVER, ONCE),
        ({"default": ALWAYS, "tool_setting": NEVER}, NEVER, ALWAYS),
        ({"default": ALWAYS}, NEVER, ALWAYS),
        ({"default": ALWAYS, "declared": ONCE}, NEVER, ALWAYS),
        ({"default": ONCE, "declared": ALWAYS}, NEVER, ALWAYS),
        ({"default": NEVER, "declared": ONCE}, NEVER, ONCE),
        ({"default": ALWAYS, "setting": NEVER}, NEVER, ALWAYS),
        ({"override": NEVER, "default": ALWAYS, "setting": ALWAYS}, NEVER, NEVER),
        ({"override": NEVER}, ONCE, ONCE),
        ({"override": ALWAYS}, ONCE, ALWAYS),
        ({"declared": ONCE}, ALWAYS, ALWAYS),
    ],
)
def test_which_rule_counts(levels, at_least, expected):
    said = {level: ToolLimits(approval=rule) for level, rule in levels.items()}
    assert resolve(PolicyLevels(**said), at_least=at_least).approval is expected


def test_which_approval_limit_counts():
    def limit(**levels):
        said = {name: ToolLimits(approval_timeout=seconds) for name, seconds in levels.items()}
        return resolve(PolicyLevels(**said)).approval_timeout

    assert limit() == 600.0
    assert limit(setting=30.0) == 30.0
    assert limit(default=20.0, setting=30.0) == 20.0
    assert limit(override=0.0, default=20.0) is None


async def test_a_tool_that_cannot_tell_whether_it_is_off_is_run(caplog):
    made = make_tool(lambda: "ran", name="odd", isolation="thread", off=lambda: 1 / 0)
    assert made.disabled_reason() == ""
    assert "A tool could not tell whether it is off" in caplog.text


async def test_a_tool_that_is_switched_off_is_refused_before_anybody_is_asked():
    approver = FakeApprover()
    reason = "Out of paper. Ask the office to fill it up."
    shelf = ToolRegistry()

    @tool(approval="always", off=lambda: reason, register=shelf)
    async def printing() -> str:
        """Print."""
        return "printed"

    executor = ToolExecutor(registry=shelf)
    outcome = await executor.run(
        ToolCall(id="1", tool_name="printing"), host=Host(approver=approver)
    )
    assert not approver.asked.is_set()
    assert (outcome.error_type, outcome.disposition) == ("disabled", "not_started")
    assert outcome.result == f"[ERROR] {reason} Go on without it."
    reason = ""
    host = Host(approver=None)
    outcome = await executor.run(ToolCall(id="2", tool_name="printing"), host=host)
    assert outcome.error_type == "no_approver"
