"""Runs one turn: streams from the chat model, hands the tool calls of a step to the executor, until an answer stands."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from governance import (
    Cancellation,
    CancellationToken,
    CancelReason,
    Host,
    LiveCall,
    LoopDetector,
    ToolCall,
    ToolExecutor,
    ToolOutcome,
)
from turns.core.chat_model import (
    ChatModel,
    ChatRequest,
    Notice,
    Reply,
    TextDelta,
    ToolSpec,
    message_of,
)
from turns.core.deltas import DeltaStream
from turns.core.exceptions import Fenced
from turns.core.messages import Message, ToolResultBlock
from turns.core.ports import ClaimedTurn, TurnEnding, TurnJournal
from turns.core.step_observer import StepObserver
from turns.core.turns import TurnStatus

logger = logging.getLogger(__name__)

MODEL_GRACE = 0.3  # seconds that a model stream may take to close after its task was cancelled

_STATUS_BY_REASON = {
    CancelReason.TIMEOUT: TurnStatus.TIMED_OUT,
    CancelReason.SHUTDOWN: TurnStatus.INTERRUPTED,
    CancelReason.ERROR: TurnStatus.FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Who takes part in a turn: the chat model, its tools and instructions, the place it works in."""

    chat_model: ChatModel
    tools: tuple[ToolSpec, ...]
    instructions: str = ""
    workspace: Path | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def ending_of(cancellation: Cancellation) -> TurnEnding:
    """Return the ending of a turn that was cancelled for this reason."""
    status = _STATUS_BY_REASON.get(cancellation.reason, TurnStatus.CANCELLED)
    return TurnEnding(status=status, cancellation=cancellation)


class TurnRunner:
    """One turn from its claim to its ending. Cancelled by its token; never writes after it was fenced."""

    def __init__(
        self,
        turn: ClaimedTurn,
        *,
        cast: Cast,
        executor: ToolExecutor,
        journal: TurnJournal,
        loops: LoopDetector,
        token: CancellationToken,
    ) -> None:
        self.turn = turn
        self.token = token
        self.steps = 0
        self.usage: dict[str, int] = {}
        self._cast = cast
        self._executor = executor
        self._journal = journal
        self._loops = loops
        self._calls: dict[str, LiveCall] = {}
        self._used_ids: set[str] = set()
        self._after_step: Cancellation | None = None

    @property
    def scope(self) -> str:
        """The conversation as governance sees it: an opaque id."""
        return str(self.turn.conversation_id)

    def find_call(self, tool_id: str) -> LiveCall | None:
        """Return the call of this id if it waits or runs now."""
        return self._calls.get(tool_id)

    def cancel_after_step(self, cancellation: Cancellation) -> None:
        """Let the running step end, then stop."""
        self._after_step = self._after_step or cancellation

    async def run(self) -> TurnEnding:
        """Run the turn and return how it ended; the caller stores the ending.

        Raises:
            Fenced: the turn belongs to another owner now.
        """
        timer = self._start_clock()
        try:
            prompt = await self._journal.prompt()
            return await self._converse(list(prompt.messages), note=prompt.note)
        except Fenced:
            self.token.cancel(Cancellation(reason=CancelReason.ERROR))
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _start_clock(self) -> asyncio.TimerHandle | None:
        if self.turn.turn_timeout is None:
            return None
        timed_out = Cancellation(reason=CancelReason.TIMEOUT)
        return asyncio.get_running_loop().call_later(
            self.turn.turn_timeout, self.token.cancel, timed_out
        )

    async def _converse(self, messages: list[Message], *, note: str) -> TurnEnding:
        instructions = "\n\n".join(part for part in (self._cast.instructions, note) if part)
        while self.steps < self.turn.step_limit:
            if (cancellation := self.token.cancellation or self._after_step) is not None:
                return ending_of(cancellation)
            self.steps += 1
            request = ChatRequest(
                instructions=instructions, messages=tuple(messages), tools=self._cast.tools
            )
            reply = await self._ask(request)
            if reply is None:
                return self._ended_by_token()
            if not reply.has_calls:
                return TurnEnding(status=TurnStatus.COMPLETED)
            calls = reply.calls(scope=self.scope)
            message = message_of(reply.text, calls, turn_id=str(self.turn.id))
            await self._journal.save_reply(self.steps, message, calls)
            messages.extend((message, await self._call_tools(calls)))
        if (cancellation := self.token.cancellation or self._after_step) is not None:
            return ending_of(cancellation)
        return TurnEnding(
            status=TurnStatus.FAILED,
            error_code="step_limit",
            error_message=f"The turn was ended after {self.turn.step_limit} steps, its limit.",
        )

    def _ended_by_token(self) -> TurnEnding:
        return ending_of(self.token.cancellation or Cancellation(reason=CancelReason.ERROR))

    async def _ask(self, request: ChatRequest) -> Reply | None:
        """Stream one answer. Return None if the turn was cancelled meanwhile; what was said by then is kept (H2)."""
        await self._journal.open_reply(self.steps)
        if self.token.is_cancelled:
            return None
        reply = Reply(used_ids=self._used_ids)
        deltas = DeltaStream(self._journal, step=self.steps)
        stream = asyncio.create_task(
            self._consume(request, reply, deltas), name=f"chat model stream of turn {self.turn.id}"
        )
        cancelled = asyncio.get_running_loop().create_future()
        forget = self.token.on_cancel(
            lambda _: cancelled.get_loop().call_soon_threadsafe(_resolve, cancelled)
        )
        try:
            await asyncio.wait({stream, cancelled}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            deltas.discard()
            raise
        finally:
            forget()
            if not stream.done():
                await self._close_stream(stream)
        return await self._take_stock(stream, reply, deltas)

    async def _consume(self, request: ChatRequest, reply: Reply, deltas: DeltaStream) -> None:
        stream = self._cast.chat_model.stream(request)
        try:
            async for delta in stream:
                reply.take(delta)
                if isinstance(delta, TextDelta) and delta.text:
                    deltas.add(delta.text)
                elif isinstance(delta, Notice):
                    await self._tell(delta)
        finally:
            if isinstance(stream, AsyncGenerator):  # closed here, not by the garbage collector
                await stream.aclose()

    async def _tell(self, notice: Notice) -> None:
        """Store and publish a notice as a whole, also if the stream is cancelled meanwhile: no event stays unpublished."""
        telling = asyncio.create_task(
            self._journal.notify(notice.code, notice.message),
            name=f"notice of turn {self.turn.id}",
        )
        try:
            await asyncio.wait({telling})
        except asyncio.CancelledError:
            telling.add_done_callback(_consume_exception)
            await asyncio.wait({telling}, timeout=MODEL_GRACE)
            raise
        telling.result()

    async def _close_stream(self, stream: asyncio.Task[None]) -> None:
        """Cancel the task that owns the stream, which closes the provider's connection; wait for it, bounded."""
        stream.cancel()
        await asyncio.wait({stream}, timeout=MODEL_GRACE)
        if not stream.done():
            stream.add_done_callback(_consume_exception)
            logger.warning(
                "A chat model does not end its stream", extra={"turn_id": str(self.turn.id)}
            )

    async def _take_stock(
        self, stream: asyncio.Task[None], reply: Reply, deltas: DeltaStream
    ) -> Reply | None:
        """Store what the stream came to: a finished message, or the text of an interrupted one."""
        await deltas.close()
        self._count(reply)
        error = stream.exception() if stream.done() and not stream.cancelled() else None
        if (
            stream.done()
            and not stream.cancelled()
            and error is None
            and not self.token.is_cancelled
        ):
            if not reply.has_calls:
                message = message_of(reply.text, (), turn_id=str(self.turn.id))
                await self._journal.save_reply(self.steps, message, ())
            return reply
        message = message_of(reply.text, (), turn_id=str(self.turn.id), interrupted=True)
        await self._journal.save_reply(self.steps, message, (), interrupted=True)
        if error is not None and not self.token.is_cancelled:
            raise error
        return None

    def _count(self, reply: Reply) -> None:
        for name, tokens in (
            ("input_tokens", reply.usage.input_tokens),
            ("output_tokens", reply.usage.output_tokens),
        ):
            if tokens:
                self.usage[name] = self.usage.get(name, 0) + tokens

    async def _call_tools(self, calls: Sequence[ToolCall]) -> Message:
        """Run the calls of a step side by side; return their results in call order (P1)."""
        observer = StepObserver(self._journal, self._loops, step=self.steps, token=self.token)
        host = Host(observer=observer, workspace=self._cast.workspace, metadata=self._cast.metadata)
        self._calls = {call.id: self._executor.prepare(call, token=self.token) for call in calls}
        tasks = [
            asyncio.create_task(
                self._executor.execute(live, host=host), name=f"tool call {call_id}"
            )
            for call_id, live in self._calls.items()
        ]
        try:
            await self._await_all(tasks)
        finally:
            self._calls = {}
        return Message(
            role="user",
            content=tuple(_block(call, observer.outcomes[call.id]) for call in calls),
            turn_id=str(self.turn.id),
        )

    async def _await_all(self, tasks: Sequence["asyncio.Task[ToolOutcome]"]) -> None:
        """Wait for every call; if one could not be recorded, end the others before passing the error on."""
        try:
            _done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            if pending:
                self.token.cancel(Cancellation(reason=CancelReason.ERROR))
                await asyncio.wait(pending)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            raise
        errors = [error for task in tasks if (error := task.exception()) is not None]
        if errors:
            raise errors[0]


def _block(call: ToolCall, outcome: ToolOutcome) -> ToolResultBlock:
    return ToolResultBlock(tool_use_id=call.id, content=outcome.result, is_error=outcome.is_error)


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _consume_exception(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
