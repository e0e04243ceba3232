"""A harness for runners: real tools that wait where a test wants it, a real executor, a scripted chat model."""

import asyncio
from uuid import UUID, uuid4

from governance import (
    Cancellation,
    CancellationToken,
    CancelReason,
    CancelSource,
    Concurrency,
    LoopDetector,
    Timing,
    ToolContext,
    ToolExecutor,
    ToolRegistry,
    tool,
)
from tests.support import PATIENCE
from tests.turns.journals import RecordingJournal
from turns.core.ports import ClaimedTurn
from turns.core.repairs import violations
from turns.core.runner import TurnConfig, TurnRunner
from turns.testing import ScriptedChatModel

BY_USER = Cancellation(reason=CancelReason.USER, source=CancelSource.BUTTON, by="Ada")


def claimed(
    message="do it",
    *,
    conversation_id: UUID | None = None,
    turn_timeout=None,
    step_limit=50,
    token_limit=None,
):
    return ClaimedTurn(
        id=uuid4(),
        conversation_id=conversation_id or uuid4(),
        epoch=1,
        agent="",
        user_message=message,
        turn_timeout=turn_timeout,
        step_limit=step_limit,
        token_limit=token_limit,
    )


class RunnerHarness:
    """What a turn needs, and the tools `echo`, `hold`, `hold_alone`, `hang` and `fail`.

    `hold` waits for `released[name]`, `hang` ignores its cancellation until `let_go` is set.
    """

    def __init__(self):
        self.registry = ToolRegistry()
        self.released: dict[str, asyncio.Event] = {}
        self.began: dict[str, asyncio.Event] = {}
        self.let_go = asyncio.Event()
        self._add_tools()
        self.executor = ToolExecutor(registry=self.registry, timing=Timing(cancel_grace=PATIENCE))
        self.token = CancellationToken()
        self.journal = RecordingJournal("do it")
        self.runner: TurnRunner | None = None
        self._running: asyncio.Task | None = None

    def make_runner(self, model, *, turn=None, token=None, loops=None, **config):
        self.runner = TurnRunner(
            turn or claimed(),
            config=TurnConfig(chat_model=model, tools=(), **config),
            executor=self.executor,
            journal=self.journal,
            loops=loops or LoopDetector.off(),
            token=token or self.token,
        )
        return self.runner

    async def run(self, *replies, **options):
        """Run a turn to its end; return the ending and the chat model."""
        model = ScriptedChatModel(*replies)
        async with asyncio.timeout(PATIENCE):
            ending = await self.make_runner(model, **options).run()
        return ending, model

    def start(self, *replies, model=None, **options):
        """Begin a turn; return its task and the chat model."""
        model = model or ScriptedChatModel(*replies)
        runner = self.make_runner(model, **options)
        self._running = asyncio.create_task(runner.run(), name="turn under test")
        return self._running, model

    def event(self, kind, name):
        return getattr(self, kind).setdefault(name, asyncio.Event())

    async def until_begun(self, *names):
        async with asyncio.timeout(PATIENCE):
            for name in names:
                await self.event("began", name).wait()

    def release(self, *names):
        for name in names:
            self.event("released", name).set()

    async def close(self):
        self.let_go.set()
        for released in self.released.values():
            released.set()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
        await self.executor.aclose()

    def results(self):
        """The results of the last step, as the model reads them."""
        return [block.content for block in self.journal.history[-1].tool_results]

    def assert_valid_history(self):
        """H1: every call has exactly one result, in call order."""
        assert violations(self.journal.history) == []

    def _add_tools(self):
        @tool(register=self.registry)
        async def echo(text: str = "echo") -> str:
            return text

        @tool(register=self.registry)
        async def hold(name: str) -> str:
            return await self._hold(name)

        @tool(register=self.registry, concurrency=Concurrency.EXCLUSIVE)
        async def hold_alone(name: str) -> str:
            return await self._hold(name)

        @tool(register=self.registry)
        async def hang(context: ToolContext, name: str) -> str:
            self.event("began", name).set()
            while not self.let_go.is_set():
                try:
                    await self.let_go.wait()
                except asyncio.CancelledError:
                    continue
            return "let go"

        @tool(register=self.registry)
        async def fail() -> str:
            raise RuntimeError("secret detail")

    async def _hold(self, name):
        self.event("began", name).set()
        await self.event("released", name).wait()
        return f"{name} was held"
