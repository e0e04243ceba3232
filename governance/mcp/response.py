"""The body of an HTTP response of an MCP server. Its size is limited, and it ends when its request is aborted."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2

from governance.mcp.specs import McpTiming
from governance.mcp.throttle import Throttle

_READ_AHEAD = 8
_CANCELLED = -32800  # the code of language servers for a cancelled request


class ResponseStream(httpx2.AsyncByteStream):
    """A stream that passes on the body of a response. `on_close` is called when the reader has finished.

    If `on_break` is set, it is called when the connection of a single document breaks, and the body then ends with our
    own error response instead of an exception. The size of a single document is limited here. A stream of events has no
    end, so its reader limits the size of each event, and a throttle limits the rate of all events together.
    """

    def __init__(
        self,
        response: httpx2.Response,
        *,
        timing: McpTiming,
        request_id: Any,
        on_close: Callable[[], object],
    ) -> None:
        content_type = response.headers.get("content-type", "")
        # A redirect or an error is read as a single document, whatever its content type is.
        self.is_stream = response.is_success and content_type.lower().startswith(
            "text/event-stream"
        )
        self._response = response
        self._longest = timing.longest_message
        self._throttle = Throttle(timing)
        self._request_id = request_id
        self._on_close = on_close
        self.on_break: Callable[[Exception], object] | None = None
        self._pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(_READ_AHEAD)
        self._copying: asyncio.Task[None] | None = None

    def abort(self) -> None:
        """End the body with our own error response, because older servers send none and leave the response open
        forever.
        """
        if self._copying is not None:
            self._copying.cancel()
        while not self._pieces.empty():
            self._pieces.get_nowait()
        error = last_event if self.is_stream else last_document
        self._pieces.put_nowait(error(self._request_id))
        self._pieces.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._copying = asyncio.create_task(self._copy(), name="reading an MCP answer")
        try:
            while (item := await self._pieces.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self._copying.cancel()

    async def aclose(self) -> None:
        self._on_close()
        if self._copying is not None:
            self._copying.cancel()
            await asyncio.wait({self._copying})
        await self._response.aclose()

    async def _copy(self) -> None:
        """Read the body in a separate task, so that an abort can stop it without interrupting the reader."""
        size = 0
        try:
            async for piece in self._stream:
                size += len(piece)
                if size > self._longest and not self.is_stream:
                    raise httpx2.ReadError("The answer is too long.")
                await self._pieces.put(piece)
                if self.is_stream:
                    await self._throttle.wait_after(piece)
        except httpx2.TransportError as error:
            # The SDK itself handles a broken event stream.
            if self.on_break is None or self.is_stream:
                await self._pieces.put(error)
                return
            self.on_break(error)
            await self._pieces.put(last_document(self._request_id))
            await self._pieces.put(None)
        else:
            await self._pieces.put(None)

    @property
    def _stream(self) -> httpx2.AsyncByteStream:
        stream = self._response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)  # noqa: S101 - for the type checker
        return stream


def last_event(request_id: Any) -> bytes:
    """Return an event with an error response, which ends a stream whose request was aborted."""
    return b"\n\nevent: message\ndata: " + last_document(request_id) + b"\n\n"


def last_document(request_id: Any) -> bytes:
    """Return an error response, which ends a body whose request was aborted.

    If part of another document precedes it, the whole body is not valid JSON.
    """
    error = {"code": _CANCELLED, "message": "cancelled"}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode()
