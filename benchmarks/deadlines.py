"""Rows of the deadlines: how late outcomes come when a thousand calls run out at once (T1)."""

import asyncio
from collections.abc import Awaitable, Callable

from benchmarks.measurement import Effort, spread
from benchmarks.rows import Row, latency
from governance import (
    CallStatus,
    Host,
    Limits,
    LiveCall,
    ToolCall,
    ToolExecutor,
    ToolOutcome,
    ToolRegistry,
    Unobserved,
    make_tool,
)

LIMIT = 1.0


async def hang() -> None:
    """Never end by itself."""
    await asyncio.Event().wait()


class Stopwatch(Unobserved):
    """Notes when each call starts and ends, by the loop's clock and not by the executor's own."""

    def __init__(self) -> None:
        self._started: dict[str, float] = {}
        self.overshoots: list[float] = []

    async def call_started(self, call: LiveCall) -> None:
        """The clock of the call starts after this."""
        self._started[call.id] = asyncio.get_running_loop().time()

    async def call_ended(self, call: LiveCall, outcome: ToolOutcome) -> None:
        """The outcome is there."""
        if outcome.status is not CallStatus.TIMED_OUT:
            raise RuntimeError(f"A call ended as {outcome.status.value!r}.")
        now = asyncio.get_running_loop().time()
        self.overshoots.append(now - self._started[call.id] - LIMIT)


async def measure(effort: Effort) -> list[Row]:
    """Return the row; the bare loop's calls run into their `asyncio.timeout` in the rounds between."""
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(effort.deadline_rounds):
        bare += await _bare(effort.deadlines)
        ours += await _governed(effort.deadlines)
    what = f"outcome after the deadline, {effort.deadlines} calls at once"
    return [latency("overshoot", what, spread(ours), bare=spread(bare))]


async def _governed(count: int) -> list[float]:
    registry = ToolRegistry()
    registry.register(make_tool(hang, timeout=LIMIT))
    limits = Limits(max_running=count, max_running_per_scope=count, max_queued=count)
    executor = ToolExecutor(registry=registry, limits=limits)
    stopwatch = Stopwatch()
    host = Host(observer=stopwatch)

    async def run(place: int) -> None:
        await executor.run(ToolCall(id=f"c{place}", tool_name="hang", scope="b"), host=host)

    await _at_once(run, count)
    await executor.aclose()
    return stopwatch.overshoots


async def _bare(count: int) -> list[float]:
    overshoots: list[float] = []
    time = asyncio.get_running_loop().time

    async def run(_: int) -> None:
        started = time()
        try:
            async with asyncio.timeout(LIMIT):
                await hang()
        except TimeoutError:
            overshoots.append(time() - started - LIMIT)

    await _at_once(run, count)
    return overshoots


async def _at_once(run: Callable[[int], Awaitable[None]], count: int) -> None:
    await asyncio.gather(*(run(place) for place in range(count)))
