"""Answering: streams the answers of a turn's chat model, one after the other, and stores what each comes to (H2)."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Any

from governance import CancellationToken
from turns.core.chat_model import (
    ChatModel,
    ChatRequest,
    Notice,
    Reply,
    TextDelta,
    Usage,
    message_of,
)
from turns.core.deltas import DeltaStream
from turns.core.messages import Message
from turns.core.ports import TurnJournal

logger = logging.getLogger(__name__)

MODEL_GRACE = 0.3  # seconds that a model stream may take to close after its task was cancelled


class Answering:
    """The answers of one turn. `cut_off` is what the last one had said when it was cancelled, if anything."""

    def __init__(
        self,
        chat_model: ChatModel,
        journal: TurnJournal,
        *,
        turn_id: str,
        on_usage: Callable[[Usage], object],
    ) -> None:
        self.cut_off: Message | None = None
        self._chat_model = chat_model
        self._journal = journal
        self._turn_id = turn_id
        self._on_usage = on_usage
        self._used_ids: set[str] = set()

    async def ask(
        self, request: ChatRequest, *, step: int, token: CancellationToken, is_last: bool = False
    ) -> Reply | None:
        """Stream one answer. Return None if the token was cancelled meanwhile; what was said by then is kept (H2).

        An answer without calls is stored here; of the last one only the words count.
        """
        await self._journal.open_reply(step)
        if token.is_cancelled:
            return None
        reply = Reply(used_ids=self._used_ids)
        deltas = DeltaStream(self._journal, step=step)
        stream = asyncio.create_task(
            self._consume(request, reply, deltas), name=f"chat model stream of turn {self._turn_id}"
        )
        try:
            with token.watched() as cancelled:
                ended: set[asyncio.Future[Any]] = {stream, cancelled}
                await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            deltas.discard()
            raise
        finally:
            if not stream.done():
                await self._close_stream(stream)
        await deltas.close()
        self._on_usage(reply.usage)
        error = stream.exception() if stream.done() and not stream.cancelled() else None
        is_whole = stream.done() and not stream.cancelled() and error is None
        if is_whole and not token.is_cancelled:
            if is_last or not reply.has_calls:
                message = message_of(reply.text, (), turn_id=self._turn_id)
                await self._journal.save_reply(step, message, ())
            return reply
        await self._keep(reply, step=step)
        if error is not None and not token.is_cancelled:
            raise error
        return None

    async def _keep(self, reply: Reply, *, step: int) -> None:
        """Store what an interrupted answer has said."""
        message = message_of(reply.text, (), turn_id=self._turn_id, interrupted=True)
        await self._journal.save_reply(step, message, (), interrupted=True)
        self.cut_off = None if message.is_empty else message

    async def _consume(self, request: ChatRequest, reply: Reply, deltas: DeltaStream) -> None:
        stream = self._chat_model.stream(request)
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

    async def _close_stream(self, stream: asyncio.Task[None]) -> None:
        """Cancel the task that owns the stream, which closes the provider's connection; wait for it, bounded."""
        stream.cancel()
        await asyncio.wait({stream}, timeout=MODEL_GRACE)
        if not stream.done():
            stream.add_done_callback(_consume_exception)
            logger.warning("A chat model does not end its stream", extra={"turn_id": self._turn_id})


def _consume_exception(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
