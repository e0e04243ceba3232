"""Streams: one request to a vendor's model, from the open connection to the last delta, and what its errors mean."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from dataclasses import dataclass
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
from pydantic_ai.models import Model, StreamedResponse, create_async_httpx2_client
from pydantic_ai.settings import ModelSettings

from turns.chat_models.failures import FailureKind, ProviderFailure, Subject, failure
from turns.chat_models.limits import StreamLimits
from turns.chat_models.vendors.translation import deltas_of, history_of, parameters_of
from turns.core.chat_model import ChatDelta, ChatRequest, Stop, StopReason, Usage

logger = logging.getLogger(__name__)

_TOO_LARGE = 413
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
    http_client = create_async_httpx2_client()
    model = import_module(vendor).make_model(
        model_name, key=key, base_url=base_url, http_client=http_client
    )
    return Connection(model, http_client=http_client, subject=subject)


class Connection:
    """A vendor's model with its pool of connections, which belongs to one event loop."""

    def __init__(self, model: Model, *, http_client: AsyncClient, subject: Subject) -> None:
        self._model = model
        self._http_client = http_client
        self._subject = subject

    async def aclose(self) -> None:
        """Close every connection of the pool."""
        await self._http_client.aclose()

    async def stream(
        self, request: ChatRequest, limits: StreamLimits
    ) -> AsyncGenerator[ChatDelta, None]:
        """Send the request once. Cancelling the task closes the provider's socket, whatever it waits for (C4).

        Raises:
            ProviderFailure: the provider did not answer, or not to the end.
        """
        progress = _Progress()
        try:
            async with aclosing(self._events(request, limits, progress)) as events:
                async for event in events:
                    for delta in deltas_of(event):
                        yield delta
                    if progress.events == 1:
                        yield progress.usage  # so that a cancelled request counts as well
            for last in self._last_words(progress):
                yield last
        except TimeoutError as error:
            raise self._out_of_time(limits, progress) from error
        except (AgentRunError, UserError, HTTPError, *_NOT_UNDERSTOOD) as error:
            raise self._failure(error, progress) from error

    async def _events(
        self, request: ChatRequest, limits: StreamLimits, progress: "_Progress"
    ) -> AsyncGenerator[ModelResponseStreamEvent, None]:
        """Yield the events, each within its limit; a limit is never held over a `yield`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + limits.first_byte_timeout
        async with AsyncExitStack() as stack:
            async with asyncio.timeout_at(until):
                response = await stack.enter_async_context(self._open(request))
            progress.response = response
            events = aiter(response)
            while True:
                async with asyncio.timeout_at(until):
                    event = await anext(events, None)
                if event is None:
                    return
                progress.events += 1
                yield event
                until = loop.time() + limits.idle_timeout

    def _open(self, request: ChatRequest) -> AbstractAsyncContextManager[StreamedResponse]:
        return model_request_stream(
            self._model,
            history_of(request.messages, instructions=request.instructions),
            model_settings=_settings_of(request),
            model_request_parameters=parameters_of(request.tools),
            instrument=False,
        )

    def _last_words(self, progress: "_Progress") -> Iterator[ChatDelta]:
        yield progress.usage
        reason = progress.response.finish_reason if progress.response else None
        if reason == "content_filter":
            raise failure(FailureKind.DECLINED, self._subject)
        if reason not in _STOP_REASONS:
            raise failure(
                FailureKind.DROPPED if progress.events else FailureKind.UNREADABLE, self._subject
            )
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
        retry_after = error.retry_after if isinstance(error, ModelAPIError) else None
        return failure(kind, self._subject, retry_after=retry_after)


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


def _settings_of(request: ChatRequest) -> ModelSettings | None:
    """Limit the answer, unless the model's own limit is lower than what is left."""
    if request.max_tokens is None or request.max_tokens > _ANY_MODEL:
        return None
    return ModelSettings(max_tokens=request.max_tokens)


def _kind_of(error: Exception) -> FailureKind:
    if isinstance(error, ModelHTTPError) and error.status_code == _TOO_LARGE:
        return FailureKind.CONTEXT_TOO_LONG
    for category, kind in _KINDS:
        if isinstance(error, category):
            return kind
    return FailureKind.UNREADABLE
