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
    """How much is measured: rounds of the core, whole turns, cancels of each kind, calls under one deadline."""

    rounds: int
    warm_ups: int
    turns: int
    cancels: int
    deadlines: int
    deadline_rounds: int


FULL = Effort(rounds=41, warm_ups=5, turns=120, cancels=60, deadlines=1000, deadline_rounds=5)
QUICK = Effort(rounds=2, warm_ups=1, turns=3, cancels=2, deadlines=50, deadline_rounds=1)


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
