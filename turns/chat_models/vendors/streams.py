"""Streams one request to a vendor's model, from the open connection to the last delta, and classifies its errors."""

import asyncio
import json
import logging
import math
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import urlsplit

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
from pydantic_ai.settings import CacheRetention, ModelSettings, ThinkingEffort

from governance import mask, shortened
from governance.sanitize import sanitize_text
from turns.chat_models.failures import FailureKind, ProviderFailure, Subject, failure
from turns.chat_models.vendors.http import Exchange, make_client
from turns.chat_models.vendors.thoughts import (
    BindsThoughts,
    KeepsMessagesApart,
    ThinksInText,
    Thoughts,
)
from turns.chat_models.vendors.translation import delta_of, history_of, kept_of, parameters_of
from turns.core.chat_model import (
    OFF,
    ChatDelta,
    ChatRequest,
    ProviderParts,
    Stop,
    StopReason,
    StreamLimits,
    Usage,
)

logger = logging.getLogger(__name__)

_KINDS_BY_STATUS = {
    408: FailureKind.TIMED_OUT,
    409: FailureKind.CONFLICT,
    413: FailureKind.TOO_LARGE,
}
# Google's finish reasons for an answer with a call that Google could not parse.
_MALFORMED_CALLS = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"})
# Messages of servers that refuse tools or files, because the model does not support them.
_NO_TOOLS = re.compile(
    r"does ?n[o']t support (?:tool|function)|tool(?:s| use| calls?| calling)? (?:is|are) not (?:supported|available)"
    r"|support (?:tool use|function calling)|requires --enable-auto-tool-choice",
    re.IGNORECASE,
)
_NO_MEDIA = re.compile(
    r"does ?n[o']t support (?:image|vision|file|pdf)|not a multimodal model|support image input",
    re.IGNORECASE,
)
# Messages of DeepSeek, OpenRouter and Z.AI for a model that they do not have; their status is 400.
_NO_MODEL = re.compile(
    r"model not exist|is not a valid model id|unknown model|model ?code: does not exist",
    re.IGNORECASE,
)
# Messages about a prompt that does not fit, which pydantic-ai does not know. llama.cpp, LM Studio and TGI send them.
_TOO_LONG = re.compile(
    r"exceed_context_size|available context size|than the context length|inputs. tokens \+ .max_new_tokens",
    re.IGNORECASE,
)
_DETAIL = 1_000  # characters of a provider's message
# OpenAI's messages for a model that is available only through another of its APIs.
_OTHER_API = re.compile(r"v1/(responses|completions)\b|not a chat model", re.IGNORECASE)
_MOST_TOKENS = 1_000_000_000  # maximum per answer, because the database adds up many answers
_MODEL_NAME = 200  # characters of the provider's name of the model
_ANY_MODEL = 16_384  # tokens that every model can output; some providers refuse a limit above the model's own
# The first match decides, so subclasses come before their base classes.
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
# Exceptions of the SDKs for a stream that does not follow the API, because they rely on fields that are missing.
_NOT_UNDERSTOOD = (ValueError, AssertionError, AttributeError, LookupError, TypeError)
_BROKEN = frozenset({FailureKind.UNREACHABLE, FailureKind.UNREADABLE})
_STOP_REASONS = {
    "stop": StopReason.END,
    "tool_call": StopReason.TOOL_CALLS,
    "length": StopReason.LENGTH,
}

MakeModel = Callable[[AsyncClient], Model]


def connect(make: MakeModel, subject: Subject) -> "Connection":
    """Return a connection to a vendor. Call this in a thread, because it imports modules and reads certificates."""
    http_client = make_client()
    return Connection(make(http_client), http_client=http_client, subject=subject)


class Connection:
    """A vendor's model with its pool of connections, which belongs to one event loop."""

    def __init__(self, model: Model, *, http_client: AsyncClient, subject: Subject) -> None:
        self._model = model
        self._http_client = http_client
        self._subject = subject
        # The parts of an answer are only valid for the API and the server that they came from.
        host = urlsplit(model.base_url or "").hostname or ""
        self._binds_thoughts = isinstance(model, BindsThoughts)
        self._vendor = f"{type(model).__name__} {model.system} {host}"

    @property
    def context_window(self) -> int | None:
        return self._model.context_window

    async def aclose(self) -> None:
        await self._http_client.aclose()

    async def stream(
        self, request: ChatRequest, limits: StreamLimits
    ) -> AsyncGenerator[ChatDelta, None]:
        """Send the request once. Cancelling the task closes the socket to the provider at any stage (C4).

        Raises:
            ProviderFailure: the provider gave no answer or an incomplete one.
        """
        progress = _Progress()
        yield progress.usage
        thoughts = Thoughts() if isinstance(self._model, ThinksInText) else None
        try:
            async with aclosing(self._events(request, limits, progress)) as events:
                async for event in events:
                    delta = delta_of(event)
                    if delta is not None and thoughts is None:
                        yield delta
                    elif delta is not None and thoughts is not None:
                        for certain in thoughts.take(delta):
                            yield certain
                    if progress.events == 1:
                        yield progress.usage  # early, so that the usage of a cancelled request is counted
            for rest in thoughts.rest() if thoughts else ():
                yield rest
            for final in self._final_deltas(progress):
                yield final
        except TimeoutError as error:
            raise self._out_of_time(limits, progress) from error
        except (AgentRunError, UserError, HTTPError, *_NOT_UNDERSTOOD) as error:
            raise self._failure(error, progress) from error

    async def _events(
        self, request: ChatRequest, limits: StreamLimits, progress: "_Progress"
    ) -> AsyncGenerator[ModelResponseStreamEvent, None]:
        """Yield the events, each within its limit. No timeout is active during a `yield`."""
        life = progress.life = _Life(limits)
        exchange = Exchange(on_bytes=life.prove)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(exchange.aclose)
            async with life.limited():
                with exchange.observed():
                    response = await self._response(request, stack, progress)
            progress.response = response
            events = aiter(response)
            while True:
                async with life.limited():
                    event = await anext(events, None)
                if event is None:
                    return
                progress.events += 1
                yield event
                life.prove()

    async def _response(
        self, request: ChatRequest, stack: AsyncExitStack, progress: "_Progress"
    ) -> StreamedResponse:
        """Send the request. If the server refuses a limit for the answer because it exceeds the context window together
        with the history, send it again without the limit. The context window then limits the answer.
        """
        try:
            return await stack.enter_async_context(self._open(request))
        except ModelContextWindowExceededError:
            if "max_tokens" not in settings_of(request):
                raise
            progress.requests += 1
            unlimited = replace(request.settings, max_tokens=None)
            again = replace(request, max_tokens=None, settings=unlimited)
            return await stack.enter_async_context(self._open(again))

    def _open(self, request: ChatRequest) -> AbstractAsyncContextManager[StreamedResponse]:
        # The SDK must not repeat a request by itself, because `with_retries` does. Settings that this API ignores are left
        # out, because pydantic-ai would warn about them at each request.
        ignored = self._model.unsupported_settings
        chosen = {"max_retries": 0, **settings_of(request)}
        settings = {name: value for name, value in chosen.items() if name not in ignored}
        return model_request_stream(
            self._model,
            history_of(
                request.messages,
                instructions=request.instructions,
                vendor=self._vendor,
                bound_from=request.unchanged_from if self._binds_thoughts else 0,
                keeps_messages_apart=isinstance(self._model, KeepsMessagesApart),
            ),
            model_settings=cast(ModelSettings, settings),
            model_request_parameters=parameters_of(request.tools),
            instrument=False,
        )

    def _final_deltas(self, progress: "_Progress") -> Iterator[ChatDelta]:
        yield progress.usage
        reason = progress.response.finish_reason if progress.response else None
        if reason == "content_filter":
            raise failure(FailureKind.DECLINED, self._subject, detail=progress.details)
        if reason not in _STOP_REASONS:
            raise failure(
                _early_end(progress),
                self._subject,
                has_begun=progress.events > 0,
                detail=progress.details,
            )
        if progress.response and (parts := kept_of(progress.response.get(), vendor=self._vendor)):
            yield ProviderParts(parts)
        yield Stop(_STOP_REASONS[reason])

    def _out_of_time(self, limits: StreamLimits, progress: "_Progress") -> ProviderFailure:
        if progress.life is not None and progress.life.is_at_its_end:
            return failure(FailureKind.OVERTIME, self._subject, seconds=limits.request_timeout)
        if progress.life is not None and progress.life.is_proved:
            return failure(
                FailureKind.STALLED,
                self._subject,
                seconds=limits.idle_timeout,
                has_begun=progress.events > 0,
            )
        return failure(FailureKind.SLOW, self._subject, seconds=limits.first_byte_timeout)

    def _failure(self, error: Exception, progress: "_Progress") -> ProviderFailure:
        """Return the failure for an error, with the provider's message as its detail. The message is logged only at
        level DEBUG.
        """
        kind = _kind_of(error)
        if progress.events and kind in _BROKEN:
            kind = FailureKind.DROPPED
        logger.debug("A provider failed", exc_info=error, extra={"code": kind.value})
        return failure(
            kind,
            self._subject,
            retry_after=_retry_after(error),
            has_begun=progress.events > 0,
            detail=_detail_of(error),
        )


class _Life:
    """The timer of one stream. Each sign of life extends it, but never beyond the limit of the whole request."""

    def __init__(self, limits: StreamLimits) -> None:
        self.is_proved = False
        self._loop = asyncio.get_running_loop()
        self._idle = limits.idle_timeout
        self._end = self._loop.time() + limits.request_timeout
        self._until = min(self._loop.time() + limits.first_byte_timeout, self._end)
        self._timeout: asyncio.Timeout | None = None

    @property
    def is_at_its_end(self) -> bool:
        """Whether the timer is at the limit of the whole request, so that no further data can extend it."""
        return self._until == self._end

    def prove(self) -> None:
        """Extend the timer, because data has arrived."""
        self.is_proved = True
        self._until = min(self._loop.time() + self._idle, self._end)
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(self._until)

    @asynccontextmanager
    async def limited(self) -> AsyncGenerator[None]:
        """Raise `TimeoutError` if the context is not left before the timer expires."""
        try:
            async with asyncio.timeout_at(self._until) as self._timeout:
                yield
        finally:
            self._timeout = None


@dataclass(slots=True)
class _Progress:
    response: StreamedResponse | None = None
    events: int = 0
    requests: int = 1
    life: _Life | None = None

    @property
    def details(self) -> str:
        """The provider's details about its answer, such as why it ended."""
        details = self.response.provider_details if self.response else None
        return _presentable(details) if details else ""

    @property
    def usage(self) -> Usage:
        if self.response is None:
            return Usage(requests=self.requests)
        usage = self.response.usage
        return Usage(
            input_tokens=_count(usage.input_tokens),
            output_tokens=_count(usage.output_tokens),
            cache_read_tokens=_count(usage.cache_read_tokens),
            cache_write_tokens=_count(usage.cache_write_tokens),
            reasoning_tokens=_count(usage.output_reasoning_tokens),
            requests=self.requests,
            model=sanitize_text(self.response.model_name, limit=_MODEL_NAME),
        )


def _count(reported: float) -> int:
    """Return a number of tokens that can be stored and added up, whatever the provider reports."""
    return int(min(reported, _MOST_TOKENS)) if reported > 0 else 0


def settings_of(request: ChatRequest) -> ModelSettings:
    """Return the agent's settings for pydantic-ai.

    The remaining budget limits the answer, unless it is so large that the model's own limit may be lower.
    """
    choices, budget = request.settings, request.max_tokens
    settings = ModelSettings()
    candidates = (
        choices.max_tokens,
        budget if budget is not None and budget <= _ANY_MODEL else None,
    )
    if limits := [limit for limit in candidates if limit is not None]:
        settings["max_tokens"] = min(limits)
    if choices.temperature is not None:
        settings["temperature"] = choices.temperature
    if choices.top_p is not None:
        settings["top_p"] = choices.top_p
    if choices.stop_sequences:
        settings["stop_sequences"] = [*choices.stop_sequences]
    # OpenAI refuses the setting in a request without tools.
    if choices.parallel_calls is not None and request.tools:
        settings["parallel_tool_calls"] = choices.parallel_calls
    if choices.cache_retention:
        retention = cast(CacheRetention, choices.cache_retention)
        settings["cache"] = False if retention == OFF else retention
    if not request.may_think or choices.effort == OFF:
        settings["thinking"] = False
    elif choices.effort:
        settings["thinking"] = cast(ThinkingEffort, choices.effort)
    if not request.may_call and request.tools:
        settings["tool_choice"] = "none"
    return settings


def _kind_of(error: Exception) -> FailureKind:
    status = error.status_code if isinstance(error, ModelHTTPError) else None
    if status in {400, 404} and _OTHER_API.search(str(error)):
        return FailureKind.WRONG_API
    if status in {400, 404, 422} and _NO_TOOLS.search(str(error)):
        return FailureKind.NO_TOOLS
    if status in {400, 404, 422} and _NO_MEDIA.search(str(error)):
        return FailureKind.NO_MEDIA
    if status == 400 and _NO_MODEL.search(str(error)):
        return FailureKind.NOT_FOUND
    if status in {400, 422, 500} and _TOO_LONG.search(str(error)):
        return FailureKind.CONTEXT_TOO_LONG
    if status in _KINDS_BY_STATUS and not isinstance(error, ModelContextWindowExceededError):
        return _KINDS_BY_STATUS[status]
    for category, kind in _KINDS:
        if isinstance(error, category):
            return kind
    is_readable = status is not None or (
        isinstance(error, ModelAPIError)
        and bool(error.provider_error_code or error.provider_error_type)
    )
    return FailureKind.REJECTED if is_readable else FailureKind.UNREADABLE


def _detail_of(error: Exception) -> str:
    """Return the provider's message, masking anything that looks like a secret."""
    if isinstance(error, ModelHTTPError):
        return _presentable({"status": error.status_code, "body": error.body})
    return _presentable(str(error))


def _presentable(message: Any) -> str:
    is_text = isinstance(message, str)
    text = message if is_text else json.dumps(message, ensure_ascii=False, default=str)
    return shortened(mask(text), limit=_DETAIL)


def _early_end(progress: "_Progress") -> FailureKind:
    """Return the kind of failure of an answer that ended with an unusual finish reason, or without any."""
    details = progress.response.provider_details if progress.response else None
    reason = (details or {}).get("finish_reason")
    if reason in _MALFORMED_CALLS:
        return FailureKind.MALFORMED_CALL
    if reason:
        return FailureKind.ENDED_EARLY
    return FailureKind.DROPPED if progress.events else FailureKind.UNREADABLE


def _retry_after(error: Exception) -> float | None:
    """Return the wait in seconds that the provider requested. pydantic-ai reads only whole seconds from `Retry-After`."""
    if not isinstance(error, ModelAPIError) or error.retry_after is not None:
        return error.retry_after if isinstance(error, ModelAPIError) else None
    headers = error.headers if isinstance(error, ModelHTTPError) else None
    try:
        seconds = float((headers or {}).get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < math.inf else None
