"""Rows of the loop of an agent library, pydantic-ai: the same turn on it, and what governing its tools adds."""

from collections.abc import AsyncIterator
from functools import partial

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.usage import UsageLimits

from benchmarks.bare import noop, run_turn
from benchmarks.core import SHAPES, Shape
from benchmarks.measurement import Effort, Subject, interleave
from benchmarks.rows import Row, per_call
from governance import ToolExecutor, ToolRegistry
from governance.contrib.pydantic_ai import Governance

_ROUNDS = 2  # it takes long enough for fewer rounds
_LIMIT = 60.0
_NO_LIMIT = UsageLimits(request_limit=None)


async def measure(effort: Effort) -> list[Row]:
    """Return the rows: the library's loop next to the bare one, then governed next to alone."""
    rows: list[Row] = []
    executor = ToolExecutor(registry=ToolRegistry())
    governance = Governance(executor)
    for shape in SHAPES:
        subjects: dict[str, Subject] = {
            "bare": partial(run_turn, shape.parallel, shape.steps),
            "alone": turn_of(shape),
            "governed": turn_of(shape, governance),
        }
        measured = await interleave(
            subjects, rounds=max(effort.rounds // _ROUNDS, 1), warm_ups=effort.warm_ups
        )
        row = partial(per_call, calls=shape.calls)
        rows += [
            row(
                f"library_{shape.name}",
                f"loop of pydantic-ai, {shape.what}",
                measured["alone"],
                bare=measured["bare"],
            ),
            row(
                f"library_governed_{shape.name}",
                f"… with its tools governed; bare: without, {shape.what}",
                measured["governed"],
                bare=measured["alone"],
            ),
        ]
    await executor.aclose()
    return sorted(rows, key=lambda row: "governed" in row.id)


def turn_of(shape: Shape, *governance: Governance) -> Subject:
    """Return what runs one streamed turn."""
    model = FunctionModel(stream_function=partial(_answer, shape))
    return partial(_run, Agent(model, tools=[noop], tool_timeout=_LIMIT), *governance)


async def _run(agent: Agent, *governance: Governance) -> None:
    async with agent.run_stream_events(
        "go", usage_limits=_NO_LIMIT, capabilities=list(governance)
    ) as events:
        async for _ in events:
            pass


async def _answer(
    shape: Shape, messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[DeltaToolCalls | str]:
    step = sum(isinstance(message, ModelResponse) for message in messages)
    if step == shape.steps:
        yield "done"
        return
    for place in range(shape.parallel):
        number = step * shape.parallel + place
        arguments = f'{{"number": {number}}}'
        yield {place: DeltaToolCall("noop", arguments, tool_call_id=f"c{number}")}
