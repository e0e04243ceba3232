"""The HTTP client of the vendors' SDKs: no server makes it hold more than a line of a stream, or an error, can be."""

from collections.abc import AsyncIterator

from httpx2 import AsyncByteStream, AsyncClient, DecodingError, Response
from pydantic_ai.models import create_async_httpx2_client

MAX_LINE = 8_000_000  # bytes: a whole answer, with every character escaped
_ACCEPTED, _CODED = "accept-encoding", "content-encoding"


def make_client() -> AsyncClient:
    """Return a client that asks for answers as they are: a small one can be packed that has no end."""
    client = create_async_httpx2_client()
    client.headers[_ACCEPTED] = "identity"
    client.event_hooks["response"].append(_bound)
    return client


async def _bound(response: Response) -> None:
    response.headers.pop(
        _CODED, None
    )  # what is packed all the same is not unpacked, and not understood
    if isinstance(response.stream, AsyncByteStream):
        response.stream = _Bounded(response.stream, by_line=response.is_success)


class _Bounded(AsyncByteStream):
    """Fails where a line of a stream, or the whole of an error, is too long. The SDKs hold as much as that."""

    def __init__(self, stream: AsyncByteStream, *, by_line: bool) -> None:
        self._stream = stream
        self._by_line = by_line

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held = 0
        async for chunk in self._stream:
            begun = chunk.rfind(b"\n") + 1 if self._by_line else 0
            held = len(chunk) - begun + (0 if begun else held)
            if held > MAX_LINE:
                raise DecodingError(f"More than {MAX_LINE} bytes without an end")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
