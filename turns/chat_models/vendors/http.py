"""The HTTP client of the vendors' SDKs, with a limit on the memory that a response may use."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from httpx2 import AsyncByteStream, AsyncClient, DecodingError, Response, Timeout
from pydantic_ai.models import create_async_httpx2_client

MAX_LINE = 8_000_000  # bytes; enough for a whole answer with every character escaped
_CONNECT = 5.0  # seconds; the other times are limited per request
_ACCEPTED, _CODED = "accept-encoding", "content-encoding"


class Exchange:
    """The HTTP responses to one request of a turn; `on_bytes` is called for each chunk of them."""

    def __init__(self, on_bytes: Callable[[], object]) -> None:
        self.on_bytes = on_bytes
        self.responses: list[Response] = []

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Collect the responses to all requests that are made within the context."""
        token = _exchange.set(self)
        try:
            yield
        finally:
            _exchange.reset(token)

    async def aclose(self) -> None:
        """Close the socket of each response that has not been read to its end.

        The SDKs close it only if a cancel interrupts one of their reads. A cancel may also arrive between two reads,
        for example while pydantic-ai acquires a lock. Google's stream would then stay open until the garbage is
        collected.
        """
        for response in self.responses:
            await response.aclose()


_exchange: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


def make_client() -> AsyncClient:
    """Return a client that asks for uncompressed responses, because a small compressed one may expand without limit."""
    client = create_async_httpx2_client(timeout=Timeout(None, connect=_CONNECT))
    client.headers[_ACCEPTED] = "identity"
    client.event_hooks["response"].append(_bound)
    return client


async def _bound(response: Response) -> None:
    # A response that is compressed nevertheless is not expanded, and fails as unreadable.
    response.headers.pop(_CODED, None)
    if (exchange := _exchange.get()) is not None:
        exchange.responses.append(response)
    if isinstance(response.stream, AsyncByteStream):
        response.stream = _Bounded(
            response.stream,
            by_line=response.is_success,
            on_bytes=exchange.on_bytes if exchange is not None else None,
        )


class _Bounded(AsyncByteStream):
    """A response body that raises `DecodingError` if a line of a stream, or an error response as a whole, is too long,
    because the SDKs hold it in memory.
    """

    def __init__(
        self,
        stream: AsyncByteStream,
        *,
        by_line: bool,
        on_bytes: Callable[[], object] | None,
    ) -> None:
        self._stream = stream
        self._by_line = by_line
        self._on_bytes = on_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = 0  # bytes of the current line
        async for chunk in self._stream:
            if self._on_bytes is not None:
                self._on_bytes()
            line_start = chunk.rfind(b"\n") + 1 if self._by_line else 0
            length = len(chunk) - line_start + (0 if line_start else length)
            if length > MAX_LINE:
                raise DecodingError(f"More than {MAX_LINE} bytes without an end")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
