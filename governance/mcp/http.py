"""The transport to an MCP server over streamable HTTP. It checks addresses, limits the size of responses, and reads the
values of headers from the environment.
"""

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from governance.core.containment import outside
from governance.core.exceptions import ToolFailed
from governance.mcp.error_messages import explain, status_clause
from governance.mcp.errors import FORGOTTEN, RequestNotSent, ServerUnavailable
from governance.mcp.message_filter import Streams
from governance.mcp.request_state import RequestState, RequestStates
from governance.mcp.response import ResponseStream, last_event
from governance.mcp.specs import McpTiming, ServerSpec
from governance.threads import run_in_thread
from governance.toolbox.addresses import is_public, resolve, send_pinned
from governance.toolbox.settings import ToolboxSettings

_CONNECT_TIMEOUT = 10.0
_GOODBYE_TIMEOUT = 1.0
_LISTEN_PAUSE = 0.5  # seconds
_SESSION = "mcp-session-id"
_PLAIN = "identity"
_EVENTS = {"content-type": "text/event-stream"}
_LOST = frozenset({400, 404})
_UNAUTHORISED = 401
_MOVED = frozenset({307, 308})
_PRIVATE = (
    "its address is on a private or local network; allow that for this server, "
    "or for all with GOVERNANCE_WEB_ALLOW_PRIVATE"
)


class HttpServer:
    """An MCP server at a URL. `open` opens the streams to it.

    `ended` resolves with a clause when the server has forgotten the session, and `stuck` when it accepts no more
    messages. `status` is the HTTP status of the server's last error response, or None.
    """

    def __init__(
        self,
        spec: ServerSpec,
        *,
        timing: McpTiming,
        request_states: RequestStates,
        allow_private: bool,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = loop.create_future()
        self.stuck: asyncio.Future[str] = loop.create_future()
        self._request_states = request_states
        self.status: int | None = None
        self._spec = spec
        self._timing = timing
        self._settings = ToolboxSettings(
            web_allow_private=allow_private or spec.allow_private,
            web_connect_timeout=_CONNECT_TIMEOUT,
        )

    def abort(self, reason: str) -> None:
        """Report once why the streams are unusable."""
        if not self.ended.done():
            self.ended.set_result(reason)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Streams]:
        """Open the streams. Every request checks the server's address."""
        headers = self._headers()
        # In a thread, because it reads the certificate authorities from the disk.
        tls = await run_in_thread(httpx2.create_ssl_context)
        longest = self._timing.longest_message
        headers["Accept-Encoding"] = _PLAIN
        client = httpx2.AsyncClient(
            transport=CheckedTransport(
                self._settings,
                tls=tls,
                timing=self._timing,
                request_states=self._request_states,
                on_error=self._record_status,
                on_stuck=self._record_stuck,
            ),
            headers=headers,
            # No read timeout, because the executor limits how long a tool takes.
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
        headers = {}
        for header, variable in self._spec.headers:
            if not (value := os.environ.get(variable, "").strip()):
                raise ServerUnavailable(
                    f"the environment variable {variable} is not set on this server"
                )
            headers[header] = value
        return headers

    def _record_status(self, request: httpx2.Request, status: int) -> None:
        self.status = status
        if _SESSION in request.headers and request.method == "POST" and status in _LOST:
            self.abort(FORGOTTEN)
        elif status == _UNAUTHORISED:  # calls that the server has accepted may still be answered
            self._record_stuck(status_clause(status))

    def _record_stuck(self, reason: str) -> None:
        if not self.stuck.done():
            self.stuck.set_result(reason)


class OpenCall:
    """A tool call without a complete response: it is not sent yet, unanswered, or partly answered."""

    def __init__(self, request_state: RequestState) -> None:
        self.request_state = request_state
        self.waiting = asyncio.timeout(None)
        self.answer: ResponseStream | None = None

    async def on_send(self, event: str, _: Mapping[str, Any]) -> None:
        """Mark the call as sent when its request begins. Raise `RequestNotSent` if it was withdrawn before."""
        if event.endswith("send_request_headers.started") and not self.request_state.send():
            raise RequestNotSent

    def abort(self) -> None:
        """End the call locally, so that none of its resources stay open."""
        if self.answer is not None:
            self.answer.abort()
        else:
            self.waiting.reschedule(asyncio.get_running_loop().time())


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Resolves the host itself, and connects only to addresses that it has checked.

    Every request has a time limit, except those that only listen, and tool calls, which their callers limit. If the
    connection of a tool call breaks, only that call is lost. `on_error` receives the request and the status of every
    error response. `on_stuck` receives a clause if a notification or a tool call cannot be delivered to the server.
    """

    def __init__(
        self,
        settings: ToolboxSettings,
        *,
        tls: ssl.SSLContext,
        timing: McpTiming,
        request_states: RequestStates,
        on_error: Callable[[httpx2.Request, int], None],
        on_stuck: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._timing = timing
        self._request_states = request_states
        self._on_error = on_error
        self._on_stuck = on_stuck
        self._calls: dict[Any, OpenCall] = {}
        self._giving_up: set[asyncio.Task[None]] = set()
        self._next_listen = 0.0
        # No pool limit, because the executor limits concurrent calls.
        limits = httpx2.Limits(max_connections=None)
        self._transport = httpx2.AsyncHTTPTransport(verify=tls, trust_env=False, limits=limits)

    @property
    def open_calls(self) -> int:
        """The number of tool calls without a complete response."""
        return len(self._calls)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request to the first address of its host that accepts a connection, and return the response."""
        message = _message(request)
        method, request_id = message.get("method"), message.get("id")
        if method == "tools/call":
            return await self._call(request, request_id)
        if method == "notifications/cancelled":
            # Respond immediately, because the SDK sends nothing else before that.
            work = self._abort(request, message["params"].get("requestId"))
            task = asyncio.create_task(work, name="giving up an MCP call", context=outside())
            self._giving_up.add(task)
            task.add_done_callback(self._giving_up.discard)
            return httpx2.Response(202)
        if method is not None and request_id is not None:
            is_listening = method == "subscriptions/listen"
            read = None if is_listening else self._timing.request_timeout
            return self._read(await self._answered(request, read=read))
        if request.method == "POST":
            return await self._notify(request) or httpx2.Response(202)
        return await self._listen(request)

    async def aclose(self) -> None:
        """Close every connection once the pending notifications are sent, or after a second."""
        if self._giving_up:
            await asyncio.wait(self._giving_up, timeout=_GOODBYE_TIMEOUT)
        for task in self._giving_up:
            task.cancel()
        await self._transport.aclose()

    async def _listen(self, request: httpx2.Request) -> httpx2.Response:
        """Open a stream for messages from the server, at most one every `_LISTEN_PAUSE` seconds.

        The limit is needed because a server may end each stream immediately, which makes the SDK open another one.
        """
        now = asyncio.get_running_loop().time()
        at = max(self._next_listen, now)
        self._next_listen = at + _LISTEN_PAUSE
        await asyncio.sleep(at - now)
        return self._read(await self._answered(request, read=None))

    async def _call(self, request: httpx2.Request, request_id: Any) -> httpx2.Response:
        """Send a tool call. If the caller leaves or the server cannot be reached, return our own error response."""
        request_state = self._request_states.pop(request_id, RequestState())
        call = OpenCall(request_state)
        self._calls[request_id] = call
        request.extensions = {**request.extensions, "trace": call.on_send}
        try:
            async with call.waiting:
                response = await self._answered(request, read=None)
        except (TimeoutError, RequestNotSent, ServerUnavailable, httpx2.TransportError) as error:
            del self._calls[request_id]
            self._record_failure(request_state, error)
            return httpx2.Response(200, headers=_EVENTS, content=last_event(request_id))
        except BaseException:
            del self._calls[request_id]
            raise
        if response.is_error:
            request_state.status = response.status_code
        forget = partial(self._calls.pop, request_id, None)
        return self._read(response, request_id=request_id, on_close=forget, call=call)

    def _record_failure(self, request_state: RequestState, error: Exception) -> None:
        """Record why a call gets no response. Only this call is lost, because others may still be answered. If the call
        was not even sent, the server gets no new calls.
        """
        if isinstance(error, ServerUnavailable | httpx2.TransportError):
            request_state.failure = explain(error)
            if not request_state.is_sent:
                self._on_stuck(request_state.failure)

    def _read(
        self,
        response: httpx2.Response,
        *,
        request_id: Any = None,
        on_close: Callable[[], object] = lambda: None,
        call: OpenCall | None = None,
    ) -> httpx2.Response:
        """Return the response with a body that is limited in size and can be aborted."""
        answer = ResponseStream(
            response, timing=self._timing, request_id=request_id, on_close=on_close
        )
        if call is not None:
            call.answer = answer
            answer.on_break = partial(self._record_failure, call.request_state)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=answer,
            extensions=response.extensions,
        )

    async def _abort(self, request: httpx2.Request, request_id: Any) -> None:
        """Notify the server that the caller has left, if it may know of the call. Then end the call locally."""
        call = self._calls.get(request_id)
        request_state = call.request_state if call else self._request_states.get(request_id)
        try:
            if request_state is None or not request_state.is_withdrawn:
                moved = await self._send_or_redirect(request)
                if moved is not None:
                    await self._send_or_redirect(moved)
        finally:
            if call is not None:
                call.abort()

    async def _send_or_redirect(self, request: httpx2.Request) -> httpx2.Request | None:
        """Send a notification. Return the request to send next if the server redirects within its origin, or None."""
        response = await self._notify(request)
        if response is None:
            return None
        await response.aclose()
        if response.status_code not in _MOVED:
            return None
        try:
            url = request.url.join(response.headers.get("location", ""))
        except httpx2.InvalidURL:
            return None
        if (url.scheme, url.netloc) != (request.url.scheme, request.url.netloc):
            return None
        return httpx2.Request("POST", url, headers=request.headers, content=request.content)

    async def _notify(self, request: httpx2.Request) -> httpx2.Response | None:
        """Send a notification, and return the response, which has only a status.

        If the server does not accept the notification, report the server as stuck and return None.
        """
        try:
            async with asyncio.timeout(self._timing.notice_timeout):
                return await self._answered(request, read=self._timing.notice_timeout)
        except (httpx2.TransportError, TimeoutError) as error:
            self._on_stuck(explain(error))
            return None

    async def _answered(self, request: httpx2.Request, *, read: float | None) -> httpx2.Response:
        """Return the response once it begins. Wait at most `read` seconds for each piece of it."""
        spans = request.extensions.get("timeout", {}) | {"read": read}
        if request.method == "DELETE":  # the end of the session; the server need not confirm it
            spans = dict.fromkeys(("connect", "read", "write", "pool"), _GOODBYE_TIMEOUT)
        response = await send_pinned(
            request,
            await self._addresses(request.url),
            self._transport.handle_async_request,
            extensions={**request.extensions, "timeout": spans},
            unreachable=(httpx2.ConnectError, httpx2.ConnectTimeout),
        )
        if response.is_error:
            self._on_error(request, response.status_code)
        if response.headers.get("content-encoding", _PLAIN).lower() != _PLAIN:
            # Its decompressed size would be unbounded, and we requested no compression.
            await response.aclose()
            raise ServerUnavailable("it sends compressed answers, which are not read")
        return response

    async def _addresses(self, url: httpx2.URL) -> Sequence[str]:
        port = url.port or (443 if url.scheme == "https" else 80)
        everywhere = ToolboxSettings(
            web_allow_private=True, web_connect_timeout=self._settings.web_connect_timeout
        )
        try:
            # The encoded name, as it is sent to the server: Python would encode other scripts by an older standard.
            addresses = await resolve(url.raw_host.decode("ascii"), port, settings=everywhere)
        except ToolFailed:
            raise ServerUnavailable("its host was not found") from None
        if not self._settings.web_allow_private and not all(map(is_public, addresses)):
            raise ServerUnavailable(_PRIVATE)
        return addresses


def _message(request: httpx2.Request) -> dict[str, Any]:
    """Return the JSON message that the request contains, or an empty dict if it contains none."""
    message = json.loads(request.content) if request.method == "POST" else {}
    return message if isinstance(message, dict) else {}
