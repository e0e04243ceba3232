"""A turn of openai-agents: streamed, with a scripted model, a limit for each tool, and no tracing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

from benchmarks.bare import noop
from benchmarks.measurement import Subject

_LIMIT = 60.0


@asynccontextmanager
async def opened(directory: Path, *, calls: int) -> AsyncIterator[Subject]:
    """Give what runs one turn in memory."""
    set_tracing_disabled(True)
    tool = function_tool(noop, timeout=_LIMIT)

    async def run() -> None:
        asked = [
            function_call("noop", {"number": number}, call_id=f"c{number}")
            for number in range(calls)
        ]
        model = ScriptedModel([asked, [assistant_message("done")]])
        agent = Agent(name="benchmark", model=model, tools=[tool])
        streamed = Runner.run_streamed(agent, "go")
        async for _ in streamed.stream_events():
            pass
        if streamed.final_output != "done":
            raise RuntimeError(f"The turn ended with {streamed.final_output!r}.")

    yield run
