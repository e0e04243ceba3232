"""Streams: one request to a vendor's model, from the open connection to the last delta, and what its errors mean."""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from importlib import import_module

from httpx2 import AsyncClient, HTTPError
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelServerError,
    ModelUnavailableError,
    UserError,
)
from pydantic_ai.messages import ModelResponseStreamEvent
from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.settings import ModelSettings

from turns.chat_models.failures import FailureKind, ProviderFailure, Subject, failure
from turns.chat_models.limits import StreamLimits
from turns.chat_models.vendors.http import make_client
from turns.chat_models.vendors.thoughts import Thoughts
from turns.chat_models.vendors.translation import delta_of, history_of, parameters_of
from turns.core.chat_model import ChatDelta, ChatRequest, Stop, StopReason, Usage

logger = logging.getLogger(__name__)

_KINDS_BY_STATUS = {
    408: FailureKind.TIMED_OUT,
    409: FailureKind.CONFLICT,
    413: FailureKind.TOO_LARGE,
}
# Google's reasons for an answer whose call it could not read itself.
_MALFORMED_CALLS = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"})
_ANY_MODEL = 16_384  # tokens that every model may answer with; some providers refuse a limit beyond the model's own
# The first that fits: the special ones before those that they are special cases of.
_KINDS: tuple[tuple[type[Exception], FailureKind], ...] = (
    (ModelContextWindowExceededError, FailureKind.CONTEXT_TOO_LONG),
    (ModelAuthenticationError, FailureKind.KEY_REFUSED),
    (ModelNotFoundError, FailureKind.NOT_FOUND),
    (ModelQuotaExceededError, FailureKind.QUOTA),
    (ModelRequestRejectedError, FailureKind.REJECTED),
    (ModelRateLimitError, FailureKind.BUSY),
    (ModelUnavailableError, FailureKind.UNAVAILABLE),
    (ModelServerError, FailureKind.UNAVAILABLE),
    (ModelConnectionError, FailureKind.UNREACHABLE),
    (HTTPError, FailureKind.UNREACHABLE),
    (UserError, FailureKind.REJECTED),
)
# How the SDKs fail at a stream that follows no documentation: they look for what should be there.
_NOT_UNDERSTOOD = (ValueError, AssertionError, AttributeError, LookupError, TypeError)
_BROKEN = frozenset({FailureKind.UNREACHABLE, FailureKind.UNREADABLE})
_STOP_REASONS = {
    "stop": StopReason.END,
    "tool_call": StopReason.TOOL_CALLS,
    "length": StopReason.LENGTH,
}


def connect(
    vendor: str, model_name: str, *, key: str, base_url: str, subject: Subject
) -> "Connection":
    """Return a connection; `vendor` is the path of the module that makes its client.

    It blocks: modules are imported, certificates read. Call it in a thread.

    Raises:
        ImportError: the vendor's SDK is not installed.
    """
    http_client = make_client()
    module = import_module(vendor)
    model = module.make_model(model_name, key=key, base_url=base_url, http_client=http_client)
    thinks_in_text = getattr(module, "THINKS_IN_TEXT", False)
    return Connection(
        model, http_client=http_client, subject=subject, thinks_in_text=thinks_in_text
    )


class Connection:
    """A vendor's model with its pool of connections, which belongs to one event loop."""

    def __init__(
        self, model: Model, *, http_client: AsyncClient, subject: Subject, thinks_in_text: bool
    ) -> None:
        self._model = model
        self._thinks_in_text = thinks_in_text
        self._http_client = http_client
        self._subject = subject

    async def aclose(self) -> None:
        await self._http_client.aclose()

    async def stream(
        self, request: ChatRequest, limits: StreamLimits
    ) -> AsyncGenerator[ChatDelta, None]:
        """Send the request once. Cancelling the task closes the provider's socket, whatever it waits for (C4).

        Raises:
            ProviderFailure: the provider did not answer, or not to the end.
        """
        progress = _Progress()
        thoughts = Thoughts() if self._thinks_in_text else None
        try:
            async with aclosing(self._events(request, limits, progress)) as events:
                async for event in events:
                    delta = delta_of(event)
                    if delta is not None and thoughts is None:
                        yield delta
                    elif delta is not None and thoughts is not None:
                        for known in thoughts.take(delta):
                            yield known
                    if progress.events == 1:
                        yield progress.usage  # so that a cancelled request counts as well
            for held in thoughts.rest() if thoughts else ():
                yield held
            for last in self._final_deltas(progress):
                yield last
        except TimeoutError as error:
            raise self._out_of_time(limits, progress) from error
        except (AgentRunError, UserError, HTTPError, *_NOT_UNDERSTOOD) as error:
            raise self._failure(error, progress) from error

    async def _events(
        self, request: ChatRequest, limits: StreamLimits, progress: "_Progress"
    ) -> AsyncGenerator[ModelResponseStreamEvent, None]:
        """Yield the events, each within its limit; a limit is never held over a `yield`."""
        until = asyncio.get_running_loop().time() + limits.first_byte_timeout
        async with AsyncExitStack() as stack:
            async with asyncio.timeout_at(until):
                response = await self._response(request, stack)
            progress.response = response
            events = aiter(response)
            wait = _Wait(until)
            stack.callback(wait.close)
            while True:
                with wait:
                    event = await anext(events, None)
                if event is None:
                    return
                progress.events += 1
                yield event
                wait.allow(limits.idle_timeout)

    async def _response(self, request: ChatRequest, stack: AsyncExitStack) -> StreamedResponse:
        """Ask. Some servers refuse a limit that does not fit beside the history: ask them once more without one.

        The answer is below it all the same, for it has to fit.
        """
        try:
            return await stack.enter_async_context(self._open(request))
        except ModelContextWindowExceededError:
            if "max_tokens" not in _settings_of(request):
                raise
            return await stack.enter_async_context(self._open(replace(request, max_tokens=None)))

    def _open(self, request: ChatRequest) -> AbstractAsyncContextManager[StreamedResponse]:
        return model_request_stream(
            self._model,
            history_of(request.messages, instructions=request.instructions),
            model_settings=_settings_of(request),
            model_request_parameters=parameters_of(request.tools),
            instrument=False,
        )

    def _final_deltas(self, progress: "_Progress") -> Iterator[ChatDelta]:
        yield progress.usage
        reason = progress.response.finish_reason if progress.response else None
        if reason == "content_filter":
            raise failure(FailureKind.DECLINED, self._subject)
        if reason not in _STOP_REASONS:
            raise failure(_early_end(progress), self._subject)
        yield Stop(_STOP_REASONS[reason])

    def _out_of_time(self, limits: StreamLimits, progress: "_Progress") -> ProviderFailure:
        if progress.events:
            return failure(FailureKind.STALLED, self._subject, seconds=limits.idle_timeout)
        return failure(FailureKind.SLOW, self._subject, seconds=limits.first_byte_timeout)

    def _failure(self, error: Exception, progress: "_Progress") -> ProviderFailure:
        """Say what an error means. What the provider wrote goes to the log at DEBUG and nowhere else."""
        kind = _kind_of(error)
        if progress.events and kind in _BROKEN:
            kind = FailureKind.DROPPED
        logger.debug("A provider failed", exc_info=error, extra={"code": kind.value})
        return failure(
            kind,
            self._subject,
            retry_after=_retry_after(error),
            has_begun=progress.events > 0,
        )


@dataclass(slots=True)
class _Progress:
    response: StreamedResponse | None = None
    events: int = 0

    @property
    def usage(self) -> Usage:
        if self.response is None:
            return Usage()
        used = self.response.usage
        return Usage(input_tokens=used.input_tokens, output_tokens=used.output_tokens)


class _Wait:
    """The wait for one event after the other, bounded as `asyncio.timeout_at` bounds one.

    That would make a timer for each event. Here one timer looks, when it fires, whether a wait takes too long.
    """

    def __init__(self, until: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._until = until
        self._task: asyncio.Task[object] | None = None  # that waits now
        self._cancelling = 0
        self._has_expired = False
        self._timer: asyncio.TimerHandle | None = None
        self._arm()

    def allow(self, seconds: float) -> None:
        """Let the next wait take so long."""
        self._until = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > self._until:
            self._arm()

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task else 0

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        task, self._task = self._task, None
        if task is None or not self._has_expired:
            return
        self._has_expired = False
        if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError

    def _arm(self) -> None:
        self.close()
        self._timer = self._loop.call_at(self._until, self._look)

    def _look(self) -> None:
        self._timer = None  # where nobody waits, the next wait makes another
        if self._loop.time() < self._until:
            self._arm()
        elif self._task is not None:
            self._has_expired = True
            self._task.cancel()


def _settings_of(request: ChatRequest) -> ModelSettings:
    """Limit the answer, unless the model's own limit is lower than what is left."""
    settings = ModelSettings()
    if request.max_tokens is not None and request.max_tokens <= _ANY_MODEL:
        settings["max_tokens"] = request.max_tokens
    if not request.may_think:
        settings["thinking"] = False
    return settings


def _kind_of(error: Exception) -> FailureKind:
    status = error.status_code if isinstance(error, ModelHTTPError) else None
    if status in _KINDS_BY_STATUS and not isinstance(error, ModelContextWindowExceededError):
        return _KINDS_BY_STATUS[status]
    for category, kind in _KINDS:
        if isinstance(error, category):
            return kind
    return FailureKind.UNREADABLE if status is None else FailureKind.REJECTED


def _early_end(progress: "_Progress") -> FailureKind:
    """Return what an answer is that ended for none of the usual reasons, or for none at all."""
    details = progress.response.provider_details if progress.response else None
    told = (details or {}).get("finish_reason")
    if told in _MALFORMED_CALLS:
        return FailureKind.MALFORMED_CALL
    if told:
        return FailureKind.ENDED_EARLY
    return FailureKind.DROPPED if progress.events else FailureKind.UNREADABLE


def _retry_after(error: Exception) -> float | None:
    """Return the seconds that the provider asks for, also as a fraction."""
    if not isinstance(error, ModelAPIError) or error.retry_after is not None:
        return error.retry_after if isinstance(error, ModelAPIError) else None
    headers = error.headers if isinstance(error, ModelHTTPError) else None
    try:
        seconds = float((headers or {}).get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < math.inf else None
