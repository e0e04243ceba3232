"""A real pydantic-ai agent under governance: its model reads what happened, and its run goes on (B8)."""

import asyncio
import gc
import json
import sys
import threading
from dataclasses import dataclass
from typing import Any

import pydantic_ai
import pytest
from pydantic_ai import Agent, ModelRetry, RunContext, ToolReturn, UsageLimitExceeded
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.exceptions import ApprovalRequired, RunCancelled, UserError
from pydantic_ai.messages import BinaryContent, ToolCallPart
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import DeferredToolResults, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from governance import (
    Cancellation,
    CancellationToken,
    CancelReason,
    Host,
    PolicyLevels,
    ToolLimits,
    ToolRegistry,
    Unobserved,
    tool,
)
from governance.contrib.pydantic_ai import Governance, GovernedToolset, tool_context
from tests.governance.contrib.support import (
    call,
    double,
    make_executor,
    returns_of,
    scripted,
    spin,
    thread_name,
)
from tests.support import eventually, run_program

BY_ADA = Cancellation(reason=CancelReason.USER, by="ada")


class RecordingJournal(Unobserved):
    """Remembers what was told of every call."""

    def __init__(self):
        self.started = []
        self.ended = []

    async def call_started(self, call):
        self.started.append(call)

    async def call_ended(self, call, outcome):
        self.ended.append((call, outcome))

    @property
    def outcomes(self):
        return {call.id: outcome for call, outcome in self.ended}


class AgentHarness:
    """An agent under governance, with a journal of its calls and an event that lets its tools end."""

    def __init__(self, *, capabilities=(), processes=False, **executor):
        self.executor = make_executor(processes=processes, **executor)
        self.journal = RecordingJournal()
        self.token = CancellationToken()
        self.release = asyncio.Event()
        self.governance = Governance(
            self.executor, token=self.token, host=lambda ctx: Host(observer=self.journal)
        )
        self.agent = Agent(capabilities=[self.governance, *capabilities])

    async def hang(self) -> str:
        """Wait for the release."""
        await self.release.wait()
        return "released"

    def run(self, *steps, **arguments):
        return self.agent.run("go", model=scripted(*steps), **arguments)

    async def running(self, count=1):
        """Wait until so many bodies run; return their live calls."""

        def enough():
            live = [one for one in self.executor.live if one.limits.deadline is not None]
            return live if len(live) >= count else None

        return await eventually(enough)


@pytest.fixture
async def harness():
    made = AgentHarness()
    yield made
    made.release.set()
    await made.executor.aclose()


@pytest.fixture
async def with_processes():
    made = AgentHarness(processes=True)
    yield made
    await made.executor.aclose()


class TestTheModelReads:
    async def test_the_value_as_without_governance(self, harness):
        @dataclass
        class Weather:
            city: str
            degrees: float

        @harness.agent.tool_plain
        async def weather(city: str) -> Weather:
            return Weather(city, 21.5)

        result = await harness.run([call("weather", city="Rome")])

        assert result.output == '{"city":"Rome","degrees":21.5}'
        assert returns_of(result)["call-weather"].content == Weather("Rome", 21.5)
        [(live, outcome)] = harness.journal.ended
        assert (live.call.tool_name, live.call.input) == ("weather", {"city": "Rome"})
        assert (outcome.status, outcome.result) == ("succeeded", result.output)

    async def test_that_a_call_timed_out_and_goes_on(self, harness):
        harness.agent.tool_plain(metadata={"governance": {"timeout": 0.05}})(harness.hang)

        result = await harness.run([call("hang")])

        assert result.output.startswith('[TIMEOUT] Tool "hang" did not respond within 0.05s.')
        assert returns_of(result)["call-hang"].outcome == "failed"
        assert harness.journal.outcomes["call-hang"].status == "timed_out"

    async def test_that_one_call_was_cancelled_beside_another_that_was_not(self, harness):
        harness.agent.tool_plain(harness.hang)
        running = asyncio.create_task(harness.run([call("hang", "a"), call("hang", "b")]))
        for live in await harness.running(2):
            if live.id == "a":
                live.cancel(BY_ADA)
        await eventually(lambda: "a" in harness.journal.outcomes)
        harness.release.set()
        returned = returns_of(await running)

        assert returned["a"].content.startswith('[CANCELLED] Tool "hang" was cancelled by the user')
        assert returned["b"].content == "released"

    async def test_that_a_tool_raised_but_not_what(self, harness):
        @harness.agent.tool_plain
        async def fail() -> str:
            raise ValueError("s3cret")

        result = await harness.run([call("fail")])

        assert result.output.startswith(
            '[ERROR] Tool "fail" failed with ValueError (code execution_error).'
        )
        assert "s3cret" not in result.output

    async def test_that_its_result_was_too_long(self):
        harness = AgentHarness(result_limit=100)

        @harness.agent.tool_plain
        async def flood() -> str:
            return "x" * 1000

        result = await harness.run([call("flood")])

        assert "900 characters left out" in result.output

    async def test_files_and_what_is_said_beside_the_value(self, harness):
        @harness.agent.tool_plain
        def picture() -> ToolReturn:
            return ToolReturn(
                "a picture", content=[BinaryContent(b"\xff\xd8", media_type="image/jpeg")]
            )

        result = await harness.run([call("picture")])

        assert harness.journal.outcomes["call-picture"].result == "a picture"
        assert returns_of(result)["call-picture"].content == "a picture"
        assert b"\xff\xd8" in [
            content.data
            for message in result.all_messages()
            for part in message.parts
            if part.part_kind == "user-prompt" and not isinstance(part.content, str)
            for content in part.content
        ]

    async def test_the_same_tools_as_without_governance(self, harness):
        @harness.agent.tool_plain(metadata={"governance": {"timeout": 5}})
        async def look_up(city: str, days: int = 1) -> str:
            """Look it up."""
            return city

        governed, plain = TestModel(call_tools=[]), TestModel(call_tools=[])
        await harness.agent.run("go", model=governed)
        await Agent(plain, tools=[look_up]).run("go")

        [shown] = governed.last_model_request_parameters.function_tools
        [expected] = plain.last_model_request_parameters.function_tools
        assert (shown.name, shown.description) == (expected.name, expected.description)
        assert shown.parameters_json_schema == expected.parameters_json_schema


class TestLimits:
    async def test_are_those_of_pydantic_ai_where_it_has_them(self, harness):
        harness.agent.tool_plain(timeout=0.05)(harness.hang)

        result = await harness.run([call("hang")])

        assert result.output.startswith('[TIMEOUT] Tool "hang" did not respond within 0.05s.')
        assert harness.journal.outcomes["call-hang"].timeout_source == "tool"

    async def test_of_a_toolset_count_too(self, harness):
        slow = FunctionToolset([harness.hang], timeout=0.05)

        result = await harness.run([call("slow_hang")], toolsets=[slow.prefixed("slow")])

        assert result.output.startswith('[TIMEOUT] Tool "slow_hang"')
        [(live, _)] = harness.journal.ended
        assert live.call.tool_name == "slow_hang"

    async def test_can_be_asked_for_by_the_model(self, harness):
        harness.agent.tool_plain(harness.hang)

        result = await harness.run([call("hang", _meta={"timeout_ms": 30})])

        outcome = harness.journal.outcomes["call-hang"]
        assert (outcome.timeout, outcome.timeout_source) == (0.03, "hint")
        assert "within 0.03s" in result.output

    async def test_can_be_asked_for_in_arguments_that_came_as_text(self, harness):
        harness.agent.tool_plain(harness.hang)
        asked = ToolCallPart("hang", '{"_meta": {"timeout_ms": 30}}', tool_call_id="a")

        result = await harness.run([asked])

        assert "within 0.03s" in result.output

    @pytest.mark.parametrize("as_text", [False, True])
    async def test_are_recorded_as_they_run(self, harness, as_text):
        ran = []

        @harness.agent.tool_plain
        async def note(words: dict[str, Any]) -> str:
            ran.append(words)
            return "noted"

        def asked(call_id, words):
            arguments = {"words": words}
            given = json.dumps(arguments) if as_text else arguments
            return ToolCallPart("note", given, tool_call_id=call_id)

        names_meet = {"to\0": "mallory", "to\ufffd": "bob"}
        result = await harness.run([asked("a", {"a": "b\0"}), asked("b", names_meet)])

        recorded = {live.id: live.call.input for live, _ in harness.journal.ended}
        assert ran == [{"a": "b\ufffd"}]
        assert recorded["a"] == {"words": ran[0]}
        assert "two names in the arguments are the same" in result.output

    async def test_that_make_no_sense_are_refused(self, harness):
        harness.agent.tool_plain(harness.hang)

        result = await harness.run([call("hang", _meta={"timeout_ms": "soon"})])

        assert "_meta.timeout_ms must be a number" in result.output
        assert not harness.journal.started

    async def test_that_are_edited_hold_for_the_call_that_runs(self):
        class Policies:
            override = ToolLimits()

            def levels(self, tool):
                return PolicyLevels(override=self.override, declared=tool.limits)

        policies = Policies()
        harness = AgentHarness(policies=policies)
        harness.agent.tool_plain(harness.hang)
        running = asyncio.create_task(harness.run([call("hang", "a")], [call("hang", "b")]))
        await harness.running()
        policies.override = ToolLimits(timeout=0.01, enabled=False)
        harness.executor.apply_policies()
        returned = returns_of(await running)

        assert returned["a"].content.startswith('[TIMEOUT] Tool "hang"')
        assert harness.journal.outcomes["a"].timeout_source == "override"
        assert returned["b"].content.startswith("[ERROR] The tool 'hang' is switched off")

    async def test_of_idleness_are_kept_away_by_progress(self, harness):
        beats = asyncio.Event()

        @harness.agent.tool_plain(metadata={"governance": {"idle_timeout": 30}})
        async def work() -> str:
            tool_context().progress("half", progress=1, total=2)
            await beats.wait()
            return "done"

        running = asyncio.create_task(harness.run([call("work")]))
        [live] = await harness.running()
        await eventually(lambda: live.last_progress)
        beats.set()
        await running

        assert (live.idle_timeout, live.last_progress.message) == (30, "half")

    async def test_of_a_registered_tool_are_its_own(self):
        tools = ToolRegistry()
        harness = AgentHarness(registry=tools)

        @harness.agent.tool_plain
        @tool(register=tools, timeout=0.05, side_effects=True)
        async def wait() -> str:
            """Wait."""
            return await harness.hang()

        result = await harness.run([call("wait")])

        assert "within 0.05s" in result.output
        assert "may have had an effect" in result.output

    async def test_of_a_namesake_are_not(self):
        tools = ToolRegistry()

        @tool(register=tools, isolation="process", timeout=0.001)
        def look_up() -> str:
            """Something else altogether."""
            return "wrong"

        harness = AgentHarness(registry=tools)

        @harness.agent.tool_plain(name="look_up")
        async def mine() -> str:
            return "right"

        assert (await harness.run([call("look_up")])).output == "right"

    async def test_that_are_misspelt_end_the_run(self, harness):
        harness.agent.tool_plain(metadata={"governance": {"time_out": 1}})(harness.hang)

        with pytest.raises(TypeError, match="time_out"):
            await harness.run([call("hang")])


class TestCallsOfOneStep:
    async def test_run_at_once(self, harness):
        met = asyncio.Barrier(3)

        @harness.agent.tool_plain
        async def meet() -> str:
            await met.wait()
            return "met"

        result = await harness.run([call("meet", str(number)) for number in range(3)])

        assert result.output == "met|met|met"

    async def test_of_one_conversation_supersede_each_other(self, harness):
        harness.agent.tool_plain(metadata={"governance": {"concurrency": "supersede"}})(
            harness.hang
        )
        running = asyncio.create_task(harness.run([call("hang", "a"), call("hang", "b")]))
        await eventually(lambda: "a" in harness.journal.outcomes)
        harness.release.set()
        returned = returns_of(await running)

        assert "a newer call of the same tool" in returned["a"].content
        assert returned["b"].content == "released"

    async def test_wait_for_their_tool(self, harness):
        most = []

        @harness.agent.tool_plain(metadata={"governance": {"max_running": 2}})
        async def work() -> str:
            most.append(harness.executor.limiter.running)
            await asyncio.sleep(0)
            return "."

        await harness.run([call("work", str(number)) for number in range(6)])

        assert len(most) == 6
        assert max(most) == 2


class TestARunThatIsCancelled:
    async def test_by_the_token_ends_and_its_calls_have_their_outcome(self, harness):
        harness.agent.tool_plain(harness.hang)
        running = asyncio.create_task(harness.run([call("hang", "a"), call("hang", "b")]))
        await harness.running(2)

        harness.token.cancel(BY_ADA)

        with pytest.raises(RunCancelled):
            await running
        assert {
            call_id: (outcome.status, outcome.ended_by.by)
            for call_id, outcome in harness.journal.outcomes.items()
        } == {"a": ("cancelled", "ada"), "b": ("cancelled", "ada")}

    async def test_while_the_model_is_asked_ends_as_well(self, harness):
        asked = asyncio.Event()

        async def never(messages, info):
            asked.set()
            await asyncio.Event().wait()

        model = pydantic_ai.models.function.FunctionModel(never)
        running = asyncio.create_task(harness.agent.run("go", model=model))
        await asked.wait()
        harness.token.cancel(BY_ADA)

        with pytest.raises(RunCancelled):
            await running

    async def test_before_it_begins_never_asks_the_model(self, harness):
        harness.token.cancel(BY_ADA)

        with pytest.raises(RunCancelled):
            await harness.run([call("hang")])
        assert not harness.journal.ended

    async def test_from_outside_leaves_no_call_without_outcome(self, harness):
        harness.agent.tool_plain(harness.hang)
        running = asyncio.create_task(harness.run([call("hang", "a"), call("hang", "b")]))
        await harness.running(2)

        running.cancel()

        with pytest.raises(asyncio.CancelledError):
            await running
        assert {outcome.status for outcome in harness.journal.outcomes.values()} == {"cancelled"}
        assert len(harness.journal.outcomes) == 2
        assert not list(harness.executor.live)

    async def test_by_a_tool_of_its_own_ends(self, harness):
        harness.agent.tool_plain(harness.hang)

        @harness.agent.tool
        async def leave(ctx: RunContext[None]) -> str:
            ctx.cancel()
            await asyncio.sleep(0)
            return "left"

        with pytest.raises(RunCancelled):
            await harness.run([call("leave"), call("hang")])
        assert set(harness.journal.outcomes) == {"call-leave", "call-hang"}

    async def test_is_not_the_run_beside_it(self, harness):
        harness.agent.tool_plain(harness.hang)
        own = CancellationToken()
        alone = Agent(tools=[harness.hang])
        cancelled = asyncio.create_task(
            alone.run(
                "go",
                model=scripted([call("hang")]),
                capabilities=[Governance(harness.executor, token=own)],
            )
        )
        going_on = asyncio.create_task(harness.run([call("hang")]))
        await harness.running(2)
        own.cancel(BY_ADA)
        with pytest.raises(RunCancelled):
            await cancelled
        harness.release.set()

        assert (await going_on).output == "released"


class TestAPlainFunction:
    async def test_runs_in_a_thread_of_its_own(self, harness):
        harness.agent.tool_plain(thread_name)

        result = await harness.run([call("thread_name", "a")])

        assert result.output == "tool thread_name a"
        [(live, _)] = harness.journal.ended
        assert live.tool.isolation == "thread"

    async def test_gets_its_context_and_arguments_of_every_kind(self, harness):
        @harness.agent.tool
        def gather(ctx: RunContext[str], first: int, /, *rest: int, key: str = "k") -> str:
            assert tool_context().tool_name == "gather"
            return f"{ctx.deps} {first} {rest} {key}"

        result = await harness.run([call("gather", first=1, rest=[2, 3], key="x")], deps="deps")

        assert result.output == "deps 1 (2, 3) x"

    async def test_may_return_something_to_wait_for(self, harness):
        async def later():
            await asyncio.sleep(0)
            return f"on the loop: {threading.current_thread() is threading.main_thread()}"

        @harness.agent.tool_plain
        def promise() -> object:
            return later()

        assert (await harness.run([call("promise")])).output == "on the loop: True"

    async def test_that_does_not_listen_is_left_alone_and_the_run_goes_on(self, harness):
        release = threading.Event()

        @harness.agent.tool_plain(metadata={"governance": {"timeout": 0.05}})
        def stubborn() -> str:
            release.wait(30)
            return "too late"

        result = await harness.run([call("stubborn")])
        try:
            assert "it may still be running" in result.output
            assert harness.journal.outcomes["call-stubborn"].status == "abandoned"
            assert harness.executor.abandoned == 1
        finally:
            release.set()
        await eventually(lambda: harness.executor.abandoned == 0)

    def test_that_was_left_alone_may_find_its_loop_ended(self):
        release, has_returned = threading.Event(), threading.Event()

        async def later():
            return "never"

        def late() -> object:
            release.wait(30)
            has_returned.set()
            return later()

        async def run():
            agent = Agent(capabilities=[Governance(make_executor())])
            agent.tool_plain(metadata={"governance": {"timeout": 0.05}})(late)
            return await agent.run("go", model=scripted([call("late")]))

        assert "it may still be running" in asyncio.run(run()).output
        (thread,) = (one for one in threading.enumerate() if one.name.startswith("tool late"))
        release.set()
        thread.join(30)
        del thread
        gc.collect()  # what nobody awaits would be told of now
        assert has_returned.is_set()

    async def test_may_run_in_a_process(self, with_processes):
        harness = with_processes
        harness.agent.tool_plain(metadata={"governance": {"isolation": "process"}})(double)
        harness.agent.tool_plain(metadata={"governance": {"isolation": "process", "timeout": 0.3}})(
            spin
        )

        result = await harness.run([call("double", number=21)], [call("spin")])

        returned = returns_of(result)
        assert returned["call-double"].content == 42
        assert "did not respond within 0.3s. It has ended." in returned["call-spin"].content

    async def test_cannot_take_a_run_context_into_a_process(self, with_processes):
        harness = with_processes

        @harness.agent.tool(metadata={"governance": {"isolation": "process"}})
        def lost(ctx: RunContext[None]) -> str:
            return "never"

        with pytest.raises(UserError, match="does not cross"):
            await harness.run([call("lost")])


class TestWhatStaysWithPydanticAi:
    async def test_arguments_that_do_not_fit_and_tools_that_are_unknown(self, harness):
        @harness.agent.tool_plain(retries=2)
        async def look_up(number: int) -> int:
            return number

        result = await harness.run(
            [call("look_up", "a", number="many")],
            [call("nothing", "b")],
            [call("look_up", "c", number=1, more=2)],
            [call("look_up", "d", number=3)],
        )

        assert result.output == "3"
        assert [live.id for live, _ in harness.journal.ended] == ["d"]

    async def test_a_tool_that_asks_for_another_try(self, harness):
        @harness.agent.tool_plain
        async def look_up(city: str) -> str:
            if city == "Rom":
                raise ModelRetry("Write it in English.")
            return city

        result = await harness.run(
            [call("look_up", "a", city="Rom")], [call("look_up", "b", city="Rome")]
        )

        returned = returns_of(result)
        assert (returned["a"].outcome, returned["b"].content) == ("retried", "Rome")
        assert "Write it in English." in returned["a"].model_response_str()
        outcome = harness.journal.outcomes["a"]
        assert (outcome.status, outcome.result) == ("failed", "Write it in English.")

    async def test_a_tool_that_fails_in_its_own_words(self, harness):
        @harness.agent.tool_plain
        async def look_up() -> str:
            raise pydantic_ai.ToolFailed("There is no such city.")

        result = await harness.run([call("look_up")])

        assert result.output == "There is no such city."
        assert harness.journal.outcomes["call-look_up"].result == "There is no such city."

    async def test_approval_whose_time_is_not_the_tools(self):
        async def approve(ctx, requests):
            return DeferredToolResults(
                approvals={part.tool_call_id: True for part in requests.approvals}
            )

        harness = AgentHarness(capabilities=[HandleDeferredToolCalls(approve)])

        @harness.agent.tool
        async def pay(ctx: RunContext[None], cents: int) -> str:
            if cents > 100 and not ctx.tool_call_approved:
                raise ApprovalRequired
            return f"paid {cents}"

        @harness.agent.tool_plain(requires_approval=True)
        async def refund() -> str:
            return "refunded"

        result = await harness.run([call("pay", "a", cents=500), call("refund", "b")])

        assert result.output == "paid 500|refunded"
        statuses = {
            call_id: outcome.status for call_id, outcome in harness.journal.outcomes.items()
        }
        assert statuses == {"a": "failed", "a-approved": "succeeded", "b-approved": "succeeded"}

    async def test_a_limit_of_usage_that_a_tool_meets(self, harness):
        @harness.agent.tool_plain
        async def delegate() -> str:
            raise UsageLimitExceeded("no more requests")

        with pytest.raises(UsageLimitExceeded):
            await harness.run([call("delegate")])
        assert harness.journal.outcomes["call-delegate"].status == "failed"


class Foreign(AbstractToolset[None]):
    """A toolset of another kind, as one for MCP is."""

    def __init__(self, release):
        self.release = release
        self.calls = []

    @property
    def id(self):
        return "foreign"

    async def get_tools(self, ctx):
        definition = ToolDefinition(name="search", metadata={"governance": {"timeout": 0.05}})
        validator = SchemaValidator(core_schema.dict_schema())
        tool = ToolsetTool(
            toolset=self, tool_def=definition, max_retries=1, args_validator=validator
        )
        return {"search": tool}

    async def call_tool(self, name, tool_args, ctx, tool):
        self.calls.append((name, tool_args))
        if tool_args.get("wait"):
            await self.release.wait()
        return {"found": 3}


class TestAToolsetOfAnyKind:
    async def test_is_governed_as_it_is(self, harness):
        foreign = Foreign(harness.release)

        result = await harness.run(
            [call("web_search", "a", words="x", _meta={"timeout_ms": 10_000})],
            [call("web_search", "b", wait=True)],
            toolsets=[foreign.prefixed("web")],
        )

        returned = returns_of(result)
        assert returned["a"].content == {"found": 3}
        assert returned["b"].content.startswith('[TIMEOUT] Tool "web_search"')
        assert foreign.calls == [("search", {"words": "x"}), ("search", {"wait": True})]
        assert harness.journal.outcomes["a"].timeout == 10

    async def test_can_be_governed_alone_and_is_governed_once(self, harness):
        toolset = GovernedToolset(
            FunctionToolset([harness.hang], id="own"), governance=harness.governance
        )
        harness.release.set()

        plain = await Agent(toolsets=[toolset]).run("go", model=scripted([call("hang", "a")]))
        both = await harness.run([call("hang", "b")], toolsets=[toolset])

        assert (toolset.id, plain.output, both.output) == ("own", "released", "released")
        assert [live.id for live, _ in harness.journal.ended] == ["a", "b"]


async def test_streamed_runs_are_governed_too(harness):
    harness.agent.tool_plain(metadata={"governance": {"timeout": 0.05}})(harness.hang)

    async with harness.agent.run_stream("go", model=TestModel()) as stream:
        said = await stream.get_output()

    assert '[TIMEOUT] Tool \\"hang\\"' in said


async def test_without_an_executor_there_is_one_for_the_loop():
    agent = Agent(scripted([call("thread_name", "a")]), capabilities=[Governance()])
    agent.tool_plain(thread_name)

    assert (await agent.run("go")).output == "tool thread_name a"


WITHOUT_IT = """
import sys
sys.modules["pydantic_ai"] = None
try:
    import governance.contrib.pydantic_ai
except ImportError as error:
    print(error)
import governance.contrib.callables
"""
ALONE = """
import asyncio, sys
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from governance.contrib.pydantic_ai import Governance

agent = Agent(TestModel(), capabilities=[Governance()])

@agent.tool_plain(metadata={"governance": {"timeout": 0.05}})
async def hang() -> str:
    await asyncio.Event().wait()

print(asyncio.run(agent.run("go")).output)
frameworks = {"django", "channels", "asgiref", "ninja"}
print(sorted(frameworks & {name.partition(".")[0] for name in sys.modules}))
"""


def _run(program):
    done = run_program([sys.executable, "-W", "error::ResourceWarning", "-c", program])
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_what_is_missing_is_said():
    [said] = _run(WITHOUT_IT)

    assert "install django-turnkeeper[pydantic-ai]" in said


def test_no_framework_is_needed_beside_it():
    said, frameworks = _run(ALONE)

    assert '[TIMEOUT] Tool \\"hang\\" did not respond within 0.05s.' in said
    assert frameworks == "[]"
