"""Answering: streams the answers of a turn's chat model, one after the other, and stores what each comes to (H2)."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from governance import CancellationToken
from turns.core.chat_model import (
    ChatModel,
    ChatRequest,
    Notice,
    Reply,
    StopReason,
    TextDelta,
    Usage,
    message_of,
)
from turns.core.deltas import DeltaStream
from turns.core.messages import Message
from turns.core.ports import TurnJournal
from turns.core.texts import ANSWER_CUT_OFF, ANSWER_EMPTY, STEP_CUT_OFF
from turns.core.tracing import chat_span

logger = logging.getLogger(__name__)

T = TypeVar("T")
WithFiles = Callable[[Sequence[Message]], Awaitable[Sequence[Message]]]

MODEL_GRACE = 0.3  # seconds that a model stream may take to close after its task was cancelled


async def without_files(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages as they are, where nobody has files for them."""
    return messages


class Answering:
    """The answers of one turn. `cut_off` is what the last one had said when it was cancelled, if anything.

    `with_files` adds the files to the messages of a request. That belongs to the answer: a storage may hang, too.
    """

    def __init__(
        self,
        chat_model: ChatModel,
        journal: TurnJournal,
        *,
        turn_id: str,
        on_usage: Callable[[Usage], object],
        with_files: WithFiles,
    ) -> None:
        self.cut_off: Message | None = None
        self._chat_model = chat_model
        self._journal = journal
        self._turn_id = turn_id
        self._on_usage = on_usage
        self._with_files = with_files
        self._used_ids: set[str] = set()
        self._stuck: asyncio.Future[_Stream] | None = None
        self._stream: _Stream | None = None

    async def work(self, asking: Coroutine[Any, Any, T]) -> T | None:
        """Run what asks for answers in a task of its own. Return None if a cancelled chat model does not end its stream.

        The task is left behind then, and stores nothing more.
        """
        self._stuck = asyncio.get_running_loop().create_future()
        worker = asyncio.create_task(asking, name=f"work of turn {self._turn_id}")
        ended: set[asyncio.Future[Any]] = {worker, self._stuck}
        try:
            await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._end(worker)
            raise
        if worker.done():
            return worker.result()
        worker.add_done_callback(_consume_exception)
        await self._leave(self._stuck.result())
        return None

    async def ask(
        self, request: ChatRequest, *, step: int, token: CancellationToken, is_last: bool = False
    ) -> Reply | None:
        """Stream one answer. Return None if the token was cancelled meanwhile; what was said by then is kept (H2).

        Call it in `work`. An answer without calls is stored here; of the last one only the words count.
        """
        if token.is_cancelled:
            return None
        reply, deltas = Reply(used_ids=self._used_ids), DeltaStream(self._journal, step=step)
        stream = self._stream = _Stream(reply, deltas, step=step, token=token, stuck=self._stuck)
        error: Exception | None = None
        try:
            with stream:
                messages = tuple(await self._with_files(request.messages))
                if messages is not request.messages:
                    request = replace(request, messages=messages)
                with chat_span(request, reply, token=token):
                    await self._consume(request, reply, deltas)
                    stream.is_whole = True
        except asyncio.CancelledError:
            if stream.is_cancelled_by_others:
                deltas.discard()
                raise
        except Exception as failure:  # noqa: BLE001 - it is raised once what was said is kept
            error = failure
        if stream.is_left:
            raise asyncio.CancelledError  # nobody waits any more, and all is stored
        await stream.settle()
        await deltas.close()
        self._on_usage(reply.usage)
        if stream.is_whole and not token.is_cancelled:
            await self._store(reply, step=step, is_last=is_last)
            return reply
        await self._keep(reply, step=step)
        if error is not None and not token.is_cancelled:
            raise error
        return None

    async def _store(self, reply: Reply, *, step: int, is_last: bool) -> None:
        """Store a whole answer, unless its calls are stored with it; tell the person what has cut it off."""
        if (notice := _notice_of(reply)) is not None:
            await self._journal.notify(notice)
        if is_last or not reply.has_calls:
            message = message_of(reply.text, (), turn_id=self._turn_id)
            await self._journal.save_reply(step, message, ())

    async def _keep(self, reply: Reply, *, step: int) -> None:
        """Store what an interrupted answer has said."""
        message = message_of(reply.text, (), turn_id=self._turn_id, interrupted=True)
        await self._journal.save_reply(step, message, (), interrupted=True)
        self.cut_off = None if message.is_empty else message

    async def _leave(self, stream: "_Stream") -> None:
        """Keep what was said on a stream that goes on although it was cancelled."""
        logger.warning("A chat model does not end its stream", extra={"turn_id": self._turn_id})
        await stream.deltas.close()
        self._on_usage(stream.reply.usage)
        await self._keep(stream.reply, step=stream.step)

    async def _end(self, worker: "asyncio.Task[Any]") -> None:
        """Cancel the work, and wait for its end, bounded."""
        worker.cancel()
        await asyncio.wait({worker}, timeout=MODEL_GRACE)
        if self._stream is not None:
            self._stream.deltas.discard()
        worker.add_done_callback(_consume_exception)

    async def _consume(self, request: ChatRequest, reply: Reply, deltas: DeltaStream) -> None:
        stream = self._chat_model.stream(request)
        try:
            async for delta in stream:
                reply.take(delta)
                if isinstance(delta, TextDelta) and delta.text:
                    deltas.add(delta.text)
                elif isinstance(delta, Notice):
                    await self._notify(delta)
                if reply.is_too_long:
                    break
        finally:
            if isinstance(stream, AsyncGenerator):  # closed here, not by the garbage collector
                await stream.aclose()

    async def _notify(self, notice: Notice) -> None:
        """Store and publish a notice as a whole, also if the stream is cancelled meanwhile: no event stays unpublished."""
        telling = asyncio.create_task(
            self._journal.notify(notice),
            name=f"notice of turn {self._turn_id}",
        )
        try:
            await asyncio.wait({telling})
        except asyncio.CancelledError:
            telling.add_done_callback(_consume_exception)
            await asyncio.wait({telling}, timeout=MODEL_GRACE)
            raise
        telling.result()


class _Stream:
    """One answer while the task that asked for it streams it. Inside, a cancel of the token cancels that task, once.

    A task that still streams `MODEL_GRACE` later is told to whoever has started it (`stuck`), and `is_left`.
    """

    def __init__(
        self,
        reply: Reply,
        deltas: DeltaStream,
        *,
        step: int,
        token: CancellationToken,
        stuck: "asyncio.Future[_Stream] | None",
    ) -> None:
        self.reply = reply
        self.deltas = deltas
        self.step = step
        self.is_whole = self.is_left = False
        self._token = token
        self._stuck = stuck
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(self._loop)
        self._is_over = self._is_cancelled = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_cancelled_by_others(self) -> bool:
        """Whether somebody else than the token cancels the task."""
        return self._task is not None and self._task.cancelling() > self._is_cancelled

    def __enter__(self) -> None:
        self._forget = self._token.on_cancel(
            lambda _: self._loop.call_soon_threadsafe(self._cancel)
        )

    def __exit__(self, *_: object) -> None:
        self._forget()
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    async def settle(self) -> None:
        """Take the cancel back: the task goes on."""
        if not self._is_cancelled or self._task is None:
            return
        try:
            await asyncio.sleep(0)  # one that came as the stream ended is raised here
        except asyncio.CancelledError:
            if self.is_cancelled_by_others:
                raise
        self._task.uncancel()

    def _cancel(self) -> None:
        if not self._is_over and self._task is not None:
            self._is_cancelled = self._task.cancel()
            self._timer = self._loop.call_later(MODEL_GRACE, self._leave)

    def _leave(self) -> None:
        self.is_left = True
        if self._stuck is not None and not self._stuck.done():
            self._stuck.set_result(self)


def _notice_of(reply: Reply) -> Notice | None:
    """Return the notice for an answer that is whole but has no usual end, whatever the chat model."""
    if reply.stop_reason is StopReason.LENGTH:
        cut_off = STEP_CUT_OFF if reply.has_calls else ANSWER_CUT_OFF
        return Notice(code="answer_cut_off", message=cut_off)
    if reply.has_calls or reply.text.strip():
        return None
    return Notice(code="answer_empty", message=ANSWER_EMPTY)


def _consume_exception(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
