"""Providers: chat models behind the API of a vendor, with names such as `anthropic:claude-sonnet-5-5`.

A vendor's code is imported only if one of its models is in use. The import takes seconds, so it runs in a thread: for
the chat model in the settings when the server starts, and for an agent's chat model when it first answers.
"""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from random import SystemRandom
from typing import TYPE_CHECKING, Any

from asgiref.sync import async_to_sync

from governance.per_loop import PerLoop
from governance.threads import run_in_thread
from turns.chat_models.failures import (
    RETRYING_IN,
    FailureKind,
    ProviderFailure,
    Subject,
    failure,
    span,
)
from turns.conf import MODALITIES, app_settings
from turns.core.chat_model import (
    AS_USUAL,
    ChatDelta,
    ChatRequest,
    ChatSettings,
    Notice,
    StreamLimits,
    Usage,
)

if TYPE_CHECKING:
    from turns.chat_models.vendors.streams import Connection, MakeModel

logger = logging.getLogger(__name__)

_VENDORS = "turns.chat_models.vendors"
# Sent to servers that need no key, because without one the SDKs would send the vendor's key from the environment.
_NO_KEY = "no-key"
RETRYING = "retrying"
_FIRST_WAIT = 1.0
_SPREAD = 0.25  # fraction of random variation, so that requests that failed together are not retried together
_random = SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A vendor, with the environment variables of its key and server address, and the package of its SDK.

    `extra` is the name of Turnkeeper's extra that installs the package, and of the module in `vendors` that uses it. An
    endpoint of this site is a provider with its own `address`, which uses the `api` of a vendor.
    """

    name: str
    keys: tuple[str, ...]
    package: str
    extra: str
    base_url_variable: str = ""
    address: str = ""
    api: str = ""

    @property
    def key(self) -> str:
        """The API key from the environment; empty if there is none."""
        return os.environ.get(self.key_variable, "").strip()

    @property
    def key_variable(self) -> str:
        """The variable that contains the key, or, if none does, the variable to set; empty if no key is sent."""
        holders = (name for name in self.keys if os.environ.get(name, "").strip())
        return next(holders, self.keys[0] if self.keys else "")

    @property
    def base_url(self) -> str:
        """The address to use instead of the vendor's; empty for the vendor's."""
        if self.address:
            return self.address
        configured = app_settings.CHAT_MODEL_BASE_URL if self._is_openai else ""
        return configured or os.environ.get(self.base_url_variable, "").strip()

    @property
    def needs_key(self) -> bool:
        """Whether requests need a key; a compatible server of the site may not need one."""
        if self.address:
            return bool(self.keys)
        return not (self._is_openai and self.base_url)

    @property
    def most_tools(self) -> int | None:
        """The maximum number of tools in a request; None if there is no known limit."""
        return 128 if self.extra == "openai" else None

    @property
    def media(self) -> frozenset[str]:
        """The types of content besides text that its models accept; empty if unknown, as for a server of the site or
        one with models of many vendors.
        """
        is_vendor = not self.base_url if self._is_openai else self.extra == self.name
        return frozenset(MODALITIES) if is_vendor else frozenset()

    @property
    def is_installed(self) -> bool:
        """Whether the packages of the extra are installed. Only their parent packages are imported."""
        return all(map(_is_importable, ("pydantic_ai", self.package)))

    @property
    def _is_openai(self) -> bool:
        return self.name in _OPENAI


# `openai` uses the API that the server is known to offer: Responses at OpenAI, chat completions at any other server.
_OPENAI = ("openai", "openai-responses", "openai-chat")
_ENDPOINT_API = "openai-chat"
# Providers that offer OpenAI's chat completions API, each with peculiarities that pydantic-ai knows.
COMPATIBLE = (
    "alibaba",
    "cerebras",
    "deepseek",
    "fireworks",
    "moonshotai",
    "openrouter",
    "together",
    "zai",
)


PROVIDERS: Mapping[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider(
            name="anthropic",
            keys=("ANTHROPIC_API_KEY",),
            package="anthropic",
            extra="anthropic",
            base_url_variable="ANTHROPIC_BASE_URL",
        ),
        Provider(
            name="google",
            keys=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
            package="google.genai",
            extra="google",
            base_url_variable="GOOGLE_GEMINI_BASE_URL",
        ),
        *(
            Provider(
                name=name,
                keys=(f"{variable}_API_KEY",),
                package="openai",
                extra="openai",
                base_url_variable=f"{variable}_BASE_URL",
            )
            for name, variable in (
                *((name, "OPENAI") for name in _OPENAI),
                *((name, name.upper()) for name in COMPATIBLE),
            )
        ),
    )
}


def split(name: str) -> tuple[Provider, str] | None:
    """Return the provider and its model's name; None if the name does not have the form `provider:model`. An endpoint
    of this site is also a provider.
    """
    prefix, _colon, model_name = name.partition(":")
    provider = PROVIDERS.get(prefix) or endpoints().get(prefix)
    return (provider, model_name) if provider is not None and model_name else None


def endpoints() -> dict[str, Provider]:
    """Return the endpoints that the site declares, by name. Each has a separate address and key."""
    declared = app_settings.valid("CHAT_MODEL_ENDPOINTS").items()
    return {
        name: Provider(
            name=name,
            keys=(endpoint["key_variable"],) if "key_variable" in endpoint else (),
            package=vendor.package,
            extra=vendor.extra,
            address=endpoint["base_url"],
            api=vendor.name,
        )
        for name, endpoint in declared
        if name not in PROVIDERS
        if (vendor := PROVIDERS.get(endpoint.get("api", _ENDPOINT_API))) is not None
    }


def problem_of(name: str) -> ProviderFailure | None:
    """Return why a provider's chat model cannot answer: its package or its key is missing. None if it can."""
    provider_and_model = split(name)
    if provider_and_model is None:
        return None
    provider, _model_name = provider_and_model
    if not provider.is_installed:
        return failure(FailureKind.NOT_INSTALLED, _subject(name, provider))
    if provider.needs_key and not provider.key:
        return failure(FailureKind.KEY_MISSING, _subject(name, provider))
    return None


def ignored_settings(name: str, settings: ChatSettings) -> list[str]:
    """Return the names of the settings that a provider's chat model ignores; empty if unknown."""
    provider_and_model = split(name)
    if provider_and_model is None or settings == AS_USUAL:
        return []
    if not provider_and_model[0].is_installed:
        return []
    return ProviderChatModel(*provider_and_model).ignored(settings)


def warm(name: str) -> threading.Thread | None:
    """Start importing the code of a provider's chat model, so that its first answer is not delayed.

    Return the importing thread; None if there is nothing to import, or if the model could not answer anyway.
    """
    provider_and_model = split(name)
    if provider_and_model is None or problem_of(name) is not None:
        return None
    provider, _model_name = provider_and_model

    def import_vendor() -> None:
        # One thread at a time, because a second one would see modules that are only partly initialised.
        with _importing, suppress(ImportError):  # raised again when the model is called
            import_module(f"{_VENDORS}.streams")
            import_module(f"{_VENDORS}.{provider.extra}")

    # A daemon, because it does no harm if the process ends in the middle of an import.
    thread = threading.Thread(target=import_vendor, name=f"importing {provider.name}", daemon=True)
    thread.start()
    return thread


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The number of retries of a request, and the first and the longest wait before a retry, in seconds."""

    retries: int = 3
    max_wait: float = 60.0
    first_wait: float = _FIRST_WAIT

    def wait_before_retry(self, error: ProviderFailure, *, attempt: int) -> float | None:
        """Return how many seconds to wait before the next attempt, after this one failed. Return None if there should
        be no further attempt.

        The wait is at least as long as the provider asks for, because an earlier request would be refused too. If that
        is longer than `max_wait`, the request is not repeated. If the provider asks for no wait, there is one anyway,
        because the retries would otherwise be used up within a second.
        """
        if not error.is_temporary or attempt > self.retries:
            return None
        requested = error.retry_after or 0.0
        if requested > self.max_wait:
            return None
        wait = max(requested, self.first_wait * 2.0 ** (attempt - 1))
        return min(self.max_wait, wait * (1 + _SPREAD * _random.random()))


async def with_retries(
    attempt: Callable[[], AsyncGenerator[ChatDelta, None]],
    policy: RetryPolicy,
    *,
    chat_model: str,
) -> AsyncGenerator[ChatDelta, None]:
    """Stream an attempt. If it fails before its first output, wait and stream another one. A cancel also ends the wait.

    The usage of failed attempts is added to that of the next one.

    Raises:
        ProviderFailure: the last attempt failed, or an attempt failed after its answer had begun.
    """
    usage = Usage()
    for number in count(1):
        has_begun = False
        earlier_usage = usage
        try:
            async with aclosing(attempt()) as deltas:
                async for delta in deltas:
                    if isinstance(delta, Usage):
                        delta = usage = earlier_usage + delta
                    else:
                        has_begun = True
                    yield delta
        except ProviderFailure as error:
            wait = None if has_begun else policy.wait_before_retry(error, attempt=number)
            facts = {"chat_model": chat_model, "code": error.code, "attempt": number}
            logger.warning("A request to a chat model failed", extra=facts)
            if wait is None:
                raise
            reason = error.retry_reason
            message = RETRYING_IN % {"reason": reason, "wait": span(wait)}
            notice = Notice(code=RETRYING, message=message, wait=wait, reason=reason)
        else:
            return
        yield notice
        await asyncio.sleep(wait)


class PydanticAIChatModel:
    """A chat model that uses any model of pydantic-ai. `make` accepts an HTTP client and returns a model that uses it.

    `make` is called in a thread, once per event loop, at the first request. The model must use that client. With
    another client, a request may continue after a cancel, its responses have no limit in size, and the time without any
    data is not measured. `media` are the types of content besides text that the model accepts.
    """

    def __init__(
        self,
        make: "MakeModel",
        *,
        name: str,
        media: Collection[str] = (),
        subject: Subject | None = None,
        limits: Callable[[], StreamLimits] | None = None,
        retry_policy: Callable[[], RetryPolicy] | None = None,
    ) -> None:
        self.name = name
        self._make = make
        self._media = frozenset(media)
        self._subject = subject or Subject(chat_model=name)
        self._limits = limits or _limits
        self._retry_policy = retry_policy or _retry_policy

    @property
    def media(self) -> frozenset[str]:
        """The types of content besides text that the model accepts."""
        return self._media

    async def context_window(self) -> int | None:
        """Return the maximum number of tokens of a request and its answer; None if pydantic-ai does not know it."""
        try:
            return (await self._connection()).context_window
        except ProviderFailure:  # raised again when the model is called
            return None

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatDelta, None]:
        """Stream the answer to a request.

        Raises:
            ProviderFailure: the provider gave no answer or an incomplete one.
        """
        connection = await self._connection()
        limits = request.limits or self._limits()
        retried = with_retries(
            lambda: connection.stream(request, limits),
            self._retry_policy(),
            chat_model=self.name,
        )
        async with aclosing(retried) as deltas:
            async for delta in deltas:
                yield delta

    async def _connection(self) -> "Connection":
        pool = _connections.get_or_make(dict)
        if (connection := pool.get(self)) is not None:
            return connection
        return await run_in_thread(self._connect, pool)

    def _connect(self, pool: "dict[PydanticAIChatModel, Connection]") -> "Connection":
        with _importing:
            if (connection := pool.get(self)) is not None:
                return connection
            from turns.chat_models.vendors.streams import connect  # noqa: PLC0415 - takes seconds, and may not be installed

            connection = pool[self] = connect(self._make, self._subject)
            return connection


class ProviderChatModel(PydanticAIChatModel):
    """A provider's chat model. `limits` and `retry_policy` are called at each request; by default, they read the
    settings.
    """

    def __init__(self, provider: Provider, model_name: str, **options: Any) -> None:
        name = f"{provider.name}:{model_name}"
        super().__init__(self._make_model, name=name, subject=_subject(name, provider), **options)
        self._provider = provider
        self._model_name = model_name

    @property
    def media(self) -> frozenset[str]:
        """The types of content besides text that the model accepts."""
        configured = app_settings.CHAT_MODEL_MEDIA
        return self._provider.media if configured is None else frozenset(configured)

    def ignored(self, settings: ChatSettings) -> list[str]:
        """Return the names of an agent's settings that the model ignores, without sending a request. This blocks,
        because it imports modules.
        """
        with _importing:
            compare = import_module(f"{_VENDORS}.ignored_settings").ignored_settings
        try:
            names: list[str] = async_to_sync(compare)(self._make_model, settings)
        except Exception:  # an SDK may raise anything for a model that it does not know
            logger.exception("The settings of a chat model could not be compared")
            return []
        return names

    def _connect(self, pool: "dict[PydanticAIChatModel, Connection]") -> "Connection":
        if self._provider.needs_key and not self._provider.key:
            raise failure(FailureKind.KEY_MISSING, self._subject)
        try:
            return super()._connect(pool)
        except ImportError as error:
            raise failure(FailureKind.NOT_INSTALLED, self._subject) from error

    def _make_model(self, http_client: Any) -> Any:
        vendor = import_module(f"{_VENDORS}.{self._provider.extra}")
        return vendor.make_model(
            self._model_name,
            provider=self._provider.api or self._provider.name,
            key=self._provider.key or _NO_KEY,
            base_url=self._provider.base_url,
            http_client=http_client,
        )


_importing = threading.Lock()
# An HTTP client can only be used on one event loop.
_connections: "PerLoop[dict[PydanticAIChatModel, Connection]]" = PerLoop()


async def close_connections() -> None:
    """Close the connections to providers of the running event loop."""
    pool = _connections.pop()
    for connection in pool.values() if pool else ():
        await connection.aclose()


def _limits() -> StreamLimits:
    return StreamLimits(
        first_byte_timeout=app_settings.CHAT_MODEL_FIRST_BYTE_TIMEOUT,
        idle_timeout=app_settings.CHAT_MODEL_IDLE_TIMEOUT,
        request_timeout=app_settings.CHAT_MODEL_REQUEST_TIMEOUT,
    )


def _retry_policy() -> RetryPolicy:
    return RetryPolicy(
        retries=app_settings.CHAT_MODEL_RETRIES, max_wait=app_settings.CHAT_MODEL_RETRY_MAX_WAIT
    )


def _subject(name: str, provider: Provider) -> Subject:
    key = provider.key_variable or "TURNS_CHAT_MODEL_ENDPOINTS"
    return Subject(chat_model=name, key=key, extra=provider.extra)


def _is_importable(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False
