"""Providers: chat models behind a vendor's API, by names such as `anthropic:claude-sonnet-5-5`.

Nothing of a vendor is imported where no such model is in use. It takes seconds, so a thread does it when the server
starts. For a model of an agent it does so when that first answers.
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from governance.per_loop import PerLoop
from turns.chat_models.failures import FailureKind, ProviderFailure, Subject, failure
from turns.chat_models.limits import StreamLimits
from turns.chat_models.retries import RetryPolicy, with_retries
from turns.conf import MODALITIES, app_settings
from turns.core.chat_model import ChatDelta, ChatRequest

if TYPE_CHECKING:
    from turns.chat_models.vendors.streams import Connection

_VENDORS = "turns.chat_models.vendors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A vendor: the variables of its key, the package of its SDK, where its own server's address is set."""

    name: str
    keys: tuple[str, ...]
    package: str
    base_url_variable: str = ""

    @property
    def key(self) -> str:
        """The key in the environment; empty if there is none."""
        return next(filter(None, (os.environ.get(name, "").strip() for name in self.keys)), "")

    @property
    def base_url(self) -> str:
        """The server to ask instead of the vendor's; empty for the vendor's."""
        chosen = app_settings.CHAT_MODEL_BASE_URL if self.name == "openai" else ""
        return chosen or os.environ.get(self.base_url_variable, "").strip()

    @property
    def needs_key(self) -> bool:
        """Whether nothing can be asked without one: a compatible server of one's own may want none."""
        return not (self.name == "openai" and self.base_url)

    @property
    def most_tools(self) -> int | None:
        """How many tools a request may offer; None = as far as is known, any number."""
        return 128 if self.name == "openai" else None

    @property
    def media(self) -> frozenset[str]:
        """What its models can take beside text; of a server of one's own nothing is known."""
        is_own = self.name == "openai" and bool(self.base_url)
        return frozenset() if is_own else frozenset(MODALITIES)

    @property
    def is_installed(self) -> bool:
        """Whether the extra's packages are there; nothing is imported but parent packages."""
        return all(map(_is_importable, ("pydantic_ai", self.package)))


PROVIDERS: Mapping[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider(
            name="anthropic",
            keys=("ANTHROPIC_API_KEY",),
            package="anthropic",
            base_url_variable="ANTHROPIC_BASE_URL",
        ),
        Provider(
            name="openai",
            keys=("OPENAI_API_KEY",),
            package="openai",
            base_url_variable="OPENAI_BASE_URL",
        ),
        Provider(
            name="google",
            keys=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
            package="google.genai",
            base_url_variable="GOOGLE_GEMINI_BASE_URL",
        ),
    )
}


def split(name: str) -> tuple[Provider, str] | None:
    """Return the provider and its model's name; None if the name is not of the form `provider:model`."""
    prefix, _colon, model_name = name.partition(":")
    provider = PROVIDERS.get(prefix)
    return (provider, model_name) if provider is not None and model_name else None


def problem_of(name: str) -> ProviderFailure | None:
    """Return what keeps a chat model of a provider from answering: a package or a key that is missing."""
    found = split(name)
    if found is None:
        return None
    provider, _model_name = found
    if not provider.is_installed:
        return failure(FailureKind.NOT_INSTALLED, _subject(name, provider))
    if provider.needs_key and not provider.key:
        return failure(FailureKind.KEY_MISSING, _subject(name, provider))
    return None


def warm(name: str) -> threading.Thread | None:
    """Begin to import what a provider's chat model needs, so that its first answer does not wait.

    Return the thread that does it; None where there is nothing to import, or it would be in vain.
    """
    found = split(name)
    if found is None or problem_of(name) is not None:
        return None
    provider, _model_name = found

    def read() -> None:
        # One thread at a time: two that import the same packages meet in modules that are half made.
        with _importing, suppress(ImportError):  # told when the model is asked
            import_module(f"{_VENDORS}.streams")
            import_module(f"{_VENDORS}.{provider.name}")

    # Not waited for when the process ends: nothing is half done then.
    reading = threading.Thread(target=read, name=f"importing {provider.name}", daemon=True)
    reading.start()
    return reading


class ProviderChatModel:
    """A chat model of a provider. `limits` and `retry_policy` are read at each request; the settings by default."""

    def __init__(
        self,
        provider: Provider,
        model_name: str,
        *,
        limits: Callable[[], StreamLimits] | None = None,
        retry_policy: Callable[[], RetryPolicy] | None = None,
    ) -> None:
        self.name = f"{provider.name}:{model_name}"
        self._provider = provider
        self._model_name = model_name
        self._limits = limits or _limits
        self._retry_policy = retry_policy or _retry_policy
        self._subject = _subject(self.name, provider)

    @property
    def media(self) -> frozenset[str]:
        """What the model can take beside text."""
        chosen = app_settings.CHAT_MODEL_MEDIA
        return self._provider.media if chosen is None else frozenset(chosen)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatDelta, None]:
        """Answer the request piece by piece.

        Raises:
            ProviderFailure: the provider did not answer, or not to the end.
        """
        connection = await self._connection()
        limits = self._limits()
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
        if (known := pool.get(self.name)) is not None:
            return known
        return await asyncio.to_thread(self._connect, pool)

    def _connect(self, pool: "dict[str, Connection]") -> "Connection":
        """Import the vendor and make its client, once for each event loop."""
        with _importing:
            if (known := pool.get(self.name)) is not None:
                return known
            if self._provider.needs_key and not self._provider.key:
                raise failure(FailureKind.KEY_MISSING, self._subject)
            try:
                streams = import_module(f"{_VENDORS}.streams")
                connection: Connection = streams.connect(
                    f"{_VENDORS}.{self._provider.name}",
                    self._model_name,
                    key=self._provider.key,
                    base_url=self._provider.base_url,
                    subject=self._subject,
                )
            except ImportError as error:
                raise failure(FailureKind.NOT_INSTALLED, self._subject) from error
            pool[self.name] = connection
            return connection


_importing = threading.Lock()
# By chat model: a client belongs to the loop that it was first used on.
_connections: "PerLoop[dict[str, Connection]]" = PerLoop()


async def close_connections() -> None:
    """Close every connection to a provider that the running loop holds open."""
    pool = _connections.pop()
    for connection in pool.values() if pool else ():
        await connection.aclose()


def _limits() -> StreamLimits:
    return StreamLimits(
        first_byte_timeout=app_settings.CHAT_MODEL_FIRST_BYTE_TIMEOUT,
        idle_timeout=app_settings.CHAT_MODEL_IDLE_TIMEOUT,
    )


def _retry_policy() -> RetryPolicy:
    return RetryPolicy(
        retries=app_settings.CHAT_MODEL_RETRIES, max_wait=app_settings.CHAT_MODEL_RETRY_MAX_WAIT
    )


def _subject(name: str, provider: Provider) -> Subject:
    return Subject(chat_model=name, key=provider.keys[0], extra=provider.name)


def _is_importable(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a parent of it is missing
        return False
