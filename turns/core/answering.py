"""Streams the chat model's answers in a turn, one after another, and stores them (H2).

The text of an answer is pushed to viewers at most twenty times a second, and stored once a second. Pushing and storing
are independent, so that a slow database does not delay the text. Each stream is throttled separately, because pushing
all of them together would delay the last ones.
"""

import asyncio
import logging
import math
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
    ThinkingDelta,
    Usage,
)
from turns.core.exceptions import ChatModelError, TurnCoreError
from turns.core.messages import Message
from turns.core.ports import TurnJournal
from turns.core.texts import ANSWER_CUT_OFF, ANSWER_EMPTY, STEP_CUT_OFF
from turns.core.tracing import chat_span

logger = logging.getLogger(__name__)

T = TypeVar("T")
WithFiles = Callable[[Sequence[Message]], Awaitable[Sequence[Message]]]

MODEL_GRACE = 0.3  # seconds for a model stream to close after its task was cancelled
PAUSE = 4  # the pause after a run, as a multiple of the run's duration and delay
LONGEST_PAUSE = 0.5  # seconds
# Seconds. Callbacks are aligned to multiples of this time, so that many run in one iteration of the event loop.
GRID = 0.025
_ROUNDING = 1e-6  # tolerance of the grid for floating-point errors


async def without_files(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages unchanged, for turns without files."""
    return messages


class Answering:
    """Requests and streams the answers of one turn. `cut_off` is the partial message of the last answer if it was
    interrupted.

    `with_files` adds the files to the messages of a request. It runs where a cancel can interrupt it, because reading
    from the storage may hang too.
    """

    def __init__(
        self,
        chat_model: ChatModel,
        journal: TurnJournal,
        *,
        turn_id: str,
        on_usage: Callable[[Usage], object],
        with_files: WithFiles,
        most_calls: int,
    ) -> None:
        self._most_calls = most_calls
        self.cut_off: Message | None = None
        self._chat_model = chat_model
        self._journal = journal
        self._turn_id = turn_id
        self._on_usage = on_usage
        self._with_files = with_files
        self._used_ids: set[str] = set()
        self._stuck: asyncio.Future[_Stream] | None = None
        self._stream: _Stream | None = None

    async def work(self, steps: Coroutine[Any, Any, T]) -> T | None:
        """Run `steps`, which request the answers, in a separate task and return their result.

        Return None if a cancelled chat model does not end its stream. The task is then abandoned and stores nothing
        more.
        """
        self._stuck = asyncio.get_running_loop().create_future()
        worker = asyncio.create_task(steps, name=f"work of turn {self._turn_id}")
        ends: set[asyncio.Future[Any]] = {worker, self._stuck}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._end(worker)
            raise
        if worker.done():
            return worker.result()
        worker.add_done_callback(_consume_exception)
        await self._abandon(self._stuck.result())
        return None

    async def ask(
        self,
        request: ChatRequest,
        *,
        step: int,
        token: CancellationToken,
        is_last: bool = False,
        drops_cut_off: bool = False,
    ) -> Reply | None:
        """Stream one answer. Return None if the token was cancelled; the text so far is then stored (H2).

        Call this in the coroutine that `work` runs. An answer without calls is stored here; the caller stores an answer
        with calls. With `is_last`, calls in the answer are ignored. With `drops_cut_off`, an answer that broke off is
        not stored if the request may be repeated.

        Raises: ChatModelError: the model did not answer completely.
        """
        if token.is_cancelled:
            return None
        reply = Reply(used_ids=self._used_ids, most_calls=self._most_calls)
        deltas = DeltaStream(self._journal, step=step)
        thoughts = DeltaStream(self._journal, step=step, are_thoughts=True)
        stream = self._stream = _Stream(reply, deltas, step=step, token=token, stuck=self._stuck)
        error: Exception | None = None
        try:
            with stream:
                messages = tuple(await self._with_files(request.messages))
                if messages is not request.messages:
                    request = replace(request, messages=messages)
                with chat_span(request, reply, token=token):
                    try:
                        await self._consume(request, reply, deltas, thoughts)
                    finally:
                        thoughts.discard()  # the stored message includes all thoughts
                    stream.is_complete = True
        except asyncio.CancelledError:
            if stream.is_cancelled_by_others:
                deltas.discard()
                raise
        except Exception as failure:  # noqa: BLE001 - raised after the partial answer is stored
            error = failure
        if stream.is_abandoned:
            raise asyncio.CancelledError  # everything is stored, and the caller no longer waits
        await stream.settle()
        is_dropped = drops_cut_off and isinstance(error, ChatModelError) and bool(error.cut_off)
        if is_dropped and error is not None and not token.is_cancelled:
            await deltas.drop()
            self._on_usage(reply.usage)
            await self._keep(Reply(), step=step)
            raise error
        await deltas.close()
        self._on_usage(reply.usage)
        if stream.is_complete and not token.is_cancelled:
            await self._store(reply, step=step, is_last=is_last)
            return reply
        await self._keep(reply, step=step)
        if error is not None and not token.is_cancelled:
            raise error
        return None

    async def ask_aside(self, request: ChatRequest, *, step: int, token: CancellationToken) -> str:
        """Return an answer for internal use, such as a summary. Return an empty string if the chat model fails or the
        token is cancelled.

        Call this in the coroutine that `work` runs. Only the usage of the answer is stored, and its calls are ignored.
        """
        if token.is_cancelled:
            return ""
        reply, total = Reply(), Reply()
        silent = DeltaStream(self._journal, step=step)
        stream = self._stream = _Stream(total, silent, step=step, token=token, stuck=self._stuck)
        error: Exception | None = None
        try:
            with stream, chat_span(request, reply, token=token):
                try:
                    await self._consume(request, reply, None, None)
                finally:
                    total.take(reply.usage)
        except asyncio.CancelledError:
            if stream.is_cancelled_by_others:
                raise
        except Exception as failure:  # noqa: BLE001 - raised below unless the chat model caused it
            error = failure
        if stream.is_abandoned:
            raise asyncio.CancelledError  # the caller no longer waits
        await stream.settle()
        self._on_usage(total.usage)
        if isinstance(error, TurnCoreError) and not isinstance(error, ChatModelError):
            raise error
        if error is not None:
            facts = {"turn_id": self._turn_id}
            logger.warning("A chat model wrote no summary", extra=facts, exc_info=error)
        return "" if error is not None or token.is_cancelled else reply.text.strip()

    async def _store(self, reply: Reply, *, step: int, is_last: bool) -> None:
        """Store a complete answer, unless the caller stores it with its calls. Notify the person if it was cut off or
        is empty.
        """
        if (notice := _notice_of(reply)) is not None:
            await self._journal.notify(notice)
        if is_last or not reply.has_calls:
            message = reply.message(turn_id=self._turn_id)
            await self._journal.save_reply(step, message, ())

    async def _keep(self, reply: Reply, *, step: int) -> None:
        message = reply.message(turn_id=self._turn_id, interrupted=True)
        await self._journal.save_reply(step, message, (), interrupted=True)
        self.cut_off = None if message.is_empty else message

    async def _abandon(self, stream: "_Stream") -> None:
        """Store the text so far of a stream that continues although it was cancelled."""
        logger.warning("A chat model does not end its stream", extra={"turn_id": self._turn_id})
        await stream.deltas.close()
        self._on_usage(stream.reply.usage)
        await self._keep(stream.reply, step=stream.step)

    async def _end(self, worker: "asyncio.Task[Any]") -> None:
        """Cancel the work, and wait up to `MODEL_GRACE` seconds for it to end."""
        worker.cancel()
        await asyncio.wait({worker}, timeout=MODEL_GRACE)
        if self._stream is not None:
            self._stream.deltas.discard()
        worker.add_done_callback(_consume_exception)

    async def _consume(
        self,
        request: ChatRequest,
        reply: Reply,
        deltas: "DeltaStream | None",
        thoughts: "DeltaStream | None",
    ) -> None:
        """Collect an answer in `reply`, and publish its text and its thoughts if there is a stream for them."""
        stream = self._chat_model.stream(request)
        try:
            async for delta in stream:
                reply.take(delta)
                if isinstance(delta, TextDelta) and delta.text and deltas:
                    deltas.add(delta.text)
                elif isinstance(delta, ThinkingDelta) and delta.text and thoughts:
                    thoughts.add(delta.text)
                elif isinstance(delta, Notice):
                    await self._notify(delta)
                if reply.is_too_long:
                    break
        finally:
            # Close the stream now, because the garbage collector would close it only later.
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    async def _notify(self, notice: Notice) -> None:
        """Store and publish a notice even if the stream is cancelled in the meantime, so that no stored event stays
        unpublished.
        """
        notification = asyncio.create_task(
            self._journal.notify(notice),
            name=f"notice of turn {self._turn_id}",
        )
        try:
            await asyncio.wait({notification})
        except asyncio.CancelledError:
            notification.add_done_callback(_consume_exception)
            await asyncio.wait({notification}, timeout=MODEL_GRACE)
            raise
        notification.result()


class _Stream:
    """An answer that is being streamed. Inside this context manager, a cancel of the token cancels the streaming task
    once.

    If the task is still streaming `MODEL_GRACE` seconds later, `is_abandoned` becomes true and `stuck` resolves.
    """

    def __init__(
        self,
        reply: Reply,
        deltas: "DeltaStream",
        *,
        step: int,
        token: CancellationToken,
        stuck: "asyncio.Future[_Stream] | None",
    ) -> None:
        self.reply = reply
        self.deltas = deltas
        self.step = step
        self.is_complete = self.is_abandoned = False
        self._token = token
        self._stuck = stuck
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(self._loop)
        self._is_over = self._is_cancelled = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_cancelled_by_others(self) -> bool:
        """Whether the task was cancelled by anything other than the token."""
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
        """Undo the token's cancel, so that the task continues."""
        if not self._is_cancelled or self._task is None:
            return
        try:
            await asyncio.sleep(0)  # raises a cancel that arrived at the end of the stream
        except asyncio.CancelledError:
            if self.is_cancelled_by_others:
                raise
        self._task.uncancel()

    def _cancel(self) -> None:
        if not self._is_over and self._task is not None:
            self._is_cancelled = self._task.cancel()
            self._timer = self._loop.call_later(MODEL_GRACE, self._abandon)

    def _abandon(self) -> None:
        self.is_abandoned = True
        if self._stuck is not None and not self._stuck.done():
            self._stuck.set_result(self)


def _notice_of(reply: Reply) -> Notice | None:
    """Return the notice for an answer that was cut off or is empty; None for any other answer."""
    if reply.stop_reason is StopReason.LENGTH:
        message = STEP_CUT_OFF if reply.has_calls else ANSWER_CUT_OFF
        return Notice(code="answer_cut_off", message=message)
    if reply.has_calls or reply.text.strip():
        return None
    return Notice(code="answer_empty", message=ANSWER_EMPTY)


def _consume_exception(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


class Throttle:
    """Runs a coroutine function on request, one run at a time, with starts at least `spacing` seconds apart.

    The pause after a slow or delayed run is a multiple of that run's duration and delay, so that many throttles in a
    busy process run less often instead of falling behind. `error` is the exception that the function raised; no run
    starts after it.
    """

    def __init__(self, work: Callable[[], Awaitable[None]], *, spacing: float, name: str) -> None:
        self.error: Exception | None = None
        self._work = work
        self._spacing = spacing
        self._name = name
        self._next = float("-inf")  # the earliest time of the next run
        self._is_requested = self._is_stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._run: asyncio.Task[None] | None = None

    def wait(self, seconds: float) -> None:
        """Start no run for this many seconds."""
        self._next = asyncio.get_running_loop().time() + seconds

    def request(self) -> None:
        """Run the work as soon as the spacing allows. If it is running now, run it once more. Do nothing
        after `stop`.
        """
        self._is_requested = True
        self._arm()

    def stop(self) -> None:
        """Start no more runs."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def join(self) -> None:
        """Wait for the current run, if any."""
        if self._run is not None:
            await asyncio.wait({self._run})

    def _arm(self) -> None:
        is_busy = self._timer is not None or self._run is not None
        if self._is_requested and not is_busy and not self._is_stopped and self.error is None:
            loop = asyncio.get_running_loop()
            due_at = max(loop.time(), self._next)
            self._timer = loop.call_at(due_at, self._begin, due_at)

    def _begin(self, due_at: float) -> None:
        self._timer, self._is_requested = None, False
        self._run = asyncio.get_running_loop().create_task(self._once(due_at), name=self._name)
        self._run.add_done_callback(self._done)

    async def _once(self, due_at: float) -> None:
        await self._work()
        now = asyncio.get_running_loop().time()
        pause = min(PAUSE * (now - due_at), LONGEST_PAUSE)
        self._next = max(due_at + self._spacing, now + pause)

    def _done(self, run: asyncio.Task[None]) -> None:
        self._run = None
        if run.cancelled():
            return
        if (error := run.exception()) is not None:
            self.error = error if isinstance(error, Exception) else RuntimeError(str(error))
        self._arm()


class CallbackThrottle:
    """Calls a function on request, at most once every `spacing` seconds.

    The pause after a slow or delayed call is at least as long as the call and its delay, up to `LONGEST_PAUSE`, so that
    a busy process has time for other work. The function must not raise.
    """

    def __init__(self, callback: Callable[[], None], *, spacing: float) -> None:
        self._callback = callback
        self._spacing = spacing
        self._next = float("-inf")  # the earliest time of the next call
        self._timer: asyncio.TimerHandle | None = None

    def request(self) -> None:
        """Call the function as soon as the spacing allows, once for all requests until then."""
        if self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        if (now := loop.time()) >= self._next:
            self._call(loop, now)
        else:
            due_at = math.ceil(self._next / GRID - _ROUNDING) * GRID
            self._timer = loop.call_at(due_at, self._call, loop, due_at)

    def withdraw(self) -> None:
        """Cancel the request."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _call(self, loop: asyncio.AbstractEventLoop, due_at: float) -> None:
        self._timer = None
        self._callback()
        now = loop.time()
        self._next = max(due_at + self._spacing, now + min(now - due_at, LONGEST_PAUSE))


class DeltaStream:
    """Merges the deltas of one message into fewer pushes and writes. `push_every` and `save_every` are in seconds.

    With `are_thoughts`, nothing is stored here, because the finished message includes the thoughts.
    """

    def __init__(
        self,
        journal: TurnJournal,
        *,
        step: int,
        push_every: float = 0.05,
        save_every: float = 1.0,
        are_thoughts: bool = False,
    ) -> None:
        self._are_thoughts = are_thoughts
        self._journal = journal
        self._step = step
        self._pushes = CallbackThrottle(self._push, spacing=push_every)
        self._save_every = save_every
        self._pieces: list[str] = []
        self._fresh: list[str] = []
        self._pushed = 0
        self._is_closed = False
        self._error: Exception | None = None
        self._saves: Throttle | None = None

    @property
    def error(self) -> Exception | None:
        """The exception of a failed push or write; None if none has failed."""
        return self._error or (self._saves.error if self._saves is not None else None)

    def add(self, text: str) -> None:
        """Add a piece of text, unless the stream is closed. Raise the error of an earlier push or write, such as
        `Fenced`.
        """
        if (error := self.error) is not None:
            raise error
        if self._is_closed:
            return
        self._fresh.append(text)
        self._pushes.request()
        if self._are_thoughts:
            return
        if self._saves is None:
            self._saves = Throttle(
                self._save, spacing=self._save_every, name="save of streamed text"
            )
            self._saves.wait(self._save_every)
        self._pieces.append(text)
        self._saves.request()

    async def close(self) -> None:
        """Push the remaining text. The caller stores the complete text."""
        self.discard()
        if self._saves is not None:
            await self._saves.join()
        self._push()

    async def drop(self) -> None:
        """Withdraw the text that was pushed. The caller stores an empty message."""
        self.discard()
        if self._saves is not None:
            await self._saves.join()
        if self._pushed:
            self._journal.publish_text("", 0, step=self._step)

    def discard(self) -> None:
        """Push and store nothing more."""
        self._is_closed = True
        self._pushes.withdraw()
        if self._saves is not None:
            self._saves.stop()

    def _push(self) -> None:
        if not self._fresh:
            return
        text, offset = "".join(self._fresh), self._pushed
        self._fresh.clear()
        self._pushed += len(text)
        try:
            self._journal.publish_text(
                text, offset, step=self._step, are_thoughts=self._are_thoughts
            )
        except Exception as error:  # noqa: BLE001 - raised by the next `add`
            self._error = error

    async def _save(self) -> None:
        self._pieces = ["".join(self._pieces)]
        await self._journal.save_text(self._step, self._pieces[0])
