"""What the body of a call returns or raises is its outcome, told by its kind. What cannot run is refused in words."""

import asyncio
import contextvars
import math

import pytest

from governance import (
    CallStatus,
    Cancelled,
    Disposition,
    ErrorType,
    Host,
    Limits,
    TimeoutSource,
    ToolCall,
    ToolContext,
    ToolFailed,
    ToolLimits,
    ToolTimeoutError,
    make_tool,
)
from governance.core.masking import mask
from tests.governance.core.support import (
    BY_USER,
    EditedLevels,
    ExecutorHarness,
    advance,
    asking_for,
    on_manual_clock,
    one_waits,
    settle,
    start_one,
    started,
    until,
)

EXITS = (SystemExit, KeyboardInterrupt)
question = contextvars.ContextVar("question", default="nobody asked")


class Odd(BaseException):
    """What `except Exception` lets pass."""


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError


class TestResult:
    @on_manual_clock
    async def test_of_the_body_is_the_result_with_its_duration(self):
        _, call = await start_one(timeout=30)

        await advance(12)
        call.body.release("result")
        outcome = await call.outcome()

        assert (outcome.status, outcome.result) == (CallStatus.SUCCEEDED, "result")
        assert (outcome.is_error, outcome.error_type, outcome.ended_by) == (False, None, None)
        assert outcome.disposition is Disposition.SETTLED
        assert (outcome.duration, outcome.timeout) == (12, 30)
        assert outcome.timeout_source == TimeoutSource.TOOL

    async def test_that_cannot_be_written_says_that_the_tool_has_run(self):
        _, call = await start_one()

        call.body.release({"s3cret": b"\xff"})
        outcome = await call.outcome()

        assert (outcome.status, outcome.error_type) == (
            CallStatus.FAILED,
            ErrorType.EXECUTION_ERROR,
        )
        assert "has run, but its result cannot be written as text" in outcome.result
        assert "s3cret" not in outcome.result

    @pytest.mark.parametrize(
        "value", [math.nan, {"x": -math.inf}, [[math.inf]], {"deep": {"er": [1, math.nan]}}]
    )
    async def test_that_json_has_no_number_for_is_refused_after_it_has_run(self, value):
        _, call = await start_one()

        call.body.release(value)
        outcome = await call.outcome()

        assert (outcome.status, outcome.disposition) == (CallStatus.FAILED, Disposition.SETTLED)
        assert "has run, but its result cannot be written as text" in outcome.result

    async def test_that_only_speaks_of_such_numbers_is_none(self):
        _, call = await start_one()

        call.body.release({"note": "NaN", "Infinity": 10**5000, "x": 0.5})

        assert (await call.outcome()).status is CallStatus.SUCCEEDED

    async def test_that_is_huge_is_cut(self):
        _, call = await start_one(ExecutorHarness(result_limit=1000))

        call.body.release("x" * 10_000_000)

        assert len((await call.outcome()).result) < 1100

    async def test_context_variables_reach_the_body(self):
        async def ask() -> str:
            return question.get()

        question.set("who?")

        assert (await ExecutorHarness(make_tool(ask)).run("ask")).result == "who?"

    async def test_the_body_knows_its_call_and_its_host(self, tmp_path):
        async def tell(context: ToolContext, word: str) -> list[object]:
            left = context.time_left()
            return [context.call_id, context.tool_name, context.scope, word, left and left > 4]

        harness = ExecutorHarness(make_tool(tell, timeout=5))

        assert (await harness.run("tell", id="A", input={"word": "w"})).result == (
            '["A","tell","scope","w",true]'
        )

        async def place(context: ToolContext) -> list[str]:
            return [str(context.workspace), context.metadata["who"]]

        harness.registry.register(make_tool(place))
        host = Host(workspace=tmp_path, metadata={"who": "ada"})
        outcome = await harness.executor.run(ToolCall(id="B", tool_name="place"), host=host)

        assert outcome.result == f'["{tmp_path}","ada"]'


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (7_200_000, "7200s; the maximum is 3600s"),
        (0, "no limit; the maximum"),
        (60_000, ""),
    ],
)
async def test_a_wish_for_more_time_that_was_capped_is_told_with_every_result(asked, told):
    async def work(fails: bool = False) -> str:
        if fails:
            raise ToolFailed("No paper.")
        return "printed"

    harness = ExecutorHarness(make_tool(work))
    well = await harness.run("work", id="A", input=asking_for(asked))
    badly = await harness.run("work", id="B", input={"fails": True, **asking_for(asked)})

    for outcome, first in ((well, "printed"), (badly, "No paper.")):
        line, _, note = outcome.result.partition("\n")
        assert line == first
        assert (told in note) if told else note == ""


class TestFailure:
    async def test_is_told_by_its_kind_and_never_by_its_text(self, caplog):
        _, call = await start_one()

        call.body.fail(ValueError("s3cret"))
        outcome = await call.outcome()

        assert outcome.status is CallStatus.FAILED
        assert outcome.error_type is ErrorType.EXECUTION_ERROR
        assert outcome.result.startswith(
            '[ERROR] Tool "gated" failed with ValueError (code execution_error).'
        )
        assert "s3cret" not in outcome.result + outcome.detail
        assert isinstance(outcome.error.__cause__, ValueError)
        assert "A tool raised" in caplog.messages

    async def test_is_told_by_its_text_too_where_that_is_allowed_masked_and_capped(self):
        harness = ExecutorHarness(
            policies=EditedLevels(setting=ToolLimits(error_text=True)),
            mask=lambda text: mask(text, secrets=["garden-gate"]),
        )
        harness.gated()
        (call,) = await started(harness, "A")

        call.body.fail(
            ValueError("no file 'a.txt'\nfor garden-gate, password=s3cret " + "x " * 999)
        )
        outcome = await call.outcome()

        said = outcome.result.partition("It said: ")[2]
        assert said.startswith("no file 'a.txt' for ***, password=*** x x")
        assert said.endswith("x x…")
        assert len(said) == 500
        assert "s3cret" not in outcome.result + outcome.detail

    @pytest.mark.parametrize(
        ("error", "words"),
        [
            (ToolFailed("No such file: a.txt."), "No such file: a.txt."),
            (ToolFailed("x" * 5_000), "… 4 000 characters left out …"),
            (ToolTimeoutError("inner", 3), "Tool 'inner' did not respond within 3s."),
            (TimeoutError(), "failed with TimeoutError (code execution_error)"),
            (Unspeakable(), "failed with Unspeakable (code execution_error). The details"),
        ],
        ids=["worded", "worded at length", "of a call of its own", "a timeout", "unreadable"],
    )
    async def test_is_told_in_the_tools_words_or_by_its_kind(self, error, words):
        policies = EditedLevels(setting=ToolLimits(error_text=True))
        _, call = await start_one(ExecutorHarness(result_limit=1000, policies=policies))

        call.body.context.progress(output="so far")
        call.body.fail(error)
        outcome = await call.outcome()

        assert outcome.error_type is ErrorType.EXECUTION_ERROR
        assert words in outcome.result
        assert outcome.is_error
        if isinstance(error, ToolFailed):
            assert "so far" not in outcome.result  # the tool has said what is worth reading
        else:
            assert outcome.result.endswith("\nso far")

    @pytest.mark.parametrize(
        "error", [*EXITS, StopIteration, GeneratorExit, Odd, asyncio.CancelledError, Cancelled]
    )
    async def test_whatever_a_body_raises_it_ends_nothing_but_its_call(self, error):
        async def odd() -> None:
            raise error(BY_USER)

        outcome = await ExecutorHarness(make_tool(odd)).run("odd")

        assert (outcome.status, outcome.error_type) == (
            CallStatus.FAILED,
            ErrorType.EXECUTION_ERROR,
        )
        if error in EXITS:
            assert f"failed with {error.__name__} " in outcome.result

    @on_manual_clock
    async def test_a_task_that_others_cancel_before_its_first_step_ends_its_call(self):
        harness = ExecutorHarness()
        harness.gated(timeout=0)
        call = harness.call()
        await until(lambda: call.live.body is not None)
        assert not call.body.started.is_set()

        call.live.body.task.cancel()
        await settle()

        assert call.task.done()  # although nothing limits it
        assert (await call.outcome()).status is CallStatus.FAILED
        assert call.body.runs == 0

    async def test_of_one_leaves_the_others_their_results(self):
        harness = ExecutorHarness()
        harness.gated()
        calls = await started(harness, "A", "B", "C")

        calls[1].body.fail(ValueError())
        assert (await calls[1].outcome()).status is CallStatus.FAILED
        calls[0].body.release("first")
        calls[2].body.release("third")

        assert (await calls[0].outcome()).result == "first"
        assert (await calls[2].outcome()).result == "third"


class TestRefusal:
    """Nothing of the tool runs and no clock starts."""

    def check(self, harness, outcome, error_type, *words):
        assert (outcome.status, outcome.error_type) == (CallStatus.FAILED, error_type)
        assert outcome.disposition is Disposition.NOT_STARTED
        assert all(word in outcome.result for word in words)
        assert outcome.duration == 0
        assert harness.observer.names() == ["ended"]
        assert not any(body.runs for body in harness.bodies.values())

    async def test_of_an_unknown_tool(self):
        harness = ExecutorHarness()

        outcome = await harness.run("nothing")

        self.check(harness, outcome, ErrorType.UNKNOWN_TOOL, "'nothing'")

    @pytest.mark.parametrize(
        ("asked", "words"),
        [
            ({"input": {"extra": 1}}, ". Correct the input"),
            ({"input": {"_meta": {"timeout_ms": -1}}}, ". Correct the input"),
            ({"problem": "it is not JSON"}, "it is not JSON"),
        ],
    )
    async def test_of_invalid_or_unreadable_input(self, asked, words):
        harness = ExecutorHarness()
        harness.gated()

        outcome = await harness.run(**asked)

        self.check(harness, outcome, ErrorType.INVALID_INPUT, words)

    async def test_of_a_tool_that_is_switched_off(self):
        harness = ExecutorHarness(policies=EditedLevels(override=ToolLimits(enabled=False)))
        harness.gated()

        outcome = await harness.run()

        self.check(harness, outcome, ErrorType.DISABLED, "switched off")

    async def test_of_a_tool_that_is_switched_off_while_its_call_waits(self):
        policies = EditedLevels()
        harness = ExecutorHarness(policies=policies, limits=Limits(max_running=1))
        harness, running, waiting = await one_waits(harness)

        policies.edit(override=ToolLimits(enabled=False))
        harness.executor.apply_policies()
        running.body.release()

        assert (await running.outcome()).status is CallStatus.SUCCEEDED
        assert (await waiting.outcome()).error_type is ErrorType.DISABLED
        assert harness.observer.names("B") == ["ended"]

    async def test_of_an_isolation_that_nothing_runs(self):
        def plain() -> None: ...

        harness = ExecutorHarness(make_tool(plain))

        outcome = await harness.run("plain")

        self.check(harness, outcome, ErrorType.EXECUTION_ERROR, "cannot be run here")

    async def test_of_a_tool_whose_definition_is_broken(self, caplog):
        async def broken(value: "NoSuchType") -> None: ...  # type: ignore[name-defined]  # noqa: F821

        harness = ExecutorHarness(make_tool(broken))

        outcome = await harness.run("broken", input={"value": 1})

        self.check(harness, outcome, ErrorType.EXECUTION_ERROR, "NameError")
        assert "NoSuchType" not in outcome.result
        assert "A tool call could not be checked" in caplog.messages
