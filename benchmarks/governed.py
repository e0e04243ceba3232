"""The same turn under governance, without a database: by the executor alone, and by a whole turn runner."""

import asyncio
import json
from collections.abc import Iterable
from uuid import uuid4

from benchmarks.bare import noop
from governance import (
    CallStatus,
    CancellationToken,
    Host,
    LoopDetector,
    ToolCall,
    ToolExecutor,
    ToolOutcome,
    ToolRegistry,
    make_tool,
)
from tests.turns.journals import RecordingJournal
from turns.core.chat_model import ToolSpec
from turns.core.ports import ClaimedTurn
from turns.core.runner import TurnConfig, TurnRunner
from turns.core.turns import TurnStatus
from turns.testing import ScriptedChatModel, call, text

_LIMIT = 60.0


def make_executor() -> ToolExecutor:
    """Return an executor with the limits it has by default and one tool, `noop`."""
    registry = ToolRegistry()
    registry.register(make_tool(noop, timeout=_LIMIT))
    return ToolExecutor(registry=registry)


async def run_by_executor(executor: ToolExecutor, parallel: int, steps: int) -> None:
    """Make the calls of `steps` rounds; nothing keeps their history."""
    token, host = CancellationToken(), Host()
    for step in range(steps):
        await asyncio.sleep(0)
        calls = [
            ToolCall(
                id=f"c{step}_{place}",
                tool_name="noop",
                input=json.loads(json.dumps({"number": step * parallel + place})),
                scope="benchmark",
                position=place,
            )
            for place in range(parallel)
        ]
        tasks = [
            asyncio.create_task(executor.execute(executor.prepare(one, token=token), host=host))
            for one in calls
        ]
        await asyncio.wait(tasks)
        _check(task.result() for task in tasks)


async def run_by_runner(executor: ToolExecutor, parallel: int, steps: int) -> None:
    """Run a whole turn: stream the scripted answers, make the calls, journal in memory, look for loops."""
    replies = [
        [
            call(f"c{step}_{place}", "noop", number=step * parallel + place)
            for place in range(parallel)
        ]
        for step in range(steps)
    ]
    turn = ClaimedTurn(
        id=uuid4(),
        conversation_id=uuid4(),
        epoch=1,
        agent="",
        user_message="go",
        turn_timeout=1800.0,
        step_limit=steps + 1,
    )
    journal = RecordingJournal("go")
    runner = TurnRunner(
        turn,
        config=TurnConfig(
            chat_model=ScriptedChatModel(*replies, [text("done")]),
            tools=(ToolSpec(name="noop", description="", input_schema={}),),
        ),
        executor=executor,
        journal=journal,
        loops=LoopDetector(window=30, warn_after=4, halt_after=8),
        token=CancellationToken(),
    )
    ending = await runner.run()
    if ending.status is not TurnStatus.COMPLETED:
        raise RuntimeError(f"The turn ended as {ending.status.value!r}.")
    _check(journal.outcomes.values())


def _check(outcomes: Iterable[ToolOutcome]) -> None:
    """A benchmark of calls that fail would be a fast one."""
    for outcome in outcomes:
        if outcome.status is not CallStatus.SUCCEEDED:
            raise RuntimeError(f"A call ended as {outcome.status.value!r}: {outcome.result}")
