"""Row of a durable turn of three calls and an answer, next to LangGraph's with its SQLite checkpointer."""

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from benchmarks.clients import Tab, user_of
from benchmarks.clock_model import call
from benchmarks.sites import cpu_clock
from benchmarks.size import Size
from benchmarks.table import Row
from tests.faults.site import Site

CALLS = 3
_WARM_UPS = 5
_AT_REST = 0.001  # seconds of CPU time between two looks
_LOOK_EVERY = 0.02

Turn = Callable[[], Awaitable[None]]
Timed = tuple[float, float]  # seconds, seconds of CPU


def durable_turn(site: Site, size: Size, *, server: str) -> Row:
    """Return the row: from a POST to `turn_end` at the socket, next to `ainvoke` in this process."""
    with TemporaryDirectory() as directory:
        ours, theirs = asyncio.run(_measure(site, Path(directory), count=size.turns))
    cpu_ratio = ours[1] / theirs[1]
    return Row(
        what="CPU of a durable turn of three calls, next to LangGraph with its SQLite checkpointer",
        server=f"{server}; LangGraph in the measuring process",
        measured=(
            f"{cpu_ratio:.2f} × (CPU {1000 * ours[1]:.1f} and {1000 * theirs[1]:.1f} ms; "
            f"time {ours[0] / theirs[0]:.2f} ×, {1000 * ours[0]:.1f} and {1000 * theirs[0]:.1f} ms; medians of {size.turns})"
        ),
        bar="reported",
        is_kept=None,  # a bar would ask for machinery in place of plain Django
    )


async def _measure(site: Site, directory: Path, *, count: int) -> tuple[Timed, Timed]:
    """Return the medians of both, run alternately on one core, because a virtual machine's cores may differ in speed."""
    clock = cpu_clock(site)
    ours: list[Timed] = []
    theirs: list[Timed] = []
    async with user_of(site) as user, _langgraph(directory) as langgraph_turn:
        with _on_one_core(site.processes["web"].pid, os.getpid()):
            for _ in range(_WARM_UPS + count):
                # One tab at a time, because each open one gets the status of the person's other conversations.
                async with user.tabs(await user.converse()) as [tab]:
                    ours.append(await _timed(partial(_turn, tab), clock))
                theirs.append(await _timed(langgraph_turn, time.process_time))
    return _medians(ours[_WARM_UPS:]), _medians(theirs[_WARM_UPS:])


async def _turn(tab: Tab) -> None:
    turn_id = await tab.say(call(CALLS))
    await tab.until("turn_end", turn_id=turn_id)


async def _timed(turn: Turn, clock: Callable[[], float]) -> Timed:
    start, cpu_start = time.perf_counter(), clock()
    await turn()
    seconds = time.perf_counter() - start
    # Work that a process does after a turn belongs to the turn. The other process must not compute during that time.
    before = -1.0
    while (now := clock()) - before > _AT_REST:
        before = now
        await asyncio.sleep(_LOOK_EVERY)
    return seconds, now - cpu_start


def _medians(times: list[Timed]) -> Timed:
    seconds, cpu = zip(*times, strict=True)
    return statistics.median(seconds), statistics.median(cpu)


@contextmanager
def _on_one_core(*pids: int) -> Iterator[None]:
    allowed = os.sched_getaffinity(0)

    def move(cores: set[int]) -> None:
        for pid in pids:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with suppress(ProcessLookupError):  # the thread has ended
                    os.sched_setaffinity(int(thread), cores)

    move({max(allowed)})
    try:
        yield
    finally:
        move(allowed)


@asynccontextmanager
async def _langgraph(directory: Path) -> AsyncIterator[Turn]:
    """Yield a function that runs a turn: a node for the model, one for its tools, a checkpoint after each step."""
    model = _Model()

    async def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", answer)
    graph.add_node("tools", ToolNode([nothing]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    async with AsyncSqliteSaver.from_conn_string(str(directory / "checkpoints.sqlite3")) as saver:
        app = graph.compile(checkpointer=saver)

        async def turn() -> None:
            thread = {"configurable": {"thread_id": uuid4().hex}}
            await app.ainvoke({"messages": [HumanMessage("go")]}, thread)

        yield turn


class _Model(BaseChatModel):  # type: ignore[misc] # untyped where it is not installed
    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *_: Any, **_options: Any) -> ChatResult:
        answer = AIMessage("done")
        if isinstance(messages[-1], HumanMessage):
            calls = [
                {"name": "nothing", "args": {"number": number}, "id": uuid4().hex}
                for number in range(CALLS)
            ]
            answer = AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=answer)])


@tool  # type: ignore[untyped-decorator] # untyped where it is not installed
async def nothing(number: int) -> str:
    """Return immediately."""
    return str(number)
