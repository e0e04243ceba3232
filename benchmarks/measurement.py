"""Timing: runs things in turn, round by round, so that a machine that drifts is as unkind to one as to the other."""

import gc
import math
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

Subject = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured: rounds of the core, whole turns, cancels of each kind, calls under one deadline; and of

    real server processes: turns of each kind, streams at once and the chunks of each, sockets and turns in memory,
    messages of a conversation, finished turns in the database.
    """

    rounds: int
    warm_ups: int
    turns: int
    cancels: int
    deadlines: int
    deadline_rounds: int
    clicks: int
    lost: int
    streams: tuple[int, ...]
    chunks: int
    held: int
    messages: tuple[int, ...]
    finished: tuple[int, ...]


FULL = Effort(
    rounds=41,
    warm_ups=5,
    turns=120,
    cancels=60,
    deadlines=1000,
    deadline_rounds=5,
    clicks=60,
    lost=10,
    streams=(10, 50, 100),
    chunks=250,
    held=200,
    messages=(10, 1_000, 10_000),
    finished=(1_000, 1_000_000),
)
QUICK = Effort(
    rounds=1,
    warm_ups=0,
    turns=2,
    cancels=1,
    deadlines=20,
    deadline_rounds=1,
    clicks=2,
    lost=1,
    streams=(1, 2, 3),
    chunks=10,
    held=5,
    messages=(10, 20, 30),
    finished=(10, 100),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """What many measurements of one thing came to."""

    count: int
    best: float
    median: float
    p99: float
    worst: float


def spread(values: Sequence[float]) -> Spread:
    """Return the spread of at least one value."""
    ordered = sorted(values)
    return Spread(
        count=len(ordered),
        best=ordered[0],
        median=statistics.median(ordered),
        p99=ordered[math.ceil(0.99 * len(ordered)) - 1],
        worst=ordered[-1],
    )


async def interleave(
    subjects: Mapping[str, Subject], *, rounds: int, warm_ups: int
) -> dict[str, Spread]:
    """Run every subject once in each round; return the spread of its seconds by name."""
    seconds: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(warm_ups):
        for run in subjects.values():
            await run()
    for _ in range(rounds):
        for name, run in subjects.items():
            seconds[name].append(await _timed(run))
    return {name: spread(values) for name, values in seconds.items()}


async def _timed(run: Subject) -> float:
    gc.collect()
    gc.disable()
    try:
        began = time.perf_counter()
        await run()
        return time.perf_counter() - began
    finally:
        gc.enable()
