"""A session with an MCP server. A single task owns it from open to close (invariant 9).

Callers never wait inside the session's cancel scopes. Each call runs in a task of the session, and its caller waits for
a future, so it can leave immediately. When a caller leaves, the SDK sends `notifications/cancelled`. When the session
ends, every caller gets the reason.
"""

import asyncio
import contextvars
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from mcp import Client, types
from mcp.client import IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from governance.core.excerpts import shortened
from governance.core.forms import AskForm
from governance.mcp.elicitation import Elicitation
from governance.mcp.error_messages import explain, status_clause
from governance.mcp.errors import RequestNotSent, ServerUnavailable
from governance.mcp.http import HttpServer
from governance.mcp.message_filter import MessageFilter, Streams, filtered
from governance.mcp.pending_calls import PendingCalls
from governance.mcp.request_state import Report, RequestStates
from governance.mcp.results import McpResult
from governance.mcp.schemas import schema_problem
from governance.mcp.specs import FoundTool, McpTiming, ServerSpec, Transport
from governance.mcp.stdio import StdioServer
from governance.threads import run_in_thread

logger = logging.getLogger(__name__)
for _name in ("mcp.client", "mcp.shared"):
    # The SDK logs a server's messages line by line. Our own log says why a server cannot be used.
    if (_theirs := logging.getLogger(_name)).level == logging.NOTSET:
        _theirs.setLevel(logging.CRITICAL)

_INVALID = "its definition does not follow the protocol"
_NEEDS_TASK = "it runs only as a task of the protocol, which is not supported here"
# In characters. The length is limited because every request of an agent that reads the instructions contains them.
LONGEST_INSTRUCTIONS = 4_000
_MOST_PAGES = 100
# The pause before a changed list is read again, as a multiple of the time that the last read took.
_LIST_SHARE = 10
_LONGEST_LIST_PAUSE = 60.0  # seconds
_LISTEN_AGAIN = 5.0


class McpSession:
    """A session, which starts with `begin`.

    `ready` resolves when the tools are known, and `ended` resolves with a clause when the session is over. `stuck`
    resolves with a clause when the server accepts no more messages: pending calls may still end, but new ones need
    another session. `on_instructions` is called once, `on_tools` with every new list of tools. `is_cautious` skips the
    probe for the newest protocol, which makes some old servers fail.
    """

    def __init__(
        self,
        spec: ServerSpec,
        *,
        timing: McpTiming,
        allow_private: bool,
        is_cautious: bool,
        on_tools: Callable[[Sequence[FoundTool]], None],
        on_instructions: Callable[[str], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[str] = loop.create_future()
        self._spec = spec
        self._timing = timing
        self._is_cautious = is_cautious
        self._on_tools = on_tools
        self._on_instructions = on_instructions
        request_states: RequestStates = {}
        self._transport = _make_transport(
            spec, timing=timing, request_states=request_states, allow_private=allow_private
        )
        self._filter = MessageFilter(
            timing=timing, request_states=request_states, on_flood=self._transport.abort
        )
        self._wake = asyncio.Event()
        self._transport.ended.add_done_callback(lambda _: self._wake.set())
        self._client: Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._calls = PendingCalls(spec.name, ended=self.ended)
        self._closed_because = ""

    @property
    def late_answers(self) -> int:
        """The number of responses that arrived after their callers had left."""
        return self._filter.late_answers

    @property
    def stuck(self) -> "asyncio.Future[str]":
        """The future that resolves with the reason when the server accepts no more messages."""
        return self._transport.stuck

    async def unused(self) -> None:
        """Wait until no call is pending, or the session is over."""
        while len(self._calls) and not self.ended.done():
            ends: set[asyncio.Future[Any]] = {self.ended, *self._calls.running}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)

    def begin(self) -> None:
        """Start the task that owns the session."""
        # An empty context, so that the session does not belong to the request that opened it.
        self._owner = asyncio.get_running_loop().create_task(
            self._run(), name=f"MCP server {self._spec.name}", context=contextvars.Context()
        )

    def close(self, reason: str) -> None:
        """Start to close the session. Its callers immediately get `reason`, which is a clause."""
        self._closed_because = self._closed_because or reason
        self._settle(reason)
        if self._owner is not None:
            self._owner.cancel()

    async def closed(self, *, within: float) -> bool:
        """Wait up to `within` seconds for the session and its tasks to end. Return whether they have ended."""
        if self._owner is None:
            return True
        await asyncio.wait({self._owner}, timeout=within)
        return self._owner.done()

    @property
    def has_given_up(self) -> bool:
        """Whether the server may still be working on an abandoned call."""
        return self._calls.has_given_up

    async def call(
        self, tool_name: str, arguments: Mapping[str, Any], *, report: Report, ask: AskForm
    ) -> McpResult:
        """Call one of the server's tools and return its result.

        Raises:
            MayStillRun: the call was cancelled after it was sent, so the tool may still be running.
            RequestNotSent: the call was cancelled, or the session ended, before it was sent.
            ServerUnavailable: the session ended before the response arrived.
            ResponseLost: the response is invalid, or is an error that leaves open whether the tool ran.
            ResultRefused: the result contains numbers that JSON does not have.
            ToolFailed: the server refused the call, or the arguments cannot be written as JSON.
        """
        if self._client is None or self.ended.done():
            raise RequestNotSent(
                self.ended.result() if self.ended.done() else "it is not connected"
            )
        return await self._calls.send(self._client, tool_name, arguments, report=report, ask=ask)

    async def _run(self) -> None:
        reason = "it closed the connection"
        try:
            async with Client(
                filtered(self._open(), self._filter),
                mode="legacy" if self._is_cautious else "auto",
                cache=None,
                read_timeout_seconds=self._timing.request_timeout,
                message_handler=self._on_message,
                elicitation_callback=self._elicitation() if self._spec.asks_people else None,
                client_info=types.Implementation(name="django-turnkeeper", version="1"),
            ) as client:
                try:
                    await self._serve(client)
                except ServerUnavailable as gone:
                    self._settle(gone.reason)  # before the client closes, which takes time
                    raise
        except asyncio.CancelledError:
            reason = self._closed_because or "it was closed"
            raise
        except Exception as error:
            reason = self._why(error)
            logger.debug("An MCP session ended", extra={"server": self._spec.name}, exc_info=True)
        finally:
            self._settle(reason)
            try:
                await self._await_rest()
            finally:
                self._filter.close()

    def _elicitation(self) -> Elicitation:
        return Elicitation(self._spec.name, sole_call=lambda: self._calls.sole)

    def _open(self) -> AbstractAsyncContextManager[Streams]:
        return (
            self._transport if isinstance(self._transport, StdioServer) else self._transport.open()
        )

    async def _serve(self, client: Client) -> None:
        """List the tools, and list them again whenever the server says that they changed, until the session ends."""
        self._filter.protocol_version = client.protocol_version
        instructions = (client.instructions or "").strip()
        self._on_instructions(shortened(instructions, limit=LONGEST_INSTRUCTIONS))
        self._on_tools(await self._list(client))
        self._client = client
        if not self.ready.done():
            self.ready.set_result(None)
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            name = f"listening to MCP server {self._spec.name}"
            self._listening = asyncio.create_task(self._listen(client), name=name)
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._transport.ended.done():
                raise ServerUnavailable(self._transport.ended.result())
            began_at = loop.time()
            self._on_tools(await self._list(client))
            pause = min(_LIST_SHARE * (loop.time() - began_at), _LONGEST_LIST_PAUSE)
            await asyncio.wait(
                {self._transport.ended}, timeout=max(pause, self._timing.relist_pause)
            )

    async def _list(self, client: Client) -> list[FoundTool]:
        """Return the tools without duplicate names. An invalid tool has only a name and its problem."""
        tools_by_name: dict[str, types.Tool] = {}
        cursor: str | None = None
        most, invalid_tools = self._timing.most_tools, self._filter.invalid_tools
        invalid_tools.clear()
        for _ in range(_MOST_PAGES):
            count = len(tools_by_name) + len(invalid_tools)
            page = await client.list_tools(cursor=cursor)
            tools_by_name = {tool.name: tool for tool in page.tools} | tools_by_name
            cursor = page.next_cursor
            if cursor is None or not count < len(tools_by_name) + len(invalid_tools) < most:
                break
        refused = [FoundTool(name=name, problem=_INVALID) for name in invalid_tools]
        # One at a time, so that little work continues after the session has ended.
        usable = [await run_in_thread(_found, tool) for tool in tools_by_name.values()]
        return [*usable, *refused][:most]

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._wake.set()

    async def _listen(self, client: Client) -> None:
        """Keep a subscription open, because in the newest protocol a server notifies only clients that subscribe."""
        while True:
            with suppress(SubscriptionLost, MCPError, TimeoutError):
                async with client.listen(tools_list_changed=True) as subscription:
                    async for _ in subscription:
                        self._wake.set()
            await asyncio.wait({self._transport.ended}, timeout=_LISTEN_AGAIN)
            if self._transport.ended.done():
                return

    def _why(self, error: BaseException) -> str:
        if self._transport.ended.done():
            return self._transport.ended.result()
        status = self._transport.status if isinstance(self._transport, HttpServer) else None
        if status is not None and not self.ready.done():
            return status_clause(status)
        return explain(error)

    def _settle(self, reason: str) -> None:
        """Pass the reason for the session's end to everything that waits for the session or for a call."""
        if not self.ended.done():
            self.ended.set_result(reason)
        if not self.ready.done():
            self.ready.cancel()
        self._calls.fail(self.ended.result())

    async def _await_rest(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait({self._listening}, timeout=self._timing.end_grace)
        await self._calls.finished(within=self._timing.end_grace)


def _found(tool: types.Tool) -> FoundTool:
    hints = tool.annotations
    return FoundTool(
        name=tool.name,
        title=tool.title or (hints and hints.title) or "",
        description=tool.description or tool.title or "",
        input_schema=tool.input_schema,
        is_read_only=bool(hints and hints.read_only_hint),
        problem=_task_problem(tool) or schema_problem(tool.input_schema),
    )


def _task_problem(tool: types.Tool) -> str:
    needs_task = tool.execution is not None and tool.execution.task_support == "required"
    return _NEEDS_TASK if needs_task else ""


def _make_transport(
    spec: ServerSpec, *, timing: McpTiming, request_states: RequestStates, allow_private: bool
) -> StdioServer | HttpServer:
    if spec.transport is Transport.STDIO:
        return StdioServer(spec, timing=timing, request_states=request_states)
    return HttpServer(
        spec, timing=timing, request_states=request_states, allow_private=allow_private
    )
