"""Spans of calls that no turn makes. What tracing does where nobody traces, or where something is wrong with it."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor

from governance import (
    Isolation,
    Span,
    ToolCall,
    ToolExecutor,
    ToolRegistry,
    enclosing,
    make_tool,
    traceparent,
)
from governance.core.invokers.thread import ThreadInvoker
from tests.spans import provider, recorded_spans, texts, tree
from tests.support import eventually

ROOT = Path(__file__).parents[3]
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(("opentelemetry", "mcp", "mcp_types")))
"""
A_TURN = """
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "tests/turns/test_ceilings.py", "-k", "three_calls"]))
"""
A_CALL = """
import asyncio
from governance import Span, ToolCall, ToolExecutor, ToolRegistry, enclosing, make_tool, traceparent
async def look() -> str:
    "Look around."
    return f"{enclosing()} {traceparent()!r}"
registry = ToolRegistry()
registry.register(make_tool(look))
async def main():
    with Span("mine", {}):
        print((await ToolExecutor(registry=registry).run(ToolCall(id="a", tool_name="look"))).result)
asyncio.run(main())
"""


@pytest.fixture
def spans():
    with recorded_spans() as spans:
        yield spans


async def whereabouts() -> str:
    """Say in which span this runs."""
    return traceparent()


def blocking() -> str:
    """Say it from a thread."""
    return traceparent()


async def endless() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return ""


@pytest.fixture
def executor():
    registry = ToolRegistry()
    for tool in (whereabouts, blocking, endless):
        registry.register(make_tool(tool))
    return ToolExecutor(
        registry=registry,
        invokers={Isolation.THREAD: ThreadInvoker(max_threads=2, max_abandoned=2)},
    )


@pytest.mark.parametrize("name", ["whereabouts", "blocking"])
async def test_a_body_runs_inside_the_span_of_its_call(executor, spans, name):
    with trace.get_tracer("a host").start_as_current_span("job"):
        outcome = await executor.run(ToolCall(id="a", tool_name=name, scope="s"))
    call = spans.named(f"execute_tool {name}")
    assert outcome.result.split("-")[2] == f"{call.context.span_id:016x}"
    assert tree(spans.ended) == [(call.name, "job"), ("job", "")]


async def test_the_span_of_a_call_ends_with_the_task_that_waits_for_it(executor, spans):
    waiting = asyncio.create_task(executor.run(ToolCall(id="a", tool_name="endless")))
    await eventually(lambda: any(live.body for live in executor.live))
    waiting.cancel()
    await asyncio.wait({waiting})
    await executor.aclose()
    [call] = await spans.all_ended()
    assert [event.attributes["turnkeeper.cancel.reason"] for event in call.events] == ["shutdown"]


async def test_a_call_shows_its_content_only_below_a_span_that_does(executor, spans):
    call = ToolCall(id="a", tool_name="whereabouts", input={"_meta": "tulip-mill \ud83d"})
    await executor.run(call)
    assert "tulip-mill" not in texts(spans.ended)
    with Span("mine", {}) as span:
        span.shows_content = True
        await executor.run(call)
    assert "tulip-mill" in texts(spans.ended)


def test_a_span_takes_the_open_ones_below_it_along(spans):
    with Span("above", {}, shared={"of": "all"}) as above:
        below = Span("below", {})
        with Span("current", {}):
            assert enclosing() is not above
        assert enclosing() is above
    below.set({"too": "late"})
    below.end()
    assert tree(spans.ended) == [("current", "above"), ("below", "above"), ("above", "")]
    assert dict(spans.named("below").attributes) == {"of": "all", "turnkeeper.abandoned": True}
    assert enclosing() is None


def test_what_was_left_behind_begins_no_span(spans):
    with Span("above", {}) as above:
        above.end()
        with Span("late", {}):
            pass
    assert [span.name for span in spans.ended] == ["above"]
    assert enclosing() is None


class Unwritable:
    def __str__(self):
        raise ValueError("no words")

    __repr__ = __str__


async def test_what_cannot_be_written_is_left_out(executor, spans):
    with Span("mine", {}) as span:
        span.shows_content = True
        odd = {"_meta": Unwritable()}
        outcome = await executor.run(ToolCall(id="a", tool_name="whereabouts", input=odd))
    assert outcome.status == "succeeded"
    assert "gen_ai.tool.call.result" in spans.named("execute_tool whereabouts").attributes


async def test_a_fault_of_whoever_takes_the_spans_is_no_fault_of_the_call(executor, spans, caplog):
    class Broken(SpanProcessor):
        is_on = True

        def on_start(self, span, parent_context=None):
            if self.is_on:
                raise OSError("no room")

    broken = Broken()
    provider().add_span_processor(broken)
    try:
        outcome = await executor.run(ToolCall(id="a", tool_name="whereabouts"))
    finally:
        broken.is_on = False
    assert outcome.status == "succeeded"
    assert "A span could not be written" in caplog.text


def run(program: str) -> "subprocess.CompletedProcess[str]":
    ours = ("PYTEST_", "TURNKEEPER_", "TEST_DATABASE_URL", "COV_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=ROOT
    )


def test_a_turn_and_its_calls_need_no_opentelemetry():
    ran = run(WITHOUT + A_TURN)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout


@pytest.mark.parametrize("before", [WITHOUT, ""], ids=["without the API", "without an SDK"])
def test_where_nobody_traces_nothing_is_begun_and_nothing_passed_on(before):
    ran = run(before + A_CALL)
    assert ran.stdout.split("\n")[0] == "None ''", ran.stderr
