"""What the tests of the core use: a clock that they move, gated tools, an observer that writes down."""

import asyncio
import functools
import heapq
import time
from collections import defaultdict

from governance import (
    Cancellation,
    CancelReason,
    Decision,
    Host,
    Isolation,
    Limits,
    PolicyLevels,
    Timing,
    ToolCall,
    ToolContext,
    ToolExecutor,
    ToolLimits,
    ToolRegistry,
    Verdict,
    make_tool,
)
from tests.support import PATIENCE

BY_USER = Cancellation(reason=CancelReason.USER, by="ada")
BY_PARENT = Cancellation(reason=CancelReason.PARENT)
RARELY_TOLD = Timing(cancel_grace=0.6, progress_interval=600, notice_interval=1)
ALL_THAT_IS_READY = 30  # rounds of the loop: more than the longest chain of callbacks here


class ManualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still until a test moves it; timers fire in order, none by waiting."""

    def __init__(self):
        self._moment = 1000.0
        self._due = []
        super().__init__()

    def time(self):
        return self._moment

    def call_at(self, when, callback, *args, context=None):
        heapq.heappush(self._due, when)
        return super().call_at(when, callback, *args, context=context)

    def jump(self, seconds):
        """Let time pass as it does while something blocks the loop."""
        self._moment += seconds

    async def advance(self, seconds):
        await settle()
        end = self._moment + seconds
        while self._due and self._due[0] <= end:
            self._moment = max(self._moment, heapq.heappop(self._due))
            await settle()
        self._moment = end
        await settle()


def on_manual_clock(test):
    """Run the coroutine function on a `ManualLoop`."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        with asyncio.Runner(loop_factory=ManualLoop) as runner:
            return runner.run(test(*args, **kwargs))

    return run


async def advance(seconds):
    """Let time pass, and everything happen that becomes due."""
    await asyncio.get_running_loop().advance(seconds)


async def settle():
    """Let everything happen that is ready now."""
    for _ in range(ALL_THAT_IS_READY):
        await asyncio.sleep(0)


async def until(condition):
    """Wait, without the loop's clock, for something that another thread brings about."""
    give_up_at = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up_at, "it did not come about"
        await asyncio.sleep(0)


class Body:
    """One run of a gated tool: says when it starts, ends as the test wants and when the test wants."""

    def __init__(self):
        self.started = asyncio.Event()
        self.released = asyncio.Event()
        self.result = "result"
        self.error = None
        self.last_words = None
        self.last_error = None
        self.is_stubborn = False
        self.runs = 0
        self.cancels = 0
        self.context = None

    def release(self, result="result"):
        self.result = result
        self.released.set()

    def fail(self, error):
        self.error = error
        self.released.set()

    async def run(self, context):
        self.context = context
        self.runs += 1
        self.started.set()
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cancels += 1
                if self.is_stubborn:
                    continue
                if self.last_error is not None:
                    raise self.last_error from None
                if self.last_words is None:
                    raise
                return self.last_words
        if self.error is not None:
            raise self.error
        return self.result


class RecordingObserver:
    """An observer that writes down what it is told. `gates` hold a notice back, `errors` make it fail, `hooks` are called."""

    def __init__(self):
        self.notices = []
        self.outcomes = []
        self.late = []
        self.changes = defaultdict(list)
        self.waits = []
        self.gates = {}
        self.errors = {}
        self.hooks = {}
        self.arrived = defaultdict(asyncio.Event)

    def names(self, call_id=None):
        return [name for name, noted in self.notices if call_id in (None, noted)]

    async def call_queued(self, call):
        self.waits.append((call.id, call.waits_for))
        await self._note("queued", call)

    async def call_started(self, call):
        await self._note("started", call)

    async def call_progressed(self, call):
        await self._note("progressed", call)

    async def deadline_moved(self, call, change):
        self.changes[call.id].append(change)
        await self._note("moved", call)

    async def call_cancelling(self, call):
        await self._note("cancelling", call)

    async def call_ended(self, call, outcome):
        self.outcomes.append((call.id, outcome))
        await self._note("ended", call)

    async def call_settled_late(self, call, late):
        self.late.append((call.id, late))
        await self._note("late", call)

    async def _note(self, name, call):
        self.arrived[name].set()
        self.hooks.pop(name, lambda: None)()
        if name in self.gates:
            await self.gates[name].wait()
        self.notices.append((name, call.id))
        if name in self.errors:
            raise self.errors[name]


class FakeApprover:
    """An approver: keeps one decision for each question, as a database does, and answers when the test says so."""

    def __init__(self):
        self.calls = {}
        self.decisions = {}
        self.earlier = None
        self.error = None
        self.asked = asyncio.Event()

    async def ask(self, call):
        if self.error is not None:
            raise self.error
        if self.earlier is None:
            call.question.id = str(len(self.calls) + 1)
            self.calls[call.question.id] = call
            self.asked.set()
        return self.earlier

    async def conclude(self, call, decision):
        return self.decisions.setdefault(decision.question, decision)

    def say(self, call, verdict, *, tell=True, **more):
        """Decide on the question that a call has now; `tell` the call, or let it find out by itself."""
        if call.question is None or not call.question.id:
            return
        word = Decision(verdict=verdict, question=call.question.id, **more)
        decision = self.decisions.setdefault(call.question.id, word)
        if tell:
            call.answer(decision)

    def has_allowed(self, call):
        return any(
            self.decisions[question].verdict is Verdict.APPROVED
            for question, asked in self.calls.items()
            if asked is call and question in self.decisions
        )


class CallHandle:
    """One call on the harness."""

    def __init__(self, live, task, body):
        self.live = live
        self.task = task
        self.body = body

    async def running(self):
        await self.body.started.wait()
        return self

    async def outcome(self):
        return await self.task


class EditedLevels:
    """A policy source as an administrator edits it: by level, for every tool alike."""

    def __init__(self, **levels):
        self.edit(**levels)

    def edit(self, *, override=None, default=None, setting=None):
        self._levels = {
            "override": override or ToolLimits(),
            "default": default or ToolLimits(),
            "setting": setting or ToolLimits(),
        }

    def levels(self, tool):
        return PolicyLevels(declared=tool.limits, **self._levels)


class ExecutorHarness:
    """An executor, gated tools, and the observer of every call."""

    def __init__(self, *tools, approver=None, **options):
        self.approver = approver
        self.bodies = defaultdict(Body)
        self.observer = RecordingObserver()
        self.registry = ToolRegistry({tool.name: tool for tool in tools})
        options.setdefault("timing", RARELY_TOLD)
        self.executor = ToolExecutor(registry=self.registry, **options)
        self._ids = 0

    def gated(self, name="gated", **declared):
        """Register a tool whose every run is a `Body` of ours."""

        async def gated(context: ToolContext):
            return await self.bodies[context.call_id].run(context)

        tool = make_tool(gated, name=name, isolation=Isolation.ASYNC, **declared)
        self.registry.register(tool)
        return tool

    def call(self, name="gated", *, id=None, scope="scope", token=None, input=None, **facts):
        """Start a call in a task of its own."""
        self._ids += 1
        call = ToolCall(
            id=id or f"call-{self._ids}", tool_name=name, scope=scope, input=input or {}, **facts
        )
        live = self.executor.prepare(call, token=token)
        host = Host(observer=self.observer, approver=self.approver)
        task = asyncio.create_task(self.executor.execute(live, host=host), name=f"test {call.id}")
        return CallHandle(live, task, self.bodies[call.id])

    async def run(self, name="gated", **facts):
        """Run a call that needs no gate."""
        return await self.call(name, **facts).outcome()


def asking_for(milliseconds):
    """Return the input of a call that asks for a limit of its own."""
    return {"_meta": {"timeout_ms": milliseconds}}


async def started(harness, *ids, **facts):
    """Start calls and wait until their bodies run."""
    return [await harness.call(id=id, **facts).running() for id in ids]


async def start_one(harness=None, **declared):
    """Start one call, "A", of a gated tool; return its harness and the call as its body runs."""
    harness = harness or ExecutorHarness()
    harness.gated(**declared)
    (call,) = await started(harness, "A")
    return harness, call


async def one_waits(harness=None, **declared):
    """Start a call, "A", of a gated tool, and one behind it, "B", for which there is no slot."""
    harness = harness or ExecutorHarness(limits=Limits(max_running=1))
    harness, running = await start_one(harness, **declared)
    waiting = harness.call(id="B")
    await settle()
    return harness, running, waiting


async def finish(*calls):
    """Let the bodies of calls return, one after the other; return the outcomes."""
    outcomes = []
    for call in calls:
        (await call.running()).body.release()
        outcomes.append(await call.outcome())
    return outcomes
