"""The floor: the same turn on a bare asyncio loop, one task and one `asyncio.timeout` for each call, nothing else."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

_LIMIT = 60.0


async def noop(number: int) -> str:
    """Return at once."""
    return str(number)


_TOOLS: dict[str, Callable[..., Awaitable[str]]] = {"noop": noop}


async def run_turn(parallel: int, steps: int) -> list[dict[str, Any]]:
    """Answer a message with `steps` rounds of `parallel` calls; return the history."""
    history: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for step in range(steps):
        await asyncio.sleep(0)
        calls = [
            {
                "id": f"c{step}_{place}",
                "name": "noop",
                "arguments": json.dumps({"number": step * parallel + place}),
            }
            for place in range(parallel)
        ]
        history.append({"role": "assistant", "tool_calls": calls})
        tasks = [asyncio.create_task(_call(call)) for call in calls]
        await asyncio.wait(tasks)
        history.extend(task.result() for task in tasks)
    await asyncio.sleep(0)
    history.append({"role": "assistant", "content": "done"})
    return history


async def _call(call: dict[str, str]) -> dict[str, str]:
    async with asyncio.timeout(_LIMIT):
        content = await _TOOLS[call["name"]](**json.loads(call["arguments"]))
    return {"role": "tool", "tool_call_id": call["id"], "content": content}
