"""A hung thread delays neither the next call nor the exit; it is counted and capped (T7, invariant 7)."""

import asyncio
import contextvars
import sys
import threading
import tracemalloc
from collections import defaultdict
from dataclasses import replace

import pytest

from governance import (
    CallStatus,
    CancellationToken,
    Disposition,
    ErrorType,
    Isolation,
    Timing,
    ToolContext,
    make_tool,
)
from governance.core.invokers.thread import ThreadInvoker
from tests.governance.core.support import (
    BY_USER,
    RARELY_TOLD,
    ExecutorHarness,
    advance,
    on_manual_clock,
    until,
)
from tests.support import PATIENCE, cancel, run_program

WAY_TOO_LONG = 30.0  # a test that comes to wait for this fails
question = contextvars.ContextVar("question", default="nobody asked")


class Threads:
    """A harness with plain tools, each run of which waits for its own gate."""

    def __init__(self, *, max_threads=4, max_abandoned=4, on_exit=None, **options):
        self.invoker = ThreadInvoker(
            max_threads=max_threads, max_abandoned=max_abandoned, on_exit=on_exit
        )
        self.harness = ExecutorHarness(invokers={Isolation.THREAD: self.invoker}, **options)
        self.gates = defaultdict(threading.Event)
        self.contexts = {}
        self.started = defaultdict(asyncio.Event)
        loop = asyncio.get_running_loop()

        def hang(context: ToolContext) -> str:
            self.contexts[context.call_id] = context
            loop.call_soon_threadsafe(self.started[context.call_id].set)
            assert self.gates[context.call_id].wait(WAY_TOO_LONG)
            return "late words"

        def quick(word: str = "quick") -> str:
            return word

        self.harness.registry.register(make_tool(hang))
        self.harness.registry.register(make_tool(quick))

    async def hang(self, call_id, **facts):
        """Start a call that hangs until its gate is opened."""
        call = self.harness.call("hang", id=call_id, **facts)
        await self.started[call_id].wait()
        return call

    async def open(self, *call_ids):
        """Let the hung threads end."""
        for call_id in call_ids:
            self.gates[call_id].set()
        await until(lambda: self.invoker.abandoned == 0 and self.harness.executor.abandoned == 0)


SHORT = Timing(cancel_grace=0.01)


async def test_a_plain_tool_runs_in_a_thread_of_its_own():
    threads = Threads()

    def where() -> str:
        return threading.current_thread().name

    threads.harness.registry.register(make_tool(where))

    outcome = await threads.harness.run("where", id="call-9")

    assert outcome.result == "tool where call-9"


async def test_a_hung_tool_does_not_poison_the_next():
    threads = Threads(max_threads=1, timing=SHORT)
    hung = await threads.hang("A", input={"_meta": {"timeout_ms": 20}})
    first = await hung.outcome()

    second = await threads.harness.run("quick")

    assert first.status is CallStatus.ABANDONED
    assert (second.status, second.result) == (CallStatus.SUCCEEDED, "quick")
    await threads.open("A")


@on_manual_clock
async def test_an_abandoned_thread_is_counted_until_it_ends():
    threads = Threads()
    hung = await threads.hang("A", input={"_meta": {"timeout_ms": 5000}})

    await advance(5.6)
    outcome = await hung.outcome()

    assert (outcome.status, outcome.error_type) == (CallStatus.ABANDONED, ErrorType.TIMEOUT)
    assert outcome.disposition is Disposition.INDETERMINATE
    assert (threads.invoker.abandoned, threads.harness.executor.abandoned) == (1, 1)
    assert threads.harness.executor.limiter.running == 0
    await threads.open("A")


@on_manual_clock
async def test_at_the_cap_of_abandoned_threads_plain_tools_are_refused_and_not_run():
    threads = Threads(max_abandoned=2)
    for call_id in "AB":
        call = await threads.hang(call_id)
        call.live.cancel(BY_USER)
        await advance(0.6)
        await call.outcome()

    refused = await threads.harness.run("quick")

    assert (refused.status, refused.disposition) == (CallStatus.FAILED, Disposition.NOT_STARTED)
    assert "2 threads of earlier calls are still running" in refused.result
    assert refused.error_type is ErrorType.NOT_STARTED
    await threads.open("A", "B")
    assert (await threads.harness.run("quick")).status is CallStatus.SUCCEEDED


@on_manual_clock
async def test_the_clock_of_a_call_does_not_run_while_it_waits_for_a_thread():
    threads = Threads(max_threads=1)
    first = await threads.hang("A")
    queued = threads.harness.call("quick", input={"_meta": {"timeout_ms": 5000}})

    await advance(60)
    assert threads.harness.executor.limiter.queued == 1
    threads.gates["A"].set()

    assert (await first.outcome()).status is CallStatus.SUCCEEDED
    outcome = await queued.outcome()
    assert (outcome.status, outcome.queued) == (CallStatus.SUCCEEDED, 60)


async def test_a_task_that_is_cancelled_twice_does_not_wait_for_its_thread():
    threads = Threads()
    context = ToolContext(
        call_id="A", tool_name="hang", scope="", token=CancellationToken(), report=print
    )
    tool = threads.harness.registry.get("hang")
    task = asyncio.create_task(threads.invoker.invoke(tool, {}, context))
    await threads.started["A"].wait()

    task.cancel()
    await cancel(task)

    assert threads.invoker.abandoned == 1
    await threads.open("A")


@pytest.mark.parametrize(
    ("obeys", "status"), [(True, CallStatus.CANCELLED), (False, CallStatus.SUCCEEDED)]
)
async def test_a_thread_that_looks_at_its_token_ends_and_is_not_abandoned(obeys, status):
    threads = Threads(timing=replace(RARELY_TOLD, cancel_grace=PATIENCE))
    loop, ready = asyncio.get_running_loop(), asyncio.Event()

    def polite(context: ToolContext) -> str:
        loop.call_soon_threadsafe(ready.set)
        context.token.wait_blocking(WAY_TOO_LONG)
        if obeys:
            context.token.raise_if_cancelled()
        return "real"

    threads.harness.registry.register(make_tool(polite))
    call = threads.harness.call("polite")
    await ready.wait()

    call.live.cancel(BY_USER)
    outcome = await call.outcome()

    assert (outcome.status, outcome.disposition) == (status, Disposition.SETTLED)
    assert (outcome.result == "real") is not obeys
    await until(lambda: threads.invoker.abandoned == 0)
    assert threads.harness.observer.late == []


async def test_a_thread_reports_progress_and_output():
    threads = Threads()
    loop, reported = asyncio.get_running_loop(), asyncio.Event()
    go_on = threading.Event()

    def chatty(context: ToolContext) -> str:
        context.progress("half", progress=1, total=2, output="line\n")
        loop.call_soon_threadsafe(reported.set)
        assert go_on.wait(WAY_TOO_LONG)
        return "done"

    threads.harness.registry.register(make_tool(chatty))
    call = threads.harness.call("chatty")
    await reported.wait()

    progress, output = call.live.last_progress, call.live.partial_output
    go_on.set()
    assert (await call.outcome()).result == "done"
    assert (progress.message, progress.progress, progress.total) == ("half", 1, 2)
    assert output == "line\n"


@on_manual_clock
async def test_progress_from_a_thread_keeps_the_idle_limit_off():
    threads = Threads()
    threads.harness.registry.register(
        make_tool(threads.harness.registry.get("hang").function, name="idle", idle_timeout=5)
    )
    call = threads.harness.call("idle", id="A")
    await threads.started["A"].wait()

    for _ in range(5):
        await advance(4)
        reporter = threading.Thread(target=threads.contexts["A"].progress)
        reporter.start()
        reporter.join()
    await advance(4)
    assert not call.task.done()
    threads.gates["A"].set()

    assert (await call.outcome()).status is CallStatus.SUCCEEDED


async def test_context_variables_reach_the_thread():
    threads = Threads()

    def ask() -> str:
        return question.get()

    threads.harness.registry.register(make_tool(ask))
    question.set("who?")

    assert (await threads.harness.run("ask")).result == "who?"


async def test_a_cancel_from_a_thread_ends_the_call():
    threads = Threads(timing=SHORT)
    call = await threads.hang("A")

    canceller = threading.Thread(target=call.live.cancel, args=(BY_USER,))
    canceller.start()
    outcome = await call.outcome()
    canceller.join()

    assert outcome.ended_by is BY_USER
    await threads.open("A")


@pytest.mark.parametrize("error", [ValueError, StopIteration, SystemExit, KeyboardInterrupt])
async def test_whatever_a_thread_raises_is_a_failure_of_its_call_alone(error):
    threads = Threads()

    def broken() -> None:
        raise error("s3cret")

    threads.harness.registry.register(make_tool(broken))

    outcome = await threads.harness.run("broken")

    assert (outcome.status, outcome.error_type) == (CallStatus.FAILED, ErrorType.EXECUTION_ERROR)
    assert f"failed with {error.__name__}" in outcome.result
    assert "s3cret" not in outcome.result


async def test_cleans_up_in_the_thread_at_its_end():
    seen = []
    threads = Threads(on_exit=lambda: seen.append(threading.current_thread().name))

    await threads.harness.run("quick", id="A")

    assert seen == ["tool quick A"]


async def test_a_failed_clean_up_does_not_take_the_result_away(caplog):
    def fail():
        raise ValueError("broken")

    threads = Threads(on_exit=fail)

    assert (await threads.harness.run("quick")).result == "quick"
    assert "A thread could not clean up at its end" in caplog.messages


def test_a_thread_learns_that_its_call_is_no_longer_its_own_when_the_loop_has_ended():
    async def end_a_call():
        threads = Threads()
        call = await threads.hang("A")
        await threads.open("A")
        await call.outcome()
        return threads.contexts["A"]

    context = asyncio.run(end_a_call())

    assert not context.still_mine_blocking()


PROGRAM = """
import asyncio, logging, threading
from governance import Isolation, Timing, ToolCall, ToolExecutor, ToolRegistry, make_tool
from governance.core.invokers.thread import ThreadInvoker

logging.getLogger("governance").addHandler(logging.NullHandler())

def hang() -> None:
    threading.Event().wait(60)

async def main(timeout_ms, is_awaited):
    executor = ToolExecutor(
        registry=ToolRegistry({"hang": make_tool(hang)}),
        timing=Timing(cancel_grace=0.01),
        invokers={Isolation.THREAD: ThreadInvoker(max_threads=4, max_abandoned=4)},
    )
    call = ToolCall(id="A", tool_name="hang", input={"_meta": {"timeout_ms": timeout_ms}})
    running = asyncio.create_task(executor.run(call))
    if is_awaited:
        print((await running).status)
    else:
        while not any(thread.name == "tool hang A" for thread in threading.enumerate()):
            await asyncio.sleep(0.001)

asyncio.run(main({arguments}))
print("gone")
"""


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [("10, True", ["abandoned", "gone"]), ("60000, False", ["gone"])],
    ids=["abandoned", "still in its call"],
)
def test_a_hung_thread_does_not_delay_the_exit_of_the_process(arguments, printed):
    program = PROGRAM.replace("{arguments}", arguments)

    for _ in range(3):  # asyncio cancels the tasks that are left in no particular order
        process = run_program([sys.executable, "-W", "error", "-c", program])

        assert (process.stdout.split(), process.stderr) == (printed, "")
        assert process.returncode == 0


async def test_flood_of_prints_does_not_fill_the_log_of_the_server(capsys):
    harness = ExecutorHarness(
        invokers={Isolation.THREAD: ThreadInvoker(max_threads=1, max_abandoned=1)}
    )
    before = sys.stdout, sys.stderr

    def flood(lines: int) -> str:
        for number in range(lines):
            print(f"line {number}")  # noqa: T201 - that is the point
        print("an error", file=sys.stderr)  # noqa: T201
        return "done"

    harness.registry.register(make_tool(flood))
    for lines in (100_000, 1):
        outcome = await harness.run("flood", input={"lines": lines})
        assert outcome.result == "done"
    print("the server's own word")  # noqa: T201
    said = capsys.readouterr()
    assert len(said.out) < 70_000
    assert said.out.count("output was dropped") == 1
    assert said.out.endswith("line 0\nthe server's own word\n")
    assert said.err == "an error\n"
    assert (sys.stdout, sys.stderr) == before


async def test_flood_of_reports_takes_neither_the_memory_nor_the_time_of_the_loop():
    harness = ExecutorHarness(
        invokers={Isolation.THREAD: ThreadInvoker(max_threads=1, max_abandoned=1)}
    )
    has_flooded = threading.Event()

    def flood(context: ToolContext) -> str:
        for number in range(20_000):
            context.progress(f"{number} " + "x" * 5_000, output="y" * 5_000)
        has_flooded.set()
        return "done"

    harness.registry.register(make_tool(flood))
    tracemalloc.start()
    try:
        running = asyncio.create_task(harness.run("flood"))
        await asyncio.sleep(0)
        while not has_flooded.wait(0.1):  # noqa: ASYNC110 - the loop shall stand still meanwhile
            await asyncio.sleep(0)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    outcome = await running
    assert outcome.status is CallStatus.SUCCEEDED
