"""Rows of the core: what a governed call costs next to the bare loop, also in a long turn."""

from dataclasses import dataclass
from functools import partial

from benchmarks import bare
from benchmarks.governed import make_executor, run_by_executor, run_by_runner
from benchmarks.measurement import Effort, Spread, Subject, interleave
from benchmarks.rows import NO_BAR, Bar, Row, per_call
from governance import ToolExecutor

BARS = {
    "executor_8": Bar(most=300, most_ratio=2.8),
    "turn_8": Bar(most=300, most_ratio=8),
    "executor_50x1": Bar(most=600, most_ratio=14),
    "turn_50x1": Bar(most=600, most_ratio=4.5),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A turn: how many calls in each step, how many steps."""

    name: str
    what: str
    parallel: int
    steps: int

    @property
    def calls(self) -> int:
        """Calls of the whole turn."""
        return self.parallel * self.steps


SHAPES = (
    Shape(name="8", what="8 calls side by side", parallel=8, steps=1),
    Shape(name="64", what="64 calls side by side", parallel=64, steps=1),
    Shape(name="50x1", what="50 steps of 1 call", parallel=1, steps=50),
)
LONG_SHAPES = (
    Shape(name="200x1", what="200 steps of 1 call", parallel=1, steps=200),
    Shape(name="800x1", what="800 steps of 1 call", parallel=1, steps=800),
)
_LONG_TURNS_ROUNDS = 5  # one of 800 steps takes a third of a second: fewer are as good


async def measure(effort: Effort) -> list[Row]:
    """Return the rows, shape by shape: by the executor alone, then by a whole turn runner."""
    executor = make_executor()
    rows: list[Row] = []
    for shape in SHAPES:
        rows += await _rows(executor, shape, rounds=effort.rounds, warm_ups=effort.warm_ups)
    for shape in LONG_SHAPES:
        rounds = max(effort.rounds // _LONG_TURNS_ROUNDS, 1)
        rows += await _rows(executor, shape, rounds=rounds, warm_ups=1)
    await executor.aclose()
    return sorted(rows, key=lambda row: not row.id.startswith("executor"))


async def _rows(executor: ToolExecutor, shape: Shape, *, rounds: int, warm_ups: int) -> list[Row]:
    size = (shape.parallel, shape.steps)
    subjects: dict[str, Subject] = {
        "bare": partial(bare.run_turn, *size),
        "executor": partial(run_by_executor, executor, *size),
        "turn": partial(run_by_runner, executor, *size),
    }
    measured = await interleave(subjects, rounds=rounds, warm_ups=warm_ups)
    row = partial(_row, measured, shape)
    return [row("executor", "executor alone"), row("turn", "whole turn in memory")]


def _row(measured: dict[str, Spread], shape: Shape, subject: str, words: str) -> Row:
    return per_call(
        f"{subject}_{shape.name}",
        f"{words}, {shape.what}",
        measured[subject],
        bare=measured["bare"],
        calls=shape.calls,
        bar=BARS.get(f"{subject}_{shape.name}", NO_BAR),
    )
