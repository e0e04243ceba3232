"""Rows of whole turns on the shipped site: how long one takes next to those of other libraries. They show how much it
asks of the database. They show how long a cancel takes until everybody is told that it is over (C1). Import it once Django is set up."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.db import connection

from benchmarks import peers, scripted_model, tools
from benchmarks.measurement import Effort, Spread, Timed, interleave, on_one_core, spread, spread_of
from benchmarks.rows import NO_BAR, Bar, Row, amount, latency
from benchmarks.site import StatementCounter
from benchmarks.watching import PATIENCE, EventWatch
from governance import CancelSource, registry
from governance.db import run_in_db_thread
from governance.runtime import workspace_of
from turns import services
from turns.chat_models import commands
from turns.events import sinks
from turns.running import runtime

MESSAGE = "go"
MANY = 200  # calls of one step
BAR_CANCEL = Bar(most=1000)
BAR_COROUTINE = Bar(most=8, most_p99=20)
BARS = {
    ("sqlite", peers.PYDANTIC_AI): Bar(most_cpu_ratio=0.8),
    ("sqlite", peers.LANGGRAPH): Bar(most_cpu_ratio=1),
    ("postgres", peers.PYDANTIC_AI): Bar(most_cpu_ratio=1),
}
_LOOK_EVERY = 0.005

# What the person says in a conversation, and how to know that the call it leads to really runs.
Victim = Callable[[UUID], tuple[str, Callable[[], Coroutine[Any, Any, None]]]]


async def measure(effort: Effort, *, directory: Path) -> list[Row]:
    """Return the rows of turns and cancels with SQLite."""
    victims: dict[str, tuple[str, Victim, Bar]] = {
        "coroutine": ("coroutine tool", _holding, BAR_COROUTINE),
        "many": (f"{MANY} calls, sixteen running", _holding_many, BAR_CANCEL),
        "exec": ("`exec`, running `sleep 60`", _sleeping, BAR_CANCEL),
        "process": (
            "process tool, spinning",
            lambda key: _spinning(directory / f"{key}"),
            BAR_CANCEL,
        ),
    }
    async with _benchmark() as benchmark:
        rows = await benchmark.whole_turns(
            effort, directory=directory, name="sqlite", words="SQLite"
        )
        rows += await benchmark.statements(effort)
        for name, (words, victim, bar) in victims.items():
            what = f"cancel → `turn_end`, {words}"
            delays = await benchmark.cancels(victim, effort.cancels)
            rows.append(latency(f"cancel_{name}", what, delays, bar=bar))
    return rows


async def measure_turns(effort: Effort, *, directory: Path, name: str, words: str) -> list[Row]:
    """Return the rows of turns with the database of this process."""
    async with _benchmark() as benchmark:
        return await benchmark.whole_turns(effort, directory=directory, name=name, words=words)


@asynccontextmanager
async def _benchmark() -> "AsyncIterator[TurnBenchmark]":
    tools.register(registry)
    commands.MAX_CALLS_IN_STEP = MANY  # more than a person may ask of the local model
    benchmark = TurnBenchmark(user=await create_user("benchmark"), watch=EventWatch())
    sinks.register(benchmark.watch)
    try:
        yield benchmark
    finally:
        sinks.unregister(benchmark.watch)
        await runtime.stop(grace=0)


@asynccontextmanager
async def _script() -> AsyncIterator[None]:
    """Let turns have the chat model of the other libraries; `local` reads commands and tells what came of them."""
    usual = settings.TURNS_CHAT_MODEL
    settings.TURNS_CHAT_MODEL = scripted_model.FACTORY
    try:
        yield
    finally:
        settings.TURNS_CHAT_MODEL = usual


class TurnBenchmark:
    """A user and somebody who watches."""

    def __init__(self, *, user: AbstractBaseUser, watch: EventWatch) -> None:
        self.user = user
        self.watch = watch

    async def whole_turns(
        self, effort: Effort, *, directory: Path, name: str, words: str
    ) -> list[Row]:
        """Time turns of three calls and an answer, and those of other libraries between them."""
        rounds = effort.warm_ups + effort.turns
        fresh = [await services.create_conversation(user=self.user) for _ in range(rounds)]

        async def turn() -> None:
            turn_id = await self._say(fresh.pop().id, MESSAGE)
            await self.watch.moment(turn_id, "turn_end")

        async with peers.opened(directory) as others, _script():
            with on_one_core():
                measured = await interleave(
                    {"ours": turn, **others}, rounds=effort.turns, warm_ups=effort.warm_ups
                )
        what = f"whole turn with {words}, {peers.SHAPE.what}"
        return [
            latency(
                f"{name}_turn_{peer}",
                f"{what}; bare: {peers.WORDS[peer]}",
                measured["ours"],
                bare=measured[peer],
                bar=BARS.get((name, peer), NO_BAR),
            )
            for peer in others
        ]

    async def statements(self, effort: Effort) -> list[Row]:
        """Count the statements of some turns."""
        async with _script():
            counters = [await self._counted_turn() for _ in range(max(effort.turns // 6, 1))]
        return [
            _counts("sqlite_reads", "… statements that read", [c.reads for c in counters]),
            _counts("sqlite_writes", "… statements that write", [c.writes for c in counters]),
            _counts("sqlite_transactions", "… transactions", [c.transactions for c in counters]),
        ]

    async def cancels(self, victim: Victim, count: int) -> Spread:
        """Cancel turns while their tool runs; the first one warms up and does not count."""
        return spread_of([await self._cancel(victim) for _ in range(count + 1)][1:])

    async def _counted_turn(self) -> StatementCounter:
        conversation = await services.create_conversation(user=self.user)
        counter = StatementCounter()
        await _wrap(counter)
        turn_id = await self._say(conversation.id, MESSAGE)
        await self.watch.moment(turn_id, "turn_end")
        await _unwrap(counter)
        return counter

    async def _cancel(self, victim: Victim) -> Timed:
        conversation = await services.create_conversation(user=self.user)
        text, has_begun = victim(conversation.id)
        turn_id = await self._say(conversation.id, text)
        await self._until(has_begun, turn_id)
        asked, computed = time.perf_counter(), time.process_time()
        await services.request_cancel(turn_id=turn_id, user=self.user, source=CancelSource.BUTTON)
        ended = await self.watch.moment(turn_id, "turn_end")
        return Timed(wall=ended - asked, cpu=time.process_time() - computed)

    async def _until(
        self, has_begun: Callable[[], Coroutine[Any, Any, None]], turn_id: UUID
    ) -> None:
        """Wait until the tool runs; a turn that is over before that has nothing to cancel."""
        begins = asyncio.create_task(has_begun(), name="the tool begins")
        ends = asyncio.create_task(self.watch.moment(turn_id, "turn_end"), name="the turn ends")
        waiting: set[asyncio.Task[Any]] = {begins, ends}
        await asyncio.wait(waiting, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        if begins.cancelled():
            raise RuntimeError(
                "The turn ended before it could be cancelled, or its tool never began."
            )
        begins.result()

    async def _say(self, conversation_id: UUID, text: str) -> UUID:
        received = await services.receive_message(
            conversation_id=conversation_id, user=self.user, text=text
        )
        return received.turn_id


def _holding(conversation_id: UUID) -> tuple[str, Callable[[], Coroutine[Any, Any, None]]]:
    return "call hold", tools.is_held


def _holding_many(conversation_id: UUID) -> tuple[str, Callable[[], Coroutine[Any, Any, None]]]:
    return "\n".join(["call hold"] * MANY), tools.is_held


def _sleeping(conversation_id: UUID) -> tuple[str, Callable[[], Coroutine[Any, Any, None]]]:
    workspace = workspace_of(str(conversation_id))
    if workspace is None:
        raise RuntimeError("The site gives conversations no workspace.")
    sign = workspace / "began"
    return "run touch began && sleep 60", lambda: _appears(sign)


def _spinning(sign: Path) -> tuple[str, Callable[[], Coroutine[Any, Any, None]]]:
    return f'call spin {{"sign": "{sign}"}}', lambda: _appears(sign)


async def _appears(path: Path) -> None:
    # Another process makes the file, so there is no event to wait for.
    while not await asyncio.to_thread(path.exists):  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_EVERY)


def _counts(row_id: str, what: str, counts: list[int]) -> Row:
    return amount(row_id, what, spread([float(count) for count in counts]))


@run_in_db_thread
def create_user(name: str) -> AbstractBaseUser:
    """Make somebody who chats."""
    return get_user_model()._default_manager.create(username=name)


@run_in_db_thread
def _wrap(counter: StatementCounter) -> None:
    connection.execute_wrappers.append(counter)


@run_in_db_thread
def _unwrap(counter: StatementCounter) -> None:
    connection.execute_wrappers.remove(counter)
