"""Every call gets exactly one outcome in bounded time, whatever its tool does (T1–T9, T11, C3, C4, C9, C13, P1–P4)."""

import asyncio
import contextvars
import gc
import logging
import weakref
from collections import Counter

import pytest

from governance import (
    CallStatus,
    Cancellation,
    CancellationToken,
    Cancelled,
    CancelReason,
    Disposition,
    ErrorType,
    Host,
    Isolation,
    Limits,
    TimeoutSource,
    Timing,
    ToolCall,
    ToolContext,
    ToolFailed,
    ToolLimits,
    ToolTimeoutError,
    make_tool,
)
from tests.governance.core.support import (
    BY_PARENT,
    BY_USER,
    EditedLevels,
    Stage,
    advance,
    on_manual_clock,
    settle,
)

question = contextvars.ContextVar("question", default="nobody asked")


def asking_for(milliseconds):
    return {"_meta": {"timeout_ms": milliseconds}}


async def started(stage, *ids, **facts):
    """Start calls and wait until their bodies run."""
    return [await stage.call(id=id, **facts).running() for id in ids]


class TestResult:
    @on_manual_clock
    async def test_of_the_body_is_the_result_with_its_duration(self):
        stage = Stage()
        stage.gated(timeout=30)
        (call,) = await started(stage, "A")

        await advance(12)
        call.body.release("result")
        outcome = await call.outcome()

        assert (outcome.status, outcome.result) == (CallStatus.SUCCEEDED, "result")
        assert (outcome.is_error, outcome.error_type, outcome.ended_by) == (False, None, None)
        assert outcome.disposition is Disposition.SETTLED
        assert (outcome.duration, outcome.timeout) == (12, 30)
        assert outcome.timeout_source == TimeoutSource.TOOL

    async def test_that_cannot_be_written_says_that_the_tool_has_run(self):
        stage = Stage()
        stage.gated()
        (call,) = await started(stage, "A")

        call.body.release({"s3cret": b"\xff"})
        outcome = await call.outcome()

        assert (outcome.status, outcome.error_type) == (
            CallStatus.FAILED,
            ErrorType.EXECUTION_ERROR,
        )
        assert "has run, but its result cannot be written as text" in outcome.result
        assert "s3cret" not in outcome.result

    async def test_that_is_huge_is_cut(self):
        stage = Stage(result_limit=1000)
        stage.gated()
        (call,) = await started(stage, "A")

        call.body.release("x" * 10_000_000)

        assert len((await call.outcome()).result) < 1100

    async def test_context_variables_reach_the_body(self):
        async def ask() -> str:
            return question.get()

        question.set("who?")

        assert (await Stage(make_tool(ask)).run("ask")).result == "who?"

    async def test_the_body_knows_its_call_and_its_host(self, tmp_path):
        async def tell(context: ToolContext, word: str) -> list[object]:
            left = context.time_left()
            return [context.call_id, context.tool_name, context.scope, word, left and left > 4]

        stage = Stage(make_tool(tell, timeout=5))

        assert (await stage.run("tell", id="A", input={"word": "w"})).result == (
            '["A","tell","scope","w",true]'
        )

        async def place(context: ToolContext) -> list[str]:
            return [str(context.workspace), context.metadata["who"]]

        stage.registry.register(make_tool(place))
        host = Host(workspace=tmp_path, metadata={"who": "ada"})
        outcome = await stage.executor.run(ToolCall(id="B", tool_name="place"), host=host)

        assert outcome.result == f'["{tmp_path}","ada"]'


class TestFailure:
    async def test_is_told_by_its_kind_and_never_by_its_text(self, caplog):
        stage = Stage()
        stage.gated()
        (call,) = await started(stage, "A")

        call.body.fail(ValueError("s3cret"))
        outcome = await call.outcome()

        assert outcome.status is CallStatus.FAILED
        assert outcome.error_type is ErrorType.EXECUTION_ERROR
        assert outcome.result.startswith('[ERROR] Tool "gated" failed with ValueError.')
        assert "s3cret" not in outcome.result + outcome.detail
        assert "A tool raised" in caplog.messages

    async def test_that_a_tool_words_itself_is_read_as_it_is(self):
        stage = Stage()
        stage.gated()
        (call,) = await started(stage, "A")

        call.body.fail(ToolFailed("No such file: a.txt. List the directory first."))
        outcome = await call.outcome()

        assert outcome.result == "No such file: a.txt. List the directory first."
        assert outcome.is_error

    async def test_of_a_call_that_the_tool_governed_itself_is_told_in_its_words(self):
        stage = Stage()
        stage.gated()
        (call,) = await started(stage, "A")

        call.body.fail(ToolTimeoutError("inner", 3))

        assert "Tool 'inner' did not respond within 3s." in (await call.outcome()).result

    async def test_keeps_the_output_so_far(self):
        stage = Stage()
        stage.gated()
        (call,) = await started(stage, "A")

        call.body.context.progress(output="so far")
        call.body.fail(OSError())

        assert (await call.outcome()).result.endswith("\nso far")

    async def test_a_timeout_error_of_the_tool_itself_is_not_the_calls_timeout(self):
        stage = Stage()
        stage.gated()
        (call,) = await started(stage, "A")

        call.body.fail(TimeoutError())

        assert (await call.outcome()).error_type is ErrorType.EXECUTION_ERROR

    @pytest.mark.parametrize(
        "error", [SystemExit, StopIteration, asyncio.CancelledError, Cancelled]
    )
    async def test_whatever_a_body_raises_it_ends_nothing_but_its_call(self, error):
        async def odd() -> None:
            raise error(BY_USER)

        outcome = await Stage(make_tool(odd)).run("odd")

        assert (outcome.status, outcome.error_type) == (
            CallStatus.FAILED,
            ErrorType.EXECUTION_ERROR,
        )

    async def test_of_one_leaves_the_others_their_results(self):
        stage = Stage()
        stage.gated()
        calls = await started(stage, "A", "B", "C")

        calls[1].body.fail(ValueError())
        assert (await calls[1].outcome()).status is CallStatus.FAILED
        calls[0].body.release("first")
        calls[2].body.release("third")

        assert (await calls[0].outcome()).result == "first"
        assert (await calls[2].outcome()).result == "third"


class TestRefusal:
    """Nothing of the tool runs and no clock starts."""

    def check(self, stage, outcome, error_type, *words):
        assert (outcome.status, outcome.error_type) == (CallStatus.FAILED, error_type)
        assert outcome.disposition is Disposition.NOT_STARTED
        assert all(word in outcome.result for word in words)
        assert outcome.duration == 0
        assert stage.observer.names() == ["ended"]
        assert not any(body.runs for body in stage.bodies.values())

    async def test_of_an_unknown_tool(self):
        stage = Stage()

        outcome = await stage.run("nothing")

        self.check(stage, outcome, ErrorType.UNKNOWN_TOOL, "'nothing'")

    @pytest.mark.parametrize("call_input", [{"extra": 1}, {"_meta": {"timeout_ms": -1}}])
    async def test_of_invalid_input(self, call_input):
        stage = Stage()
        stage.gated()

        outcome = await stage.run(input=call_input)

        self.check(stage, outcome, ErrorType.INVALID_INPUT, "Correct the input")

    async def test_of_input_that_could_not_be_read(self):
        stage = Stage()
        stage.gated()

        outcome = await stage.run(problem="it is not JSON")

        self.check(stage, outcome, ErrorType.INVALID_INPUT, "it is not JSON")

    async def test_of_a_tool_that_is_switched_off(self):
        stage = Stage(policies=EditedLevels(override=ToolLimits(enabled=False)))
        stage.gated()

        outcome = await stage.run()

        self.check(stage, outcome, ErrorType.DISABLED, "switched off")

    async def test_of_a_tool_that_is_switched_off_while_its_call_waits(self):
        policies = EditedLevels()
        stage = Stage(policies=policies, limits=Limits(max_running=1))
        stage.gated()
        (running,) = await started(stage, "A")
        waiting = stage.call(id="B")
        await settle()

        policies.edit(override=ToolLimits(enabled=False))
        stage.executor.apply_policies()
        running.body.release()

        assert (await running.outcome()).status is CallStatus.SUCCEEDED
        assert (await waiting.outcome()).error_type is ErrorType.DISABLED
        assert stage.observer.names("B") == ["ended"]

    async def test_of_an_isolation_that_nothing_runs(self):
        def plain() -> None: ...

        stage = Stage(make_tool(plain))

        outcome = await stage.run("plain")

        self.check(stage, outcome, ErrorType.EXECUTION_ERROR, "cannot be run here")

    async def test_of_a_tool_whose_definition_is_broken(self, caplog):
        async def broken(value: "NoSuchType") -> None: ...  # type: ignore[name-defined]  # noqa: F821

        stage = Stage(make_tool(broken))

        outcome = await stage.run("broken", input={"value": 1})

        self.check(stage, outcome, ErrorType.EXECUTION_ERROR, "NameError")
        assert "NoSuchType" not in outcome.result
        assert "A tool call could not be checked" in caplog.messages


class TestTimeout:
    @on_manual_clock
    async def test_names_tool_and_seconds_and_is_settled_when_the_body_has_ended(self):
        stage = Stage()
        stage.gated(timeout=5)
        (call,) = await started(stage, "A")

        await advance(5)
        outcome = await call.outcome()

        assert (outcome.status, outcome.error_type) == (CallStatus.TIMED_OUT, ErrorType.TIMEOUT)
        assert outcome.result.startswith('[TIMEOUT] Tool "gated" did not respond within 5s.')
        assert outcome.disposition is Disposition.SETTLED
        assert outcome.ended_by.reason is CancelReason.TIMEOUT
        assert (outcome.timeout, outcome.duration, call.body.cancels) == (5, 5, 1)

    def test_logs_a_warning_without_input_or_output(self, caplog):
        @on_manual_clock
        async def run():
            stage = Stage()
            stage.gated(timeout=5)
            (call,) = await started(stage, "A")
            call.body.context.progress(output="s3cret")
            await advance(5)
            await call.outcome()

        run()

        (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert (record.call_id, record.tool_name) == ("A", "gated")
        assert "s3cret" not in caplog.text

    @on_manual_clock
    async def test_does_not_come_just_in_time(self):
        stage = Stage()
        stage.gated(timeout=5)
        (call,) = await started(stage, "A")

        await advance(4.999)
        call.body.release()
        await settle()
        await advance(60)

        assert (await call.outcome()).status is CallStatus.SUCCEEDED
        assert stage.observer.names() == ["started", "ended"]

    @on_manual_clock
    async def test_does_not_come_when_the_body_ends_in_the_very_moment(self):
        stage = Stage()
        stage.gated(timeout=5)
        (call,) = await started(stage, "A")

        call.body.release()
        asyncio.get_running_loop().jump(5)
        await settle()

        assert (await call.outcome()).status is CallStatus.SUCCEEDED
        assert stage.observer.names() == ["started", "ended"]

    @pytest.mark.parametrize("timeout", [0, -1])
    @on_manual_clock
    async def test_never_comes_without_a_limit(self, timeout):
        stage = Stage()
        stage.gated(timeout=timeout)
        (call,) = await started(stage, "A")

        await advance(300)
        call.body.release()
        outcome = await call.outcome()

        assert (outcome.status, outcome.timeout) == (CallStatus.SUCCEEDED, None)

    @on_manual_clock
    async def test_of_a_body_that_swallows_its_cancel_comes_within_limit_and_grace(self):
        stage = Stage(timing=Timing(cancel_grace=0.6))
        stage.gated(timeout=5)
        (call,) = await started(stage, "A")
        call.body.is_stubborn = True

        await advance(5.59)
        assert not call.task.done()
        await advance(0.01)
        outcome = await call.outcome()

        assert (outcome.status, outcome.error_type) == (CallStatus.ABANDONED, ErrorType.TIMEOUT)
        assert outcome.disposition is Disposition.INDETERMINATE
        assert "may still be running and may have been applied" in outcome.result
        assert call.body.cancels == 1
        assert (stage.executor.abandoned, stage.executor.limiter.running) == (1, 0)
        call.body.release()
        await settle()
        assert stage.executor.abandoned == 0

    @pytest.mark.parametrize("side_effects", [True, False])
    @on_manual_clock
    async def test_of_a_mutating_tool_that_ended_warns_of_its_effect(self, side_effects):
        stage = Stage()
        stage.gated(timeout=5, side_effects=side_effects)
        (call,) = await started(stage, "A")

        await advance(5)

        assert ("may have had an effect" in (await call.outcome()).result) is side_effects

    @on_manual_clock
    async def test_keeps_the_output_so_far(self):
        stage = Stage()
        stage.gated(timeout=5)
        (call,) = await started(stage, "A")

        call.body.context.progress(output="line 1\n")
        call.body.context.progress(output="line 2\n")
        await advance(5)

        assert (await call.outcome()).result.endswith("line 1\nline 2\n")

    @on_manual_clock
    async def test_of_silence_leaves_a_tool_alone_that_reports(self):
        stage = Stage()
        stage.gated(timeout=60, idle_timeout=5)
        (call,) = await started(stage, "A")

        for _ in range(5):
            await advance(4)
            call.body.context.progress(output=".")
        await advance(4.9)
        assert not call.task.done()
        await advance(0.1)
        outcome = await call.outcome()

        assert outcome.status is CallStatus.TIMED_OUT
        assert "within 5s. It made no progress for that long." in outcome.result
        assert outcome.result.endswith(".....")

    @on_manual_clock
    async def test_of_one_leaves_the_others_their_results(self):
        stage = Stage()
        stage.gated(timeout=60)
        calls = await started(stage, "A", "C")
        (slow,) = await started(stage, "B", input=asking_for(5000))

        await advance(5)
        assert (await slow.outcome()).status is CallStatus.TIMED_OUT
        for call in calls:
            call.body.release(call.live.id)

        assert [(await call.outcome()).result for call in calls] == ["A", "C"]

    @on_manual_clock
    async def test_a_hint_is_capped_and_the_model_is_told(self):
        stage = Stage(policies=EditedLevels(default=ToolLimits(ceiling=60)))
        stage.gated()
        (call,) = await started(stage, "A", input=asking_for(7_200_000))

        assert (call.live.policy.capped_from, call.live.timeout) == (7200, 60)
        await advance(60)
        outcome = await call.outcome()

        assert outcome.timeout_source == TimeoutSource.HINT
        assert "It had asked for 7200s, which is more than is allowed." in outcome.result

    @on_manual_clock
    async def test_of_a_turn_says_that_it_was_the_turns(self):
        stage, turn = Stage(), CancellationToken()
        stage.gated(timeout=60)
        (call,) = await started(stage, "A", token=turn)

        turn.cancel(Cancellation(reason=CancelReason.TIMEOUT))
        outcome = await call.outcome()

        assert (outcome.status, outcome.error_type) == (CallStatus.CANCELLED, ErrorType.CANCELLED)
        assert "the turn ran out of time" in outcome.result


class TestLateResult:
    @on_manual_clock
    async def test_of_an_abandoned_body_is_recorded_once_and_never_the_result(self):
        stage = Stage()
        stage.gated(timeout=5)
        (call,) = await started(stage, "A")
        call.body.is_stubborn = True
        await advance(5.6)
        outcome = await call.outcome()

        await advance(10)
        call.body.release("late words")
        await settle()

        ((call_id, late),) = stage.observer.late
        assert (call_id, late.kind, late.text, late.after) == ("A", "returned", "late words", 10)
        assert "late words" not in outcome.result
        assert stage.observer.outcomes == [("A", outcome)]
        assert stage.observer.names() == ["started", "cancelling", "ended", "late"]

    @on_manual_clock
    async def test_in_the_grace_of_a_timeout_is_late_too(self):
        stage = Stage()
        stage.gated(timeout=5)
        (call,) = await started(stage, "A")
        call.body.last_words = "late words"

        await advance(5)
        outcome = await call.outcome()
        await settle()

        assert (outcome.status, outcome.disposition) == (
            CallStatus.TIMED_OUT,
            Disposition.SETTLED,
        )
        assert "late words" not in outcome.result
        assert [(late.kind, late.text) for _, late in stage.observer.late] == [
            ("returned", "late words")
        ]
        assert stage.executor.abandoned == 0

    @pytest.mark.parametrize(
        ("end", "late"),
        [
            (lambda body: body.fail(ValueError("s3cret")), ("raised", "ValueError")),
            (lambda body: body.fail(asyncio.CancelledError()), ("cancelled", "")),
            (lambda body: body.release({"s3cret": b"\xff"}), ("returned", "")),
        ],
        ids=["an error", "a cancel", "not text"],
    )
    @on_manual_clock
    async def test_that_is_none_is_told_by_its_kind_only(self, end, late):
        stage = Stage()
        stage.gated(timeout=5)
        (call,) = await started(stage, "A")
        call.body.is_stubborn = True
        await advance(5.6)
        await call.outcome()

        end(call.body)
        await settle()

        assert [(noted.kind, noted.text) for _, noted in stage.observer.late] == [late]

    @on_manual_clock
    async def test_that_cannot_be_recorded_is_logged_and_harms_nobody(self):
        stage = Stage()
        stage.gated(timeout=5)
        stage.observer.errors["late"] = OSError("the database is gone")
        (call,) = await started(stage, "A")
        call.body.is_stubborn = True
        await advance(5.6)
        await call.outcome()

        call.body.release()
        await settle()

        assert stage.observer.names()[-1] == "late"
        assert stage.executor.abandoned == 0

    @on_manual_clock
    async def test_is_not_recorded_after_the_executor_was_closed(self):
        stage = Stage()
        stage.gated(timeout=5)
        (call,) = await started(stage, "A")
        call.body.is_stubborn = True
        await advance(5.6)
        await call.outcome()

        await stage.executor.aclose()
        call.body.release()
        await settle()

        assert stage.observer.late == []


class TestMovedDeadline:
    """T9: the running call obeys at once."""

    @on_manual_clock
    async def test_extended_by_hand_the_call_gets_the_time(self):
        stage = Stage()
        stage.gated(timeout=5)
        (call,) = await started(stage, "A")

        await advance(4)
        assert stage.executor.set_deadline(call.live, 20, by="ada")
        await advance(15.9)
        assert not call.task.done()
        await advance(0.1)
        outcome = await call.outcome()

        assert (outcome.timeout, outcome.timeout_source) == (20, TimeoutSource.MANUAL)
        (change,) = call.live.deadline_changes
        assert (change.from_timeout, change.to_timeout, change.by) == (5, 20, "ada")
        assert stage.observer.names() == ["started", "moved", "cancelling", "ended"]

    @on_manual_clock
    async def test_shortened_by_hand_the_call_ends_earlier(self):
        stage = Stage()
        stage.gated(timeout=60)
        (call,) = await started(stage, "A")

        stage.executor.set_deadline(call.live, 10)
        await advance(10)

        assert (await call.outcome()).duration == 10

    @on_manual_clock
    async def test_shortened_to_a_moment_already_past_it_ends_now(self):
        stage = Stage()
        stage.gated(timeout=60)
        (call,) = await started(stage, "A")

        await advance(30)
        stage.executor.set_deadline(call.live, 10)
        await settle()
        outcome = await call.outcome()

        assert (outcome.status, outcome.duration) == (CallStatus.TIMED_OUT, 30)
        assert "within 10s" in outcome.result

    @on_manual_clock
    async def test_is_capped_by_the_ceiling(self):
        stage = Stage(policies=EditedLevels(default=ToolLimits(ceiling=60)))
        stage.gated(timeout=5)
        (call,) = await started(stage, "A")

        stage.executor.set_deadline(call.live, 7200)

        assert call.live.timeout == 60
        call.body.release()
        await call.outcome()

    @on_manual_clock
    async def test_keeps_the_idle_limit(self):
        stage = Stage()
        stage.gated(timeout=60, idle_timeout=5)
        (call,) = await started(stage, "A")

        stage.executor.set_deadline(call.live, 600)
        await advance(5)

        assert "made no progress" in (await call.outcome()).result

    async def test_is_refused_before_the_start_and_after_the_end(self):
        stage = Stage()
        stage.gated()
        stage.observer.gates["started"] = asyncio.Event()
        call = stage.call()
        await settle()

        assert not stage.executor.set_deadline(call.live, 10)
        stage.observer.gates.pop("started").set()
        await call.running()
        call.body.release()
        await call.outcome()

        assert not stage.executor.set_deadline(call.live, 10)
        assert call.live.deadline_changes == []

    @on_manual_clock
    async def test_is_refused_once_the_end_is_decided(self):
        stage = Stage()
        stage.gated(timeout=5)
        (call,) = await started(stage, "A")
        call.body.is_stubborn = True

        await advance(5.1)

        assert not stage.executor.set_deadline(call.live, 600)
        call.body.release()
        await call.outcome()

    @on_manual_clock
    async def test_by_an_edited_policy_a_running_call_obeys(self):
        policies = EditedLevels(override=ToolLimits(timeout=60))
        stage = Stage(policies=policies)
        stage.gated()
        (call,) = await started(stage, "A")

        await advance(10)
        policies.edit(override=ToolLimits(timeout=12))
        stage.executor.apply_policies()
        await advance(2)
        outcome = await call.outcome()

        assert (outcome.status, outcome.duration) == (CallStatus.TIMED_OUT, 12)
        (change,) = call.live.deadline_changes
        assert (change.from_timeout, change.to_timeout) == (60, 12)
        assert change.source is TimeoutSource.OVERRIDE

    @on_manual_clock
    async def test_by_a_removed_override_falls_back_to_the_tools_own(self):
        policies = EditedLevels(override=ToolLimits(timeout=60))
        stage = Stage(policies=policies)
        stage.gated(timeout=20)
        (call,) = await started(stage, "A")

        policies.edit()
        stage.executor.apply_policies()
        await advance(20)
        outcome = await call.outcome()

        assert (outcome.timeout, outcome.timeout_source) == (20, TimeoutSource.TOOL)

    @on_manual_clock
    async def test_by_an_edited_ceiling_recaps_a_hint(self):
        policies = EditedLevels(default=ToolLimits(ceiling=600))
        stage = Stage(policies=policies)
        stage.gated()
        (call,) = await started(stage, "A", input=asking_for(300_000))

        policies.edit(default=ToolLimits(ceiling=60))
        stage.executor.apply_policies()

        assert (call.live.timeout, call.live.policy.capped_from) == (60, 300)
        call.body.release()
        await call.outcome()

    @on_manual_clock
    async def test_by_an_edited_idle_limit(self):
        policies = EditedLevels()
        stage = Stage(policies=policies)
        stage.gated(timeout=60)
        (call,) = await started(stage, "A")

        policies.edit(override=ToolLimits(idle_timeout=5))
        stage.executor.apply_policies()
        await advance(5)

        assert "made no progress" in (await call.outcome()).result

    @on_manual_clock
    async def test_by_hand_stays_while_the_policy_does_not_change(self):
        stage = Stage()
        stage.gated(timeout=5)
        (call,) = await started(stage, "A")

        stage.executor.set_deadline(call.live, 20)
        stage.executor.apply_policies()

        assert call.live.timeout == 20
        assert len(call.live.deadline_changes) == 1
        call.body.release()
        await call.outcome()

    @on_manual_clock
    async def test_by_a_policy_that_is_edited_while_the_start_is_recorded(self):
        policies = EditedLevels(override=ToolLimits(timeout=60))
        stage = Stage(policies=policies)
        stage.gated()
        stage.observer.gates["started"] = asyncio.Event()
        call = stage.call()
        await settle()

        policies.edit(override=ToolLimits(timeout=5))
        stage.executor.apply_policies()
        assert call.live.timeout == 60  # what the observer is writing down
        stage.observer.gates["started"].set()
        await advance(5)
        outcome = await call.outcome()

        assert (outcome.status, outcome.timeout) == (CallStatus.TIMED_OUT, 5)
        assert [change.from_timeout for change in call.live.deadline_changes] == [60]
        assert stage.observer.names() == ["started", "moved", "cancelling", "ended"]

    @on_manual_clock
    async def test_by_a_policy_that_is_edited_while_the_call_waits(self):
        policies = EditedLevels(override=ToolLimits(timeout=60))
        stage = Stage(policies=policies, limits=Limits(max_running=1))
        stage.gated()
        (running,) = await started(stage, "A")
        waiting = stage.call(id="B")
        await settle()

        policies.edit(override=ToolLimits(timeout=5))
        stage.executor.apply_policies()
        running.body.release()
        await waiting.running()

        assert waiting.live.timeout == 5
        assert waiting.live.deadline_changes == []
        waiting.body.release()
        await waiting.outcome()

    @on_manual_clock
    async def test_by_a_policy_comes_not_after_the_outcome(self):
        policies = EditedLevels(override=ToolLimits(timeout=60))
        stage = Stage(policies=policies)
        stage.gated()
        stage.observer.gates["ended"] = asyncio.Event()
        (call,) = await started(stage, "A")
        call.body.release()
        await settle()

        policies.edit(override=ToolLimits(timeout=5))
        stage.executor.apply_policies()
        await advance(60)
        stage.observer.gates["ended"].set()
        outcome = await call.outcome()

        assert (outcome.timeout, call.live.deadline_changes) == (60, [])
        assert stage.observer.names() == ["started", "ended"]


class TestCancel:
    async def test_of_one_call_says_by_whom_and_leaves_the_others(self):
        stage = Stage()
        stage.gated()
        calls = await started(stage, "A", "B", "C")

        assert calls[1].live.cancel(BY_USER)
        outcome = await calls[1].outcome()
        calls[0].body.release("first")
        calls[2].body.release("third")

        assert (outcome.status, outcome.error_type) == (CallStatus.CANCELLED, ErrorType.CANCELLED)
        assert (outcome.ended_by, outcome.disposition) == (BY_USER, Disposition.SETTLED)
        assert outcome.result.startswith('[CANCELLED] Tool "gated" was cancelled by the user.')
        assert [(await calls[at].outcome()).result for at in (0, 2)] == ["first", "third"]
        assert calls[1].body.cancels == 1

    async def test_reaches_the_tools_token_before_its_task(self):
        stage = Stage()
        stage.gated()
        (call,) = await started(stage, "A")
        seen = []
        call.body.context.token.on_cancel(lambda request: seen.append((request, call.body.cancels)))

        call.live.cancel(BY_USER)
        await call.outcome()

        assert seen == [(BY_USER, 0)]

    async def test_of_the_whole_tree_ends_every_call(self):
        stage, turn = Stage(), CancellationToken()
        stage.gated()
        calls = await started(stage, "A", "B", token=turn)

        turn.cancel(BY_USER)

        assert [(await call.outcome()).ended_by for call in calls] == [BY_USER, BY_USER]

    @on_manual_clock
    async def test_of_a_body_that_swallows_it_ends_within_the_grace(self):
        stage = Stage()
        stage.gated()
        (call,) = await started(stage, "A")
        call.body.is_stubborn = True

        call.live.cancel(BY_USER)
        await advance(0.6)
        outcome = await call.outcome()

        assert (outcome.status, outcome.error_type) == (
            CallStatus.ABANDONED,
            ErrorType.CANCELLED,
        )
        assert (outcome.ended_by, outcome.disposition) == (BY_USER, Disposition.INDETERMINATE)
        call.body.release()
        await settle()

    async def test_a_real_result_in_the_grace_stands(self):
        stage = Stage()
        stage.gated()
        (call,) = await started(stage, "A")
        call.body.last_words = "real"

        call.live.cancel(BY_USER)
        outcome = await call.outcome()

        assert (outcome.status, outcome.result) == (CallStatus.SUCCEEDED, "real")
        assert (outcome.ended_by, outcome.is_error) == (None, False)
        await settle()
        assert stage.observer.late == []

    async def test_an_error_in_the_grace_does_not(self):
        stage = Stage()

        async def fragile(context: ToolContext) -> None:
            ready.set()
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError("while cleaning up")

        stage.registry.register(make_tool(fragile))
        ready = asyncio.Event()
        call = stage.call("fragile")
        await ready.wait()

        call.live.cancel(BY_USER)
        outcome = await call.outcome()

        assert (outcome.status, outcome.disposition) == (
            CallStatus.CANCELLED,
            Disposition.SETTLED,
        )

    async def test_comes_too_late_for_a_body_that_has_ended(self):
        stage = Stage()
        stage.gated()
        (call,) = await started(stage, "A")

        call.body.release()
        asyncio.get_running_loop().call_soon(call.live.cancel, BY_USER)
        outcome = await call.outcome()

        assert (outcome.status, outcome.result) == (CallStatus.SUCCEEDED, "result")

    async def test_repeated_or_after_the_end_changes_nothing(self):
        stage = Stage()
        stage.gated()
        (call,) = await started(stage, "A")

        assert call.live.cancel(BY_USER)
        assert not call.live.cancel(BY_PARENT)
        outcome = await call.outcome()

        assert not call.live.cancel(BY_PARENT)
        assert outcome.ended_by is BY_USER

    async def test_is_refused_once_the_body_has_ended(self):
        stage = Stage()
        stage.gated()
        stage.observer.gates["ended"] = asyncio.Event()
        (call,) = await started(stage, "A")
        call.body.release()
        await settle()

        assert not call.live.cancel(BY_USER)
        stage.observer.gates["ended"].set()
        assert (await call.outcome()).status is CallStatus.SUCCEEDED

    @on_manual_clock
    async def test_in_the_moment_of_a_timeout_comes_too_late(self):
        stage = Stage()
        stage.gated(timeout=5)
        (call,) = await started(stage, "A")
        accepted = []
        loop = asyncio.get_running_loop()
        loop.call_later(5.1, lambda: accepted.append(call.live.cancel(BY_USER)))

        loop.jump(6)
        outcome = await call.outcome()

        assert accepted == [False]
        assert outcome.ended_by.reason is CancelReason.TIMEOUT

    @on_manual_clock
    async def test_a_user_does_not_take_the_blame_for_a_timeout(self):
        stage = Stage()
        stage.gated(timeout=5)
        (call,) = await started(stage, "A")
        call.body.is_stubborn = True
        await advance(5.1)

        assert not call.live.cancel(BY_USER)
        await advance(1)
        outcome = await call.outcome()

        assert outcome.ended_by.reason is CancelReason.TIMEOUT
        assert outcome.error_type is ErrorType.TIMEOUT
        call.body.release()
        await settle()


class TestNotStarted:
    """C1: no tool starts after the request."""

    def check(self, call, outcome, by=BY_USER):
        assert (outcome.status, outcome.error_type) == (
            CallStatus.NOT_STARTED,
            ErrorType.NOT_STARTED,
        )
        assert outcome.disposition is Disposition.NOT_STARTED
        assert (outcome.ended_by, outcome.duration, call.body.runs) == (by, 0, 0)
        assert "was not started" in outcome.result

    async def test_when_cancelled_before_it_is_executed(self):
        stage, turn = Stage(), CancellationToken()
        stage.gated()
        turn.cancel(BY_PARENT)

        call = stage.call(token=turn)

        self.check(call, await call.outcome(), by=BY_PARENT)
        assert stage.observer.names() == ["ended"]

    async def test_when_cancelled_before_it_is_executed_even_if_its_tool_is_unknown(self):
        stage = Stage()
        call = stage.call("nothing")
        call.live.cancel(BY_USER)

        self.check(call, await call.outcome())

    async def test_when_cancelled_in_the_queue(self):
        stage = Stage(limits=Limits(max_running=1))
        stage.gated()
        (running,) = await started(stage, "A")
        waiting = stage.call(id="B")
        await settle()

        waiting.live.cancel(BY_USER)
        outcome = await waiting.outcome()
        running.body.release()
        await running.outcome()
        await settle()

        self.check(waiting, outcome)
        assert stage.observer.names("B") == ["ended"]

    async def test_when_cancelled_as_it_is_let_in(self):
        stage = Stage(limits=Limits(max_running=1))
        stage.gated()
        (running,) = await started(stage, "A")
        waiting = stage.call(id="B")
        await settle()

        # at A's end its slot is given to B, whose task has not seen it yet
        stage.observer.hooks["ended"] = lambda: waiting.live.cancel(BY_USER)
        running.body.release()

        self.check(waiting, await waiting.outcome())
        assert stage.observer.names("B") == ["ended"]
        assert stage.executor.limiter.running == 0

    async def test_when_cancelled_while_its_start_is_recorded(self):
        stage = Stage()
        stage.gated()
        stage.observer.gates["started"] = asyncio.Event()
        call = stage.call()
        await stage.observer.arrived["started"].wait()

        call.live.cancel(BY_USER)
        stage.observer.gates["started"].set()

        self.check(call, await call.outcome())
        assert stage.observer.names() == ["started", "ended"]

    async def test_when_a_turn_is_cancelled_all_that_waits_is_not_started(self):
        stage, turn = Stage(limits=Limits(max_running=1)), CancellationToken()
        stage.gated()
        (running,) = await started(stage, "A", token=turn)
        waiting = [stage.call(id=id, token=turn) for id in "BC"]
        await settle()

        turn.cancel(BY_USER)

        assert (await running.outcome()).status is CallStatus.CANCELLED
        for call in waiting:
            self.check(call, await call.outcome())


class TestParallel:
    async def test_calls_of_a_step_overlap_and_each_is_told_as_it_lands(self):
        stage = Stage()
        stage.gated()
        calls = await started(stage, "A", "B", "C")

        for at in (2, 0, 1):
            calls[at].body.release()
            await calls[at].outcome()

        assert [call_id for call_id, _ in stage.observer.outcomes] == ["C", "A", "B"]

    @on_manual_clock
    async def test_the_clock_starts_when_the_tool_starts(self):
        stage = Stage(limits=Limits(max_running=1))
        stage.gated(timeout=5)
        (first,) = await started(stage, "A")
        waiting = [stage.call(id=id) for id in "BCD"]

        queued = []
        for running, following in zip([first, *waiting], [*waiting, None], strict=True):
            await advance(4)
            running.body.release()
            outcome = await running.outcome()
            queued.append((outcome.status, outcome.queued, outcome.duration))
            if following is not None:
                await following.running()

        assert queued == [(CallStatus.SUCCEEDED, wait, 4) for wait in (0, 4, 8, 12)]

    async def test_an_exclusive_call_overlaps_no_other_of_its_scope(self):
        stage = Stage()
        stage.gated()
        stage.gated("alone", concurrency="exclusive")
        (first,) = await started(stage, "A")
        alone = stage.call("alone", id="B")
        after = stage.call(id="C")
        await settle()

        assert (alone.body.runs, after.body.runs) == (0, 0)
        first.body.release()
        await alone.running()
        await settle()
        assert after.body.runs == 0
        alone.body.release()
        await after.running()
        after.body.release()
        await after.outcome()

    async def test_an_exclusive_call_is_not_held_up_for_ever_by_newcomers(self):
        stage = Stage()
        stage.gated()
        stage.gated("alone", concurrency="exclusive")
        (first,) = await started(stage, "A")
        alone = stage.call("alone", id="B")
        newcomers = [stage.call(id=f"new-{number}") for number in range(5)]
        await settle()

        first.body.release()
        await alone.running()

        assert [call.body.runs for call in newcomers] == [0] * 5
        alone.body.release()
        for call in newcomers:
            (await call.running()).body.release()
            await call.outcome()

    async def test_an_exclusive_call_does_not_hold_up_another_scope(self):
        stage = Stage()
        stage.gated("alone", concurrency="exclusive")

        one, other = stage.call("alone", scope="a"), stage.call("alone", scope="b")
        await one.running()
        await other.running()

        for call in (one, other):
            call.body.release()
            await call.outcome()

    @on_manual_clock
    async def test_a_slot_is_free_again_after_a_call_was_abandoned(self):
        stage = Stage(limits=Limits(max_running=1))
        stage.gated(timeout=5)
        (first,) = await started(stage, "A")
        first.body.is_stubborn = True
        second = stage.call(id="B")

        await advance(5.6)
        await second.running()

        for call in (first, second):
            call.body.release()
        assert (await second.outcome()).status is CallStatus.SUCCEEDED
        await settle()

    async def test_a_tools_own_concurrency_cap_holds(self):
        stage = Stage()
        stage.gated(max_running=2)
        running = await started(stage, "A", "B")
        third = stage.call(id="C")
        await settle()

        assert third.body.runs == 0
        for call in running:
            call.body.release()
        (await third.running()).body.release()
        await third.outcome()


class TestSupersede:
    async def test_a_new_call_cancels_the_previous_one(self):
        stage = Stage()
        stage.gated(concurrency="supersede")
        (first,) = await started(stage, "A")

        (second,) = await started(stage, "B")
        outcome = await first.outcome()
        second.body.release()

        assert outcome.ended_by.reason is CancelReason.SUPERSEDED
        assert "automatically" in outcome.result
        assert (await second.outcome()).status is CallStatus.SUCCEEDED

    async def test_it_starts_only_when_the_previous_one_has_ended(self):
        stage = Stage()
        stage.gated(concurrency="supersede")
        (first,) = await started(stage, "A")
        first.body.is_stubborn = True
        second = stage.call(id="B")
        await settle()

        assert (first.body.cancels, second.body.runs) == (1, 0)
        first.body.release()
        await first.outcome()
        (await second.running()).body.release()
        await second.outcome()

    async def test_one_that_still_waits_never_starts(self):
        stage = Stage()
        stage.gated(concurrency="supersede")
        (first,) = await started(stage, "A")
        first.body.is_stubborn = True
        second, third = stage.call(id="B"), stage.call(id="C")
        await settle()

        assert (await second.outcome()).status is CallStatus.NOT_STARTED
        first.body.release()
        (await third.running()).body.release()
        await third.outcome()

    async def test_other_scopes_and_other_tools_are_left_alone(self):
        stage = Stage()
        stage.gated(concurrency="supersede")
        stage.gated("other", concurrency="supersede")
        calls = [
            *await started(stage, "A"),
            *await started(stage, "B", scope="elsewhere"),
            *await started(stage, "C", name="other"),
        ]

        for call in calls:
            call.body.release()

        assert [(await call.outcome()).status for call in calls] == [CallStatus.SUCCEEDED] * 3

    async def test_a_call_that_is_cancelled_already_supersedes_nothing(self):
        stage, turn = Stage(), CancellationToken()
        stage.gated(concurrency="supersede")
        (first,) = await started(stage, "A")
        turn.cancel(BY_USER)

        await stage.call(id="B", token=turn).outcome()
        first.body.release()

        assert (await first.outcome()).status is CallStatus.SUCCEEDED


class TestQueue:
    async def test_that_is_full_refuses_with_what_to_do(self):
        stage = Stage(limits=Limits(max_running=1, max_queued=1))
        stage.gated()
        (running,) = await started(stage, "A")
        waiting = stage.call(id="B")
        await settle()

        outcome = await stage.call(id="C").outcome()

        assert (outcome.status, outcome.error_type) == (CallStatus.FAILED, ErrorType.QUEUE_FULL)
        assert outcome.disposition is Disposition.NOT_STARTED
        assert "try again" in outcome.result
        for call in (running, waiting):
            (await call.running()).body.release()
            await call.outcome()

    @on_manual_clock
    async def test_that_takes_too_long_gives_up(self):
        stage = Stage(limits=Limits(max_running=1, queue_timeout=30))
        stage.gated(timeout=0)
        (running,) = await started(stage, "A")
        waiting = stage.call(id="B")

        await advance(30)
        outcome = await waiting.outcome()

        assert outcome.error_type is ErrorType.QUEUE_TIMEOUT
        assert (outcome.queued, outcome.duration, waiting.body.runs) == (30, 0, 0)
        running.body.release()
        await running.outcome()


class TestExternalCancellation:
    """Invariant 6: the surrounding task's cancellation is never swallowed."""

    async def test_goes_on_and_the_body_is_asked_to_end(self):
        stage = Stage()
        stage.gated()
        (call,) = await started(stage, "A")

        call.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call.task
        await settle()

        assert call.body.cancels == 1
        assert call.body.context.is_cancelled
        assert stage.observer.names() == ["started"]
        assert (stage.executor.limiter.running, tuple(stage.executor.live)) == (0, ())

    async def test_in_the_queue_goes_on_and_nothing_starts(self):
        stage = Stage(limits=Limits(max_running=1))
        stage.gated()
        (running,) = await started(stage, "A")
        waiting = stage.call(id="B")
        await settle()

        waiting.task.cancel()
        running.body.release()
        await running.outcome()
        with pytest.raises(asyncio.CancelledError):
            await waiting.task

        assert waiting.body.runs == 0
        assert stage.executor.limiter.running == 0

    async def test_while_the_start_is_recorded_goes_on_and_nothing_starts(self):
        stage = Stage()
        stage.gated()
        stage.observer.gates["started"] = asyncio.Event()
        call = stage.call()
        await settle()

        call.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call.task

        assert call.body.runs == 0

    async def test_in_the_grace_goes_on(self, caplog):
        stage = Stage()
        stage.gated()
        (call,) = await started(stage, "A")
        call.body.is_stubborn = True
        call.live.cancel(BY_USER)
        await settle()

        call.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call.task

        assert call.body.cancels == 1
        assert stage.executor.abandoned == 1
        call.body.fail(ValueError())
        await settle()
        assert stage.executor.abandoned == 0
        gc.collect()
        assert caplog.messages == []  # asyncio does not complain of an error that nobody saw

    async def test_does_not_wait_for_a_body_that_swallows_it(self):
        stage = Stage()
        stage.gated()
        (call,) = await started(stage, "A")
        call.body.is_stubborn = True

        call.task.cancel()
        await settle()

        assert call.task.cancelled()
        assert stage.executor.abandoned == 1
        call.body.release()
        await settle()
        assert (stage.executor.abandoned, stage.observer.late) == (0, [])


class TestObserver:
    @on_manual_clock
    async def test_is_told_in_order_and_nothing_after_the_end(self):
        stage = Stage(timing=Timing(progress_interval=5, notice_interval=0.5))
        stage.gated(timeout=30)
        (call,) = await started(stage, "A")

        await advance(5)
        stage.executor.set_deadline(call.live, 60)
        call.live.cancel(BY_USER)
        await call.outcome()
        await advance(60)

        assert stage.observer.names() == ["started", "progressed", "moved", "cancelling", "ended"]

    async def test_that_fails_at_the_start_keeps_the_body_from_running(self):
        stage = Stage()
        stage.gated()
        stage.observer.errors["started"] = OSError("the database is gone")
        call = stage.call()

        with pytest.raises(OSError, match="gone"):
            await call.task

        assert call.body.runs == 0
        assert stage.observer.names() == ["started"]
        assert (stage.executor.limiter.running, tuple(stage.executor.live)) == (0, ())

    async def test_that_fails_at_the_end_is_heard(self):
        stage = Stage()
        stage.gated()
        stage.observer.errors["ended"] = OSError("the database is gone")
        (call,) = await started(stage, "A")
        call.body.release()

        with pytest.raises(OSError, match="gone"):
            await call.task

        assert (stage.executor.limiter.running, tuple(stage.executor.live)) == (0, ())

    @pytest.mark.parametrize("notice", ["cancelling", "moved"])
    async def test_that_fails_in_between_harms_nobody(self, notice, caplog):
        stage = Stage()
        stage.gated()
        stage.observer.errors[notice] = OSError("s3cret")
        (call,) = await started(stage, "A")

        stage.executor.set_deadline(call.live, 60)
        call.live.cancel(BY_USER)
        outcome = await call.outcome()

        assert outcome.status is CallStatus.CANCELLED
        assert stage.observer.names()[-1] == "ended"
        assert "An observer failed" in caplog.messages

    async def test_that_is_slow_is_not_overtaken(self):
        stage = Stage()
        stage.gated()
        stage.observer.gates["moved"] = asyncio.Event()
        (call,) = await started(stage, "A")

        stage.executor.set_deadline(call.live, 60)
        call.live.cancel(BY_USER)
        await settle()
        assert stage.observer.names() == ["started"]
        stage.observer.gates["moved"].set()
        await call.outcome()

        assert stage.observer.names() == ["started", "moved", "cancelling", "ended"]

    @on_manual_clock
    async def test_hears_of_a_silent_call_in_every_interval(self):
        stage = Stage(timing=Timing(progress_interval=5, notice_interval=0.5))
        stage.gated()
        (call,) = await started(stage, "A")

        await advance(4.9)
        assert stage.observer.names() == ["started"]
        await advance(10.6)
        call.body.release()
        await call.outcome()

        assert Counter(stage.observer.names())["progressed"] == 3

    @on_manual_clock
    async def test_hears_of_progress_soon_and_of_a_chatty_tool_seldom(self):
        stage = Stage(timing=Timing(progress_interval=5, notice_interval=0.5))
        stage.gated()
        (call,) = await started(stage, "A")

        for _ in range(100):
            call.body.context.progress("working")
            await advance(0.01)
        assert call.live.last_progress.message == "working"
        call.body.release()
        await call.outcome()

        assert 1 <= Counter(stage.observer.names())["progressed"] <= 2

    async def test_reads_the_call_as_it_is(self):
        stage = Stage()
        stage.gated(timeout=30)
        stage.observer.gates["started"] = asyncio.Event()
        call = stage.call()
        await stage.observer.arrived["started"].wait()

        live = call.live
        assert (live.status, live.timeout, live.timeout_source) == (
            CallStatus.RUNNING,
            30,
            TimeoutSource.TOOL,
        )
        assert (live.elapsed, live.partial_output, live.ended_by) == (0, "", None)
        stage.observer.gates["started"].set()
        await call.running()
        live.cancel(BY_USER)
        await stage.observer.arrived["cancelling"].wait()
        assert (live.status, live.ended_by) == (CallStatus.CANCELLING, BY_USER)
        await call.outcome()
        assert live.status is CallStatus.CANCELLED

    async def test_progress_after_the_end_is_not_taken(self):
        stage = Stage()
        stage.gated()
        (call,) = await started(stage, "A")
        call.body.release()
        await call.outcome()

        call.body.context.progress("too late", output="too late")

        assert (call.live.last_progress, call.live.partial_output) == (None, "")


class Recluse:
    """An invoker that writes down what it is asked to run."""

    capacity = 1

    def __init__(self):
        self.asked = []
        self.is_closed = False

    async def invoke(self, tool, arguments, context):
        self.asked.append((tool.name, dict(arguments), context.call_id))
        return "elsewhere"

    async def aclose(self):
        self.is_closed = True


async def test_a_tool_runs_where_its_isolation_says():
    def plain(word: str) -> None: ...

    invoker = Recluse()
    stage = Stage(make_tool(plain), invokers={Isolation.THREAD: invoker})

    outcome = await stage.run("plain", id="A", input={"word": "w", "_meta": {"timeout_ms": 5}})
    await stage.executor.aclose()

    assert outcome.result == "elsewhere"
    assert invoker.asked == [("plain", {"word": "w"}, "A")]
    assert invoker.is_closed


async def test_an_executor_that_was_never_used_can_be_closed():
    await Stage().executor.aclose()


async def test_nothing_is_left_after_the_last_call():
    stage = Stage()
    stage.gated()
    before = asyncio.all_tasks()
    calls = await started(stage, *"ABC")
    assert {live.id for live in stage.executor.live} == set("ABC")

    for call in calls:
        call.body.release()
        await call.outcome()
    await settle()

    assert asyncio.all_tasks() == before
    assert (tuple(stage.executor.live), stage.executor.abandoned) == ((), 0)


async def test_an_ended_call_is_held_by_nobody():
    stage, turn = Stage(), CancellationToken()
    stage.gated(timeout=3600)
    (call,) = await started(stage, "A", token=turn)
    call.body.release()
    await call.outcome()
    await settle()
    live = weakref.ref(call.live)

    stage.bodies.clear()
    del call
    gc.collect()

    assert live() is None
    assert not turn.is_cancelled
