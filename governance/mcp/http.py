"""The way to an MCP server over streamable HTTP: checked addresses, bounded answers, headers from the environment."""

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from governance.core.exceptions import ToolFailed
from governance.mcp.answers import Answer
from governance.mcp.gone import FORGOTTEN, ServerGone
from governance.mcp.specs import McpTiming, ServerSpec
from governance.mcp.wire import Streams
from governance.toolbox.addresses import is_public, resolve
from governance.toolbox.settings import ToolboxSettings

_CONNECT_TIMEOUT = 10.0
_GOODBYE_TIMEOUT = 1.0
_SESSION = "mcp-session-id"
_PLAIN = "identity"
_LOST = frozenset({400, 404})
_PRIVATE = (
    "its address is on a private or local network; allow that for this server, "
    "or for all with GOVERNANCE_WEB_ALLOW_PRIVATE"
)


class HttpServer:
    """Opens the streams to a server at a URL with `open`.

    `ended` gets a clause when the server has forgotten the session. `status` is the last error it answered with.
    """

    def __init__(self, spec: ServerSpec, *, timing: McpTiming, allow_private: bool) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.status: int | None = None
        self._spec = spec
        self._timing = timing
        self._settings = ToolboxSettings(
            web_allow_private=allow_private or spec.allow_private,
            web_connect_timeout=_CONNECT_TIMEOUT,
        )

    def give_up(self, reason: str) -> None:
        """Say once why the streams are no use any more."""
        if not self.ended.done():
            self.ended.set_result(reason)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Streams]:
        """Connect; the address is checked at every request."""
        headers = self._headers()
        tls = await asyncio.to_thread(httpx2.create_ssl_context)  # reads the authorities from disk
        longest = self._timing.longest_message
        headers["Accept-Encoding"] = _PLAIN
        client = httpx2.AsyncClient(
            transport=CheckedTransport(
                self._settings, tls=tls, longest=longest, on_error=self._note
            ),
            headers=headers,
            # An answer takes as long as its tool does, and that is the executor's business.
            timeout=httpx2.Timeout(_CONNECT_TIMEOUT, read=None),
            trust_env=False,
        )
        async with (
            client,
            streamable_http_client(
                self._spec.url, http_client=client, max_sse_event_size=longest
            ) as streams,
        ):
            yield streams

    def _headers(self) -> dict[str, str]:
        """Return the headers with the values of the variables that they name."""
        found = {}
        for header, variable in self._spec.headers:
            if not (value := os.environ.get(variable, "").strip()):
                raise ServerGone(f"the environment variable {variable} is not set on this server")
            found[header] = value
        return found

    def _note(self, request: httpx2.Request, status: int) -> None:
        self.status = status
        if _SESSION in request.headers and request.method == "POST" and status in _LOST:
            self.give_up(FORGOTTEN)


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Resolves the host itself, and connects to an address that was checked and to no other.

    `on_error` hears of every answer with an error status. When a request is given up, so is its answer.
    """

    def __init__(
        self,
        settings: ToolboxSettings,
        *,
        tls: ssl.SSLContext,
        longest: int,
        on_error: Callable[[httpx2.Request, int], None],
    ) -> None:
        self._settings = settings
        self._longest = longest
        self._on_error = on_error
        self._answers: dict[Any, Answer] = {}
        self._transport = httpx2.AsyncHTTPTransport(verify=tls, trust_env=False)

    @property
    def open_answers(self) -> int:
        """How many answers of tools are being read."""
        return len(self._answers)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request to the first address of its host that answers."""
        response = await self._send(request)
        if response.is_error:
            self._on_error(request, response.status_code)
        if response.headers.get("content-encoding", _PLAIN).lower() != _PLAIN:
            # What it would unfold to is bounded by nothing; it was asked not to.
            await response.aclose()
            raise ServerGone("it sends compressed answers, which are not read")
        message = _message(request)
        request_id = message.get("id")
        answer = Answer(
            response,
            longest=self._longest,
            request_id=request_id,
            on_close=partial(self._answers.pop, request_id, None),
        )
        if message.get("method") == "tools/call" and answer.is_stream:
            self._answers[request_id] = answer
        elif message.get("method") == "notifications/cancelled":
            given_up = self._answers.get(message["params"].get("requestId"))
            if given_up is not None:
                given_up.give_up()
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=answer,
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        extensions = {**request.extensions, "sni_hostname": url.host}
        if request.method == "DELETE":  # a goodbye, which nobody need hear
            spans = ("connect", "read", "write", "pool")
            extensions["timeout"] = dict.fromkeys(spans, _GOODBYE_TIMEOUT)
        failure: httpx2.TransportError | None = None
        for address in await self._addresses(url):
            pinned = httpx2.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,  # with the Host of the original
                stream=request.stream,
                extensions=extensions,
            )
            try:
                return await self._transport.handle_async_request(pinned)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
        assert failure is not None  # noqa: S101 - there is at least one address
        raise failure

    async def _addresses(self, url: httpx2.URL) -> Sequence[str]:
        port = url.port or (443 if url.scheme == "https" else 80)
        everywhere = ToolboxSettings(
            web_allow_private=True, web_connect_timeout=self._settings.web_connect_timeout
        )
        try:
            addresses = await resolve(url.host, port, settings=everywhere)
        except ToolFailed:
            raise ServerGone("its host was not found") from None
        if not self._settings.web_allow_private and not all(map(is_public, addresses)):
            raise ServerGone(_PRIVATE)
        return addresses


def _message(request: httpx2.Request) -> dict[str, Any]:
    """Return the message that the request carries; empty for none."""
    message = json.loads(request.content) if request.method == "POST" else {}
    return message if isinstance(message, dict) else {}
