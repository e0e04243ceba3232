"""Filters the messages of one server: it counts and removes late responses, and ends the connection after a flood."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Self

import anyio
from mcp.client import Transport
from mcp.shared.message import SessionMessage
from mcp.types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    Tool,
)
from mcp.types.methods import validate_server_result

from governance.mcp.request_state import RequestState, RequestStates, current_request
from governance.mcp.specs import McpTiming

Streams = tuple[Any, Any]  # the SDK's ReadStream and WriteStream, which it does not export
_REMEMBERED = 1_000
_LONGEST_NAME = 200
# Fields that the newest protocol requires in a list besides the tools. Older ones ignore them.
_LIST_STUB = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


class MessageFilter:
    """Inspects the messages of one connection. `late_answers` counts the responses to abandoned requests.

    The filter removes tools that violate the protocol from a list, because the SDK would refuse the whole list.
    `invalid_tools` contains their names. `protocol_version` must be set before the tools are listed.

    `on_flood` is called once, with a clause, when the server sends more than it may. Nothing is read after that.
    """

    def __init__(
        self,
        *,
        timing: McpTiming,
        request_states: RequestStates,
        on_flood: Callable[[str], None],
    ) -> None:
        self.late_answers = 0
        self._timing = timing
        self._request_states = request_states
        self._on_flood = on_flood
        self._allowance = float(timing.most_messages)
        self._counted_at = time.monotonic()
        self._given_up: dict[str, RequestState | None] = {}
        self._lists: set[Any] = set()  # the ids of requests that list tools
        self._calls: set[str] = set()  # the ids of tool calls
        self._unanswered = 0  # requests of the server that have no response yet
        self.protocol_version = ""
        self.invalid_tools: dict[str, None] = {}

    def sent(self, item: SessionMessage) -> None:
        """Record to which call the message belongs, or which request it cancels, if any."""
        message = item.message
        request_state = current_request.get()
        if request_state and isinstance(message, JSONRPCRequest) and message.method == "tools/call":
            self._request_states[message.id] = request_state
            self._calls.add(str(message.id))
        if isinstance(message, JSONRPCRequest) and message.method == "tools/list":
            self._lists.add(message.id)
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            request_id = str((message.params or {}).get("requestId"))
            self._calls.discard(request_id)
            self._given_up[request_id] = request_state
            if len(self._given_up) > _REMEMBERED:
                self._forget(next(iter(self._given_up)))

    def answered(self, item: SessionMessage) -> None:
        """Record that the message was sent, if it is a response to a request of the server."""
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._unanswered -= 1

    def close(self) -> None:
        """Record that abandoned requests will never be answered."""
        for request_id in list(self._given_up):
            self._forget(request_id)

    def received(self, item: SessionMessage | Exception) -> bool:
        """Count a message. Return whether to pass it on. Raise `anyio.ClosedResourceError` if there are too many."""
        self._count()
        if isinstance(item, Exception):
            return True
        message = item.message
        if (
            isinstance(message, JSONRPCResponse | JSONRPCError)
            and str(message.id) in self._given_up
        ):
            request_state = self._given_up[str(message.id)]
            if request_state and isinstance(
                message, JSONRPCResponse
            ):  # an error does not prove that the call ended
                request_state.late_answer.set_result(message.result)
            self._forget(str(message.id))
            self.late_answers += 1
            return False
        if isinstance(message, JSONRPCResponse) and message.id in self._lists:
            self._lists.discard(message.id)
            self._drop_invalid_tools(message.result)
        if isinstance(message, JSONRPCRequest):
            self._count_request()
        self._take_error_text(message)
        return True

    def _take_error_text(self, message: JSONRPCMessage) -> None:
        """Move the error message of a failed call to `data`, because the SDK would put the message into a trace."""
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            return
        is_of_call = str(message.id) in self._calls
        self._calls.discard(str(message.id))
        if is_of_call and isinstance(message, JSONRPCError):
            message.error.message, message.error.data = "", message.error.message

    def _forget(self, request_id: str) -> None:
        if request_state := self._given_up.pop(request_id):
            request_state.late_answer.cancel()  # has no effect if the response has arrived

    def _drop_invalid_tools(self, result: dict[str, Any]) -> None:
        tools = result.get("tools")
        if not isinstance(tools, list):
            return
        valid_tools = []
        for tool in tools[: self._timing.most_tools]:
            if self._is_valid_tool(tool):
                # The SDK would check results against this schema on the event loop, and run every pattern in it.
                tool.pop("outputSchema", None)
                valid_tools.append(tool)
            else:
                self.invalid_tools[_name(tool)] = None
        result["tools"] = valid_tools

    def _is_valid_tool(self, tool: Any) -> bool:
        """Return whether a list that contains only this tool follows the protocol."""
        try:
            page = {**_LIST_STUB, "tools": [tool]}
            validate_server_result("tools/list", self.protocol_version, page)
            Tool.model_validate(tool, by_name=False)
        except (ValueError, KeyError):
            return False
        return True

    def _count(self) -> None:
        now = time.monotonic()
        earned = (now - self._counted_at) * self._timing.messages_per_second
        self._counted_at = now
        self._allowance = min(self._allowance + earned, float(self._timing.most_messages)) - 1
        if self._allowance < 0:
            self._on_flood("it sent more messages than can be read")
            raise anyio.ClosedResourceError

    def _count_request(self) -> None:
        """Limit the server's open requests, because the SDK keeps a task for each until the response is sent."""
        self._unanswered += 1
        if self._unanswered > self._timing.most_unanswered:
            self._on_flood("it does not read the answers to its requests")
            raise anyio.ClosedResourceError


def _name(tool: Any) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    return name[:_LONGEST_NAME] if isinstance(name, str) and name else "a tool without a name"


@asynccontextmanager
async def filtered(
    transport: AbstractAsyncContextManager[Streams], message_filter: MessageFilter
) -> AsyncIterator[Streams]:
    """Open the transport with `message_filter` applied to every message."""
    async with transport as (readable, writable):
        yield _Incoming(readable, message_filter), _Outgoing(writable, message_filter)


class _Stream:
    def __init__(self, stream: Any, message_filter: MessageFilter) -> None:
        self._stream = stream
        self._filter = message_filter

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        ended: bool | None = await self._stream.__aexit__(kind, error, trace)
        return ended


class _Incoming(_Stream):
    @property
    def last_context(self) -> Any:
        """The context of the last message, if the transport has one."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        while True:
            item: SessionMessage | Exception = await self._stream.receive()
            if self._filter.received(item):
                return item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _Outgoing(_Stream):
    async def send(self, item: SessionMessage, /) -> None:
        self._filter.sent(item)
        await self._stream.send(item)
        self._filter.answered(item)


__all__ = ["MessageFilter", "Streams", "Transport", "filtered"]
