"""Timing: runs things in turn, round by round. So a machine that drifts is as unkind to one as to the other."""

import gc
import math
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

Subject = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured.

    In the core: rounds, whole turns, cancels of each kind, calls under one deadline. In real server processes:

    - turns of each kind, sockets and turns in memory;
    - streams at once and the chunks of each, a crowd of streams;
    - messages of a conversation and of a page, finished turns in the database.
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
    crowd: int
    held: int
    messages: tuple[int, ...]
    page_messages: int
    finished: tuple[int, ...]


FULL = Effort(
    rounds=101,
    warm_ups=5,
    turns=360,
    cancels=60,
    deadlines=1000,
    deadline_rounds=5,
    clicks=60,
    lost=10,
    streams=(10, 50, 100),
    chunks=250,
    crowd=200,
    held=200,
    messages=(10, 1_000, 10_000),
    page_messages=2_000,
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
    crowd=4,
    held=5,
    messages=(10, 20, 30),
    page_messages=30,
    finished=(10, 100),
)
EFFORTS = {"full": FULL, "quick": QUICK}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """What many measurements of one thing came to; `cpu` is the median of the CPU time that it took."""

    count: int
    best: float
    median: float
    p99: float
    worst: float
    cpu: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """How long something took, and how much of it a process has computed, in seconds."""

    wall: float
    cpu: float


def spread(values: Sequence[float], *, cpu: Sequence[float] = ()) -> Spread:
    """Return the spread of at least one value."""
    ordered = sorted(values)
    return Spread(
        count=len(ordered),
        best=ordered[0],
        median=statistics.median(ordered),
        p99=ordered[math.ceil(0.99 * len(ordered)) - 1],
        worst=ordered[-1],
        cpu=statistics.median(cpu) if cpu else None,
    )


def spread_of(times: Sequence[Timed]) -> Spread:
    """Return the spread of at least one time."""
    return spread([time.wall for time in times], cpu=[time.cpu for time in times])


def process_clock(pid: int) -> Callable[[], float]:
    """Return a clock of the CPU time of another process, its threads included (Linux)."""
    clock = ~pid << 3 | 2  # as clock_getcpuclockid(3) makes it
    return partial(time.clock_gettime, clock)


@contextmanager
def on_one_core(*pids: int) -> Iterator[None]:
    """Keep all threads of this process and of others on the same core (Linux; elsewhere they stay where they are).

    The cores of a virtual machine may differ in speed, by what else their hosts do. What is compared needs the same one.
    """
    if sys.platform != "linux":
        yield
        return
    allowed = os.sched_getaffinity(0)
    processes = (os.getpid(), *pids)
    _move(processes, {max(allowed)})
    try:
        yield
    finally:
        _move(processes, allowed)


def _move(pids: Collection[int], cores: Collection[int]) -> None:
    for pid in pids:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(int(thread), cores)


async def interleave(
    subjects: Mapping[str, Subject], *, rounds: int, warm_ups: int
) -> dict[str, Spread]:
    """Run every subject once in each round. Return the spread of its seconds by name, with this process's CPU time."""
    times: dict[str, list[Timed]] = {name: [] for name in subjects}
    for _ in range(warm_ups):
        for run in subjects.values():
            await run()
    for _ in range(rounds):
        for name, run in subjects.items():
            times[name].append(await timed(run))
    return {name: spread_of(values) for name, values in times.items()}


async def timed(run: Subject, *, cpu_clock: Callable[[], float] = time.process_time) -> Timed:
    """Run something once, undisturbed by the garbage of others."""
    gc.collect()
    gc.disable()
    try:
        began, computed = time.perf_counter(), cpu_clock()
        await run()
        return Timed(wall=time.perf_counter() - began, cpu=cpu_clock() - computed)
    finally:
        gc.enable()
