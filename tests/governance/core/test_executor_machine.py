"""Whatever the order of finish, failure, timeout, cancel, decision and late result: one outcome for every call (B6)."""

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from governance import (
    CallStatus,
    CancellationToken,
    Concurrency,
    Disposition,
    ErrorType,
    Limits,
    Timing,
    ToolFailed,
    ToolLimits,
    Verdict,
)
from tests.governance.core.support import (
    BY_PARENT,
    BY_USER,
    EditedLevels,
    ExecutorHarness,
    FakeApprover,
    ManualLoop,
    advance,
    settle,
)

GRACE = 0.6
TOOLS = {
    "plain": {},
    "quick": {"timeout": 3},
    "chatty": {"timeout": 20, "idle_timeout": 2},
    "alone": {"timeout": 5, "concurrency": "exclusive"},
    "newest": {"timeout": 5, "concurrency": "supersede"},
    "scarce": {"max_running": 1},
    "asked": {"timeout": 5, "approval": "always"},
}
PATIENT = ToolLimits(approval_timeout=4.0)
ENDINGS = {
    CallStatus.SUCCEEDED,
    CallStatus.FAILED,
    CallStatus.TIMED_OUT,
    CallStatus.CANCELLED,
    CallStatus.NOT_STARTED,
    CallStatus.ABANDONED,
    CallStatus.DENIED,
    CallStatus.EXPIRED,
}
DISPOSITIONS = {
    CallStatus.DENIED: Disposition.NOT_STARTED,
    CallStatus.EXPIRED: Disposition.NOT_STARTED,
    CallStatus.NOT_STARTED: Disposition.NOT_STARTED,
    CallStatus.ABANDONED: Disposition.INDETERMINATE,
}
seconds = st.sampled_from([0.1, 0.6, 1.0, 2.0, 3.0, 5.0, 40.0])


class GovernedCalls(RuleBasedStateMachine):
    """Most rules act while the loop stands still, so that several things happen in the same moment."""

    calls = Bundle("calls")

    def __init__(self):
        super().__init__()
        self.loop = ManualLoop()
        self.turns = {name: CancellationToken() for name in "ab"}
        self.acts = []
        self.given = {}
        self.play(self.set_up())

    async def set_up(self):
        self.policies = EditedLevels(setting=PATIENT)
        self.people = FakeApprover()
        self.harness = ExecutorHarness(
            approver=self.people,
            policies=self.policies,
            limits=Limits(max_running=4, max_running_per_scope=3, max_queued=4, queue_timeout=10),
            timing=Timing(cancel_grace=GRACE, progress_interval=1, notice_interval=0.5),
        )
        for name, declared in TOOLS.items():
            self.harness.gated(name, **declared)

    def play(self, scene):
        return self.loop.run_until_complete(scene)

    @rule(target=calls, tool=st.sampled_from([*TOOLS, "unheard of"]), scope=st.sampled_from("ab"))
    def start(self, tool, scope):
        async def start():
            return self.harness.call(tool, scope=scope, token=self.turns[scope])

        act = self.play(start())
        self.acts.append(act)
        return act

    @rule(act=calls)
    def body_returns(self, act):
        act.body.release(f"result of {act.live.id}")

    @rule(act=calls, error=st.sampled_from([ValueError("s3cret"), ToolFailed("in words")]))
    def body_raises(self, act, error):
        if not act.body.released.is_set():
            act.body.fail(error)

    @rule(act=calls)
    def body_will_swallow_its_cancel(self, act):
        act.body.is_stubborn = True

    @rule(act=calls)
    def body_will_have_last_words(self, act):
        act.body.last_words = f"result of {act.live.id}"

    @rule(act=calls)
    def body_reports(self, act):
        if act.body.context is not None:
            act.body.context.progress("alive", output=".")

    @rule(act=calls)
    def call_is_cancelled(self, act):
        act.live.cancel(BY_USER)

    @rule(scope=st.sampled_from("ab"))
    def turn_is_cancelled(self, scope):
        self.turns[scope].cancel(BY_PARENT)
        self.turns[scope] = CancellationToken()

    @rule(act=calls)
    def task_is_cancelled_from_outside(self, act):
        act.task.cancel()

    @rule(act=calls, timeout=seconds)
    def deadline_is_moved(self, act, timeout):
        self.harness.executor.set_deadline(act.live, timeout)

    @rule(timeout=st.none() | seconds, idle_timeout=st.none() | seconds, enabled=st.integers(0, 4))
    def policy_is_edited(self, timeout, idle_timeout, enabled):
        limits = ToolLimits(timeout=timeout, idle_timeout=idle_timeout, enabled=enabled > 0)
        self.policies.edit(override=limits, setting=PATIENT)
        self.harness.executor.apply_policies()

    @rule(
        act=calls, tell=st.booleans(), verdict=st.sampled_from([Verdict.APPROVED, Verdict.DENIED])
    )
    def person_decides(self, act, tell, verdict):
        self.people.say(act.live, verdict, tell=tell)

    @rule()
    def journal_hangs(self):
        self.harness.observer.gates.setdefault("started", asyncio.Event())

    @rule()
    def journal_goes_on(self):
        if gate := self.harness.observer.gates.pop("started", None):
            gate.set()

    @rule(time=seconds)
    def time_passes(self, time):
        self.play(settle())
        asked = [act for act in self.unfinished() if act.live.ended_by]
        # A limit that was moved into the past, or passed while the loop was blocked, is noticed now.
        noticed_at = {act: act.live.elapsed for act in self.unfinished()}
        self.play(advance(time))
        for act in self.unfinished():
            limit = act.live.timeout
            if limit is not None:
                due_at = max(limit, noticed_at.get(act, 0.0))
                assert act.live.elapsed <= due_at + GRACE + 1e-3, "T1"
        if time >= GRACE:
            assert not [act for act in asked if act in self.unfinished()], "C1"

    @rule(time=seconds)
    def time_passes_while_the_loop_is_blocked(self, time):
        self.loop.jump(time)

    @rule()
    def loop_goes_round_once(self):
        self.play(asyncio.sleep(0))

    def unfinished(self):
        """The calls that have no outcome, although no journal holds them up."""
        held = "started" in self.harness.observer.gates
        return [
            act
            for act in self.acts
            if not act.task.done() and not (held and act.live.limits.deadline is None)
        ]

    @invariant()
    def every_call_has_at_most_one_outcome_and_it_never_changes(self):
        recorded = {}
        for call_id, outcome in self.harness.observer.outcomes:
            assert call_id not in recorded, "told twice"
            recorded[call_id] = outcome
        for act in self.acts:
            if act.task.done() and not act.task.cancelled():
                outcome = act.task.result()
                assert recorded[act.live.id] is outcome
                assert self.given.setdefault(act.live.id, outcome) is outcome
                assert act.live.status is outcome.status
                self.check_outcome(act, outcome)
            elif act.task.done():
                assert act.live.id not in recorded

    def check_outcome(self, act, outcome):
        status, runs = outcome.status, act.body.runs
        assert status in ENDINGS
        assert outcome.is_error == (status is not CallStatus.SUCCEEDED)
        assert "s3cret" not in outcome.result
        if runs and act.live.call.tool_name == "asked":
            assert self.people.has_allowed(act.live), "D4"
        if status is CallStatus.CANCELLED and outcome.disposition is Disposition.NOT_STARTED:
            assert (act.live.call.tool_name, runs) == ("asked", 0)
        elif status is CallStatus.FAILED and outcome.error_type is not ErrorType.EXECUTION_ERROR:
            assert (outcome.disposition, runs) == (Disposition.NOT_STARTED, 0)
        else:
            assert outcome.disposition is DISPOSITIONS.get(status, Disposition.SETTLED)
            never = outcome.disposition is Disposition.NOT_STARTED
            assert runs == (0 if never else 1)
        if status is CallStatus.SUCCEEDED:
            assert outcome.result == f"result of {act.live.id}"
            assert outcome.ended_by is None
        elif status in (CallStatus.DENIED, CallStatus.EXPIRED):
            assert outcome.ended_by is None
        elif status is not CallStatus.FAILED:
            assert outcome.ended_by is act.live.ended_by is not None

    @invariant()
    def no_notice_comes_out_of_order(self):
        for act in self.acts:
            names = self.harness.observer.names(act.live.id)
            assert names.count("started") <= 1
            assert names.count("ended") <= 1
            assert names.count("late") <= 1
            assert names.count("cancelling") <= 1
            if "started" in names:  # what it waits for is told while it waits
                assert "queued" not in names[names.index("started") :]
            if "ended" in names:
                assert names[names.index("ended") + 1 :] in ([], ["late"])
                begun = [name for name in names if name != "queued"]
                assert begun[0] == "started" or begun == ["ended"]
        for call_id, _ in self.harness.observer.late:
            outcome = self.given.get(call_id)  # None: its task was cancelled from outside
            assert (
                outcome is None
                or outcome.status
                in {
                    CallStatus.TIMED_OUT,
                    CallStatus.ABANDONED,
                    CallStatus.CANCELLED,  # asked to stop after its time was up, while it blocked the loop
                }
            )

    @invariant()
    def no_call_runs_beside_one_that_must_be_alone(self):
        running = [
            act
            for act in self.acts
            if act.body.runs and not act.task.done() and not act.live.status.is_terminal
        ]
        for act in running:
            beside = [other for other in running if other.live.call.scope == act.live.call.scope]
            if act.live.tool.concurrency is Concurrency.EXCLUSIVE:
                assert beside == [act]
            same = [other for other in beside if other.live.tool is act.live.tool]
            if act.live.tool.concurrency is Concurrency.SUPERSEDE:
                assert same == [act]

    @invariant()
    def no_body_runs_twice_or_is_cancelled_twice(self):
        assert all(act.body.runs <= 1 and act.body.cancels <= 1 for act in self.acts)

    @invariant()
    def what_is_counted_is_what_there_is(self):
        limiter, open_calls = (
            self.harness.executor.limiter,
            [act for act in self.acts if not act.task.done()],
        )
        assert limiter.running + limiter.queued <= len(open_calls)
        if not open_calls:
            assert tuple(self.harness.executor.live) == ()

    def teardown(self):
        try:
            self.journal_goes_on()
            self.play(advance(1))
            for act in self.acts:
                act.body.release(f"result of {act.live.id}")
            self.play(advance(100))
            assert all(act.task.done() for act in self.acts)
            self.every_call_has_at_most_one_outcome_and_it_never_changes()
            self.no_notice_comes_out_of_order()
            executor = self.harness.executor
            assert (executor.limiter.running, executor.limiter.queued) == (0, 0)
            assert (executor.abandoned, tuple(executor.live)) == (0, ())
            assert not asyncio.all_tasks(self.loop)
        finally:
            self.loop.close()


TestGovernedCalls = GovernedCalls.TestCase
TestGovernedCalls.settings = settings(
    max_examples=60,
    stateful_step_count=40,
)
